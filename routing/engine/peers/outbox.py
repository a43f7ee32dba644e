"""Changes at this router since its last batch, for its peers. Pure and bounded.

Loads and callers are read when a batch is made; only placements wait here. The oldest are dropped
first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from routing.engine.peers import messages
from routing.engine.peers.messages import (
    Batch,
    BudgetUse,
    CallerLoad,
    CircuitChange,
    Placement,
    TtftSample,
    WorkerLoad,
    WorkerPrompts,
)

if TYPE_CHECKING:
    from routing.engine.fleet.workers import WorkerTable
    from routing.engine.kv.progress import ExpectedPrompt
    from routing.engine.policies.base import RequestFacts

BATCH_INTERVAL_S = 0.02  # between two batches; the first after a pause goes at once
MAX_HELD = 20_000  # placements
MAX_HELD_BYTES = 16 * 1024 * 1024
_BATCH_BYTES = messages.MAX_BYTES // 2

_NO_LOAD = (0, 0, 0)
_NO_PROMPT = (0, 0, 0)  # as Worker.prompts


def wait_for_batch(since_s: float, clock_s: float) -> float:
    """Return the time until the next batch, `since_s` after the last one.

    Busy routers publish at the same multiples of the interval by the wall clock, so that a router
    reads the batches of several peers at once.
    """
    if since_s >= BATCH_INTERVAL_S:
        return 0.0
    wait_s = BATCH_INTERVAL_S - clock_s % BATCH_INTERVAL_S
    return wait_s if since_s + wait_s >= BATCH_INTERVAL_S / 2 else wait_s + BATCH_INTERVAL_S


class Outbox:
    def __init__(self, router_id: str, table: WorkerTable) -> None:
        self.router_id = router_id
        self.dialect = 0
        self.busy = False  # requests were in flight, or placements left, at the last batch
        self.dropped = 0  # placements that found no room
        self._table = table
        self._sequence = 0
        self._numbers = 0
        self._placed: deque[Placement] = deque()
        self._placed_bytes = 0
        self._expected: dict[ExpectedPrompt, int] = {}
        self._answered: list[int] = []
        self._failed: list[int] = []
        self._circuits: dict[str, bool] = {}
        self._times: list[TtftSample] = []
        self._loads: dict[str, tuple[int, int, int]] = {}  # as published
        self._callers: dict[str, tuple[int, int]] = {}

    @property
    def held(self) -> int:
        return len(self._placed)

    def sent(self, facts: RequestFacts, worker_id: str, share: float = 0.0, known: int = 0) -> None:
        """Record a prompt by its prefix hashes. With `expected` too: KV events do not say when a
        block was used, so the ages of peers' caches depend on them. `share`, `known`: see
        Placement.
        """
        if facts.chain:
            self._place(worker_id, 0, facts.block_tokens, facts.chain, share, known)

    def expected(self, guess: ExpectedPrompt) -> None:
        chains: Mapping[int, Sequence[int]] = guess.chains
        if not chains:
            return
        size = min(chains)  # peers follow the same events; one size locates a prompt
        self._expected[guess] = self._place(guess.worker, size, float(size), chains[size])

    def answered(self, guess: ExpectedPrompt) -> None:
        number = self._expected.pop(guess, None)
        if number is not None:
            self._answered.append(number)

    def failed(self, guess: ExpectedPrompt) -> None:
        number = self._expected.pop(guess, None)
        if number is not None:
            self._failed.append(number)

    def circuit(self, worker_id: str, opened: bool) -> None:
        self._circuits[worker_id] = opened

    def timed(self, worker_id: str, work: int, ttft_s: float) -> None:
        if len(self._times) < messages.MAX_TIMES:  # more say nothing new
            self._times.append(TtftSample(worker_id, work, ttft_s))

    def _place(
        self,
        worker_id: str,
        block_size: int,
        block_tokens: float,
        names: Sequence[int],
        share: float = 0.0,
        known: int = 0,
    ) -> int:
        self._numbers += 1
        data = messages.pack_names(names)
        known = min(known, messages.MAX_NAMES)
        placement = Placement(
            self._numbers, worker_id, block_size, block_tokens, data, share, known
        )
        self._placed.append(placement)
        self._placed_bytes += len(data)
        while len(self._placed) > MAX_HELD or self._placed_bytes > MAX_HELD_BYTES:
            self._placed_bytes -= len(self._placed.popleft().names)
            self.dropped += 1
        return self._numbers

    def batch(
        self,
        callers: Iterable[tuple[str, int, int]] = (),
        complete: bool = False,
        asks: str = "",
        age_s: int = 0,
        leaving: bool = False,
        hold: bool = False,
        budgets: Iterable[tuple[str, int, int, int]] = (),
    ) -> Batch | None:
        """Return the changes, None if there are none. `complete`: state everything, as a heartbeat.

        `callers`: key, in-flight and queued requests. `hold`: keep placements, as peers may not
        hear them yet. `budgets`: key, used, reserved and left tokens.
        """
        spent = [BudgetUse(*of_key) for of_key in budgets]
        loads = self._changed_loads(complete)
        prompts = self._changed_prompts(complete)
        busy = self._changed_callers(callers, complete)
        changes = bool(
            (self._placed and not hold)
            or self._answered
            or self._failed
            or self._circuits
            or self._times
        )
        if not (loads or prompts or busy or changes or spent or complete or asks or leaving):
            return None
        placed = [] if hold else self._next_placements()
        self.busy = self.busy or bool(self._placed)
        answered, self._answered = self._parted(self._answered)
        failed, self._failed = self._parted(self._failed)
        circuits = [CircuitChange(name, opened) for name, opened in self._circuits.items()]
        self._circuits.clear()
        times, self._times = self._times, []
        self._sequence += 1
        return Batch(
            messages.VERSION,
            self.router_id,
            self._sequence,
            self.dialect,
            complete,
            loads,
            placed,
            answered,
            failed,
            circuits[: messages.MAX_WORKERS],
            busy,
            asks,
            age_s,
            leaving,
            spent,
            prompts,
            times,
        )

    def memory(self, chains: Iterable[tuple[str, float, Sequence[int]]]) -> Batch:
        """Return a batch with what this router remembers, for a new router."""
        placed = [
            Placement(0, worker_id, 0, block_tokens, messages.pack_names(chain))
            for worker_id, block_tokens, chain in chains
        ]
        return Batch(messages.VERSION, self.router_id, 0, self.dialect, False, [], placed)

    def _next_placements(self) -> list[Placement]:
        next_placements: list[Placement] = []
        room = _BATCH_BYTES
        while self._placed and len(next_placements) < messages.MAX_PLACEMENTS and room > 0:
            first = self._placed.popleft()
            room -= len(first.names)
            self._placed_bytes -= len(first.names)
            next_placements.append(first)
        return next_placements

    @staticmethod
    def _parted(numbers: list[int]) -> tuple[list[int], list[int]]:
        return numbers[: messages.MAX_NUMBERS], numbers[messages.MAX_NUMBERS :]

    def _changed_loads(self, complete: bool) -> list[WorkerLoad]:
        changed: list[WorkerLoad] = []
        published = self._loads
        busy = False
        for worker in self._table.workers.values():
            in_flight, backlog, decoding = worker.of_peers
            now = (
                worker.in_flight - in_flight,
                worker.backlog - backlog,
                worker.decoding - decoding,
            )
            busy = busy or now[0] > 0
            if now != published.get(worker.id, _NO_LOAD) or (complete and now != _NO_LOAD):
                published[worker.id] = now
                changed.append(WorkerLoad(worker.id, *now))
        self.busy = busy
        for gone in [name for name in published if name not in self._table.workers]:
            del published[gone]  # dropped by peers with their own worker
        return changed[: messages.MAX_WORKERS]

    def _changed_prompts(self, complete: bool) -> list[WorkerPrompts]:
        """Return this router's prompts in flight, where policies compare their room."""
        changed_prompts: list[WorkerPrompts] = []
        if self._table.fleet.order is not None:
            return changed_prompts
        room = messages.MAX_PROMPTS
        for worker in self._table.workers.values():
            changed, prompts = worker.changed_prompts, worker.prompts
            if not worker.cache_tokens or not (changed or (complete and prompts)):
                continue
            names = list(prompts if complete else changed)
            changed.clear()
            states = [(name, prompts.get(name, _NO_PROMPT)) for name in names]
            tokens = {name: held[1] if held[2] else 0 for name, held in states}
            stated = [name for name in names if tokens[name] or not complete][:room]
            room -= len(stated)
            if stated:
                counts = [tokens[name] for name in stated]
                changed_prompts.append(
                    WorkerPrompts(worker.id, messages.pack_names(stated), counts)
                )
        return changed_prompts

    def _changed_callers(
        self, callers: Iterable[tuple[str, int, int]], complete: bool
    ) -> list[CallerLoad]:
        before, self._callers = self._callers, {}
        changed: list[CallerLoad] = []
        for key, in_flight, waiting in callers:
            now = self._callers[key] = (in_flight, waiting)
            if complete or before.get(key) != now:
                changed.append(CallerLoad(key, in_flight, waiting))
        changed += [CallerLoad(key, 0, 0) for key in before.keys() - self._callers.keys()]
        return changed[: messages.MAX_CALLERS]
