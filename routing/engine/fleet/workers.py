"""Worker state, and the table of eligible workers.

`WorkerTable.eligible` is updated on every state change, so that a pick only reads it. A worker is
down, draining or ejected (circuit.py); if all remaining workers are ejected, they are used anyway.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Final

from console.processkit.metrics import Number
from routing.engine.config import HealthConfig, WorkerConfig
from routing.engine.fleet.circuit import Circuit
from routing.engine.fleet.load import LoadedTarget, WorkersByLoad, update_load
from routing.engine.policies.base import Fleet

if TYPE_CHECKING:
    from routing.engine.fleet.connection_pool import WorkerPool

# Initial share of a new worker during slow start.
SLOW_START_SHARE: Final = 0.1
NO_LIMIT: Final = 1 << 60
SMALL_FLEET: Final = 16  # up to this size scanning beats maintaining the order


class Worker(LoadedTarget):
    __slots__ = (
        "address", "block_size", "circuit", "config_cache_tokens", "config_draining", "decisions",
        "failed_requests", "failures", "fingerprint", "gone", "host_line", "kv_events", "kv_replay",
        "label_line", "last_error", "max_in_flight", "models", "of_peers", "order_draining", "pool",
        "probe_pool", "probes_failed", "progress_at", "served", "silent", "slow_since", "source",
        "started", "stuck", "tls_name", "up", "url",
    )  # fmt: skip

    def __init__(self, config: WorkerConfig) -> None:
        super().__init__(config.id)
        self.url = config.url
        self.address = config.address
        self.tls_name = config.tls_name
        self.source = config.source
        self.kv_events = config.kv_events
        self.kv_replay = config.kv_replay
        self.config_draining = config.draining
        self.order_draining = False
        self.host_line = f"host: {config.address}\r\n".encode()
        self.label_line = f"x-emberline-worker: {config.id}\r\n".encode()
        self.up = False  # until the first health check passes
        self.gone = False
        self.silent = False  # was up, and its health checks time out
        self.stuck = False  # its engine makes no progress (progress.py)
        self.progress_at = 0.0  # last sign of its engine's work, or begin of the oldest wait
        self.probes_failed = 0
        self.circuit = Circuit()
        self.slow_since = 0.0  # 0: not in slow start
        self.block_size = 0  # in tokens, as its metrics report; 0: unknown
        self.config_cache_tokens = config.cache_tokens  # 0: use its metrics
        self.cache_tokens = config.cache_tokens
        self.started: float | None = None  # process start by the worker's clock
        # In-flight requests, backlog and decoding of other routers (load.LoadedTarget).
        self.of_peers = (0, 0, 0)
        self.max_in_flight = NO_LIMIT
        self.served = 0
        self.failures = 0  # consecutive failed attempts, for the circuit
        self.failed_requests = 0  # requests whose client got an error from their last attempt here
        self.fingerprint: str | None = None
        self.last_error = ""
        # Never picked: first in order, shuffled among each other.
        self.last_pick = -random.getrandbits(48)
        self.models: list[dict[str, object]] = []
        self.decisions: dict[str, Number] = {}
        self.pool: WorkerPool
        self.probe_pool: WorkerPool  # dedicated: a full pool does not affect health checks

    @property
    def draining(self) -> bool:
        return self.config_draining or self.order_draining

    @property
    def own_in_flight(self) -> int:
        """Return this router's requests in flight."""
        return self.in_flight - self.of_peers[0]

    @property
    def state(self) -> str:
        if self.draining:
            return "draining"
        return "up" if self.up and self.circuit.admits else "down"


class WorkerTable:
    """All workers by id.

    `eligible` can be picked, `others` cannot; `fleet` is the policies' view of both.
    `on_change(worker, what)` gets "up", "down" (fails checks), "lost" (process gone, cache lost),
    "engine_died" (only the API server is left), "engine_stuck", "ejected", "trial" (one request
    allowed after the pause), "back".
    """

    def __init__(self, on_change: Callable[[Worker, str], None]) -> None:
        self.rules = HealthConfig()
        self._began = perf_counter()
        self.workers: dict[str, Worker] = {}
        self.eligible: tuple[Worker, ...] = ()
        self.others: tuple[Worker, ...] = ()
        self.fleet = Fleet(())
        self.waits = False  # no worker is up, but one may be busy: requests queue for it
        self.by_turn = False  # requested by the policy; applied at the next refresh
        self._on_change = on_change
        self._free_slots: list[int] = []
        self._came: list[Worker] = []  # up since the last tick, eligible from the next

    def refresh(self) -> None:
        serving = [w for w in self.workers.values() if w.up and not w.draining]
        trusted = [w for w in serving if w.circuit.admits]
        self.eligible = tuple(trusted or serving)
        self.waits = not serving and any(w.silent and not w.draining for w in self.workers.values())
        chosen = set(self.eligible)
        # A draining worker is leaving on purpose and does not count as a lost match.
        self.others = tuple(w for w in self.workers.values() if w not in chosen and not w.draining)
        for worker in self.workers.values():
            worker.order = None
        many = len(self.eligible) > SMALL_FLEET
        order = WorkersByLoad(self.eligible, self.by_turn) if many else None
        self.fleet = Fleet(self.eligible, self.others, order)

    def add(self, worker: Worker) -> None:
        """Add a worker; call `refresh` after a batch."""
        worker.slot = heappop(self._free_slots) if self._free_slots else len(self.workers)
        self.workers[worker.id] = worker

    def remove(self, worker_id: str) -> None:
        """Remove a worker; call `refresh` after a batch."""
        worker = self.workers.pop(worker_id)
        worker.gone = True
        worker.order = None
        heappush(self._free_slots, worker.slot)

    def probed(
        self, worker: Worker, error: str, refused: bool, fall: int, silent: bool = False
    ) -> None:
        """Record a health check; `error` is empty on success. `silent`: it timed out."""
        if not error:
            worker.probes_failed = 0
            worker.silent = False
            if not worker.up:
                worker.up = True
                worker.circuit = Circuit()
                self.start_slowly(worker)
                self._changed(worker, "up")
            return
        worker.probes_failed += 1
        worker.last_error = error
        if worker.up and (refused or worker.probes_failed >= fall):
            worker.up = False
            worker.silent = silent
            self._changed(worker, "lost" if refused else "down")
        elif worker.silent and not silent:  # such as a process that was stopped and then killed
            worker.silent = False
            self.refresh()

    def failed(self, worker: Worker, error: str, refused: bool) -> None:
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
        """Record a dead engine behind a live API server; its cache is lost."""
        worker.failures += 1
        worker.last_error = error
        if not worker.gone and worker.circuit.failed(perf_counter(), self.rules, fatal=True):
            self._changed(worker, "engine_died")

    def engine_stuck(self, worker: Worker, error: str) -> None:
        """Eject a worker whose engine makes no progress, until `engine_moved`."""
        worker.last_error = error
        worker.stuck = True
        if not worker.gone and worker.circuit.failed(perf_counter(), self.rules, fatal=True):
            self._changed(worker, "engine_stuck")

    def engine_moved(self, worker: Worker) -> None:
        """Allow a trial of a worker whose engine works again."""
        worker.stuck = False

    def ejected_by_peer(self, worker: Worker) -> None:
        """Eject a worker whose circuit another router opened."""
        if worker.circuit.failed(perf_counter(), self.rules, fatal=True):
            self._changed(worker, "ejected")

    def answered(self, worker: Worker) -> None:
        if worker.circuit.answered():
            self.start_slowly(worker)
            self._changed(worker, "back")

    def sent(self, worker: Worker) -> None:
        """Record a request sent while the circuit is not closed."""
        if worker.circuit.sent(perf_counter()) and not worker.gone:
            self.refresh()

    def tick(self, now: float) -> None:
        """Allow trials after their pause; advance slow starts."""
        if self._came:
            self._let_in()
        for worker in self.workers.values():
            if worker.stuck:
                continue
            if worker.circuit.state and worker.circuit.tick(now, not worker.own_in_flight):
                self._changed(worker, "trial")
            if worker.slow_since:
                self._grow(worker, now)

    def start_slowly(self, worker: Worker) -> None:
        """Begin slow start, so that an empty queue does not attract all traffic at once.

        Skipped while the router itself is new: all workers look new then.
        """
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
        update_load(worker)

    def _changed(self, worker: Worker, what: str) -> None:
        if worker.gone:
            return
        if what == "up" and len(self.eligible) > SMALL_FLEET:
            # Large fleet: defer to the next tick, so that 1000 new workers are sorted once.
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
