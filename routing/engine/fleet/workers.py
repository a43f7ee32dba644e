"""The workers as the router sees them, and which of them may be picked now.

Promises that `Table.eligible` is right after every change of state (in a large fleet a worker
which came waits for the next tick), so that a pick reads it and asks nothing. A worker is *down*
when it does not answer health checks (or refuses connections), *draining* when told so, *left
out* for a while when its requests keep failing although its health check passes (circuit.py); when
all that remain are left out, they are used all the same. One that comes or comes back starts
slowly: its load counts more than it is, what it has cached in full.
Must not know HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING

import xxhash

from console.processkit.metrics import Number
from routing.engine.config import HealthConfig, WorkerConfig
from routing.engine.fleet.circuit import Circuit
from routing.engine.fleet.load import Order, weigh
from routing.engine.policies.base import Entry, Fleet

if TYPE_CHECKING:
    from routing.engine.fleet.connection_pool import ConnectionPool

# A worker which just came begins with this share of what the others carry.
SLOW_START_SHARE = 0.1
NO_LIMIT = 1 << 60  # of requests in flight
SMALL_FLEET = 16  # up to here looking at every worker is cheaper than keeping them in order


class Worker:
    """One worker's state; counters are plain numbers, changed by whoever learns the fact."""

    __slots__ = (
        "address",
        "backlog",
        "cache_tokens",
        "circuit",
        "config_cache_tokens",
        "config_draining",
        "decisions",
        "decoding",
        "entry",
        "failed_requests",
        "failures",
        "fingerprint",
        "gone",
        "host_line",
        "id",
        "in_flight",
        "kv_events",
        "kv_replay",
        "label_line",
        "last_error",
        "last_pick",
        "load",
        "max_in_flight",
        "models",
        "order",
        "order_draining",
        "pool",
        "probe_pool",
        "probes_failed",
        "seed",
        "served",
        "slot",
        "slow_since",
        "source",
        "started",
        "tls_name",
        "up",
        "url",
        "weight",
    )

    def __init__(self, config: WorkerConfig) -> None:
        self.id = config.id
        self.url = config.url
        self.address = config.address
        self.tls_name = config.tls_name
        self.source = config.source
        self.kv_events = config.kv_events
        self.kv_replay = config.kv_replay
        self.config_draining = config.draining
        self.order_draining = False  # by /drain?worker=
        self.host_line = f"host: {config.address}\r\n".encode()
        self.label_line = f"x-emberline-worker: {config.id}\r\n".encode()
        self.seed = xxhash.xxh3_64_intdigest(config.id.encode())
        self.slot = -1  # a small number of its own while it is in a table
        self.up = False  # until the first health check passes
        self.gone = False  # no longer configured
        self.probes_failed = 0
        self.circuit = Circuit()
        self.weight = 1.0  # how heavy its load counts; more while it starts slowly
        self.slow_since = 0.0  # 0: it does not
        self.config_cache_tokens = config.cache_tokens  # 0: what its metrics say
        self.cache_tokens = config.cache_tokens  # 0: not known
        self.started: float | None = None  # when its process did, by its own clock
        self.in_flight = 0  # this and the next five: load.py
        self.backlog = 0
        self.decoding = 0
        self.load = 0.0
        self.order: Order | None = None
        self.entry: Entry
        self.max_in_flight = NO_LIMIT
        self.served = 0
        self.failures = 0  # attempts without an answer; they open the circuit
        self.failed_requests = 0  # requests whose client got an error from the last attempt here
        self.fingerprint: str | None = None  # see usage.Engine
        self.last_error = ""
        # Who was never picked is before all others, and in no order which anybody chose.
        self.last_pick = -random.getrandbits(48)
        self.models: list[dict[str, object]] = []
        self.decisions: dict[str, Number] = {}
        self.pool: ConnectionPool
        self.probe_pool: ConnectionPool  # of its own: a full pool cannot make a worker look dead

    @property
    def draining(self) -> bool:
        return self.config_draining or self.order_draining

    @property
    def state(self) -> str:
        if self.draining:
            return "draining"
        return "up" if self.up and self.circuit.admits else "down"


class Table:
    """All workers by id; `eligible` can be picked, `others` are known and cannot; `fleet` is both
    as a policy sees them.

    `on_change(worker, what)` is told of "up", "down" (answers no checks), "lost" (its process is
    gone, and what it had cached with it), "engine_died" (only its server is left), "ejected",
    "trial" (after its pause one request may try it), "back".
    """

    def __init__(self, on_change: Callable[[Worker, str], None]) -> None:
        self.rules = HealthConfig()
        self._began = perf_counter()
        self.workers: dict[str, Worker] = {}
        self.eligible: tuple[Worker, ...] = ()
        self.others: tuple[Worker, ...] = ()
        self.fleet = Fleet(())
        self.by_turn = False  # as the policy wants it; takes effect at the next refresh
        self._on_change = on_change
        self._free_slots: list[int] = []
        self._came: list[Worker] = []  # up since the last tick, and not eligible before the next

    def refresh(self) -> None:
        serving = [w for w in self.workers.values() if w.up and not w.draining]
        trusted = [w for w in serving if w.circuit.admits]
        self.eligible = tuple(trusted or serving)
        chosen = set(self.eligible)
        # A draining worker is on its way out by order: it is not a lost chance.
        self.others = tuple(w for w in self.workers.values() if w not in chosen and not w.draining)
        for worker in self.workers.values():
            worker.order = None
        many = len(self.eligible) > SMALL_FLEET
        order = Order(self.eligible, self.by_turn) if many else None
        self.fleet = Fleet(self.eligible, self.others, order)

    def add(self, worker: Worker) -> None:
        """Any number, then `refresh`."""
        worker.slot = heappop(self._free_slots) if self._free_slots else len(self.workers)
        self.workers[worker.id] = worker

    def remove(self, worker_id: str) -> None:
        """Any number, then `refresh`."""
        worker = self.workers.pop(worker_id)
        worker.gone = True
        worker.order = None
        heappush(self._free_slots, worker.slot)

    def probed(self, worker: Worker, error: str, refused: bool, fall: int) -> None:
        """A health check's outcome; `error` is empty when it passed."""
        if not error:
            worker.probes_failed = 0
            if not worker.up:
                worker.up = True
                worker.circuit = Circuit()
                self._start_slowly(worker)
                self._changed(worker, "up")
            return
        worker.probes_failed += 1
        worker.last_error = error
        if worker.up and (refused or worker.probes_failed >= fall):
            worker.up = False
            self._changed(worker, "lost" if refused else "down")

    def failed(self, worker: Worker, error: str, refused: bool) -> None:
        """A request could not be served by this worker."""
        worker.failures += 1
        worker.last_error = error
        if worker.gone:
            return
        if refused:
            if worker.up:
                worker.up = False
                self._changed(worker, "lost")
        elif worker.circuit.failed(perf_counter(), self.rules):
            self._changed(worker, "ejected")

    def engine_died(self, worker: Worker, error: str) -> None:
        """Its server still answers, but the engine behind it is gone, and its cache."""
        worker.failures += 1
        worker.last_error = error
        if not worker.gone and worker.circuit.failed(perf_counter(), self.rules, fatal=True):
            self._changed(worker, "engine_died")

    def answered(self, worker: Worker) -> None:
        """A request was served, or begins to be: what failed before is forgiven."""
        if worker.circuit.answered():
            self._start_slowly(worker)
            self._changed(worker, "back")

    def sent(self, worker: Worker) -> None:
        """A request goes to a worker whose circuit is not closed."""
        if worker.circuit.sent(perf_counter()) and not worker.gone:
            self.refresh()

    def tick(self, now: float) -> None:
        """Let those be tried whose pause is over; bring slow starters nearer to the others."""
        if self._came:
            self._let_in()
        for worker in self.workers.values():
            if worker.circuit.state and worker.circuit.tick(now, not worker.in_flight):
                self._changed(worker, "trial")
            if worker.slow_since:
                self._grow(worker, now)

    def restarted(self, worker: Worker) -> None:
        """It is another process than before: warm it up like a new one."""
        self._start_slowly(worker)

    def _start_slowly(self, worker: Worker) -> None:
        """Its empty queue must not draw everything at once; what it has cached still does. While
        the router itself is new all workers look new, and none is."""
        now = perf_counter()
        if now - self._began >= self.rules.slow_start_s > 0:
            worker.slow_since = now
            self._grow(worker, now)

    def _grow(self, worker: Worker, now: float) -> None:
        whole = self.rules.slow_start_s
        share = (now - worker.slow_since) / whole if whole else 1.0
        if share >= 1.0:
            worker.slow_since = 0.0
            share = 1.0
        worker.weight = 1.0 / max(share, SLOW_START_SHARE)
        weigh(worker)

    def _changed(self, worker: Worker, what: str) -> None:
        if worker.gone:
            return
        if what == "up" and len(self.eligible) > SMALL_FLEET:
            # Where there are so many, one more can wait for the next tick: a thousand which come
            # at once would be put in order a thousand times.
            self._came.append(worker)
            return
        self.refresh()
        self._on_change(worker, what)

    def _let_in(self) -> None:
        came, self._came = self._came, []
        self.refresh()
        for worker in came:
            if worker.up and not worker.gone:
                self._on_change(worker, "up")
