"""Load accounting: what a request weighs on its worker, and the workers in order of their load.

Promises that a worker's numbers come back to nothing when its last request has ended, however
that ended, and that an Order is right after every change without looking at all workers. Nothing
here is read from a worker: what was dispatched is known at once, a scraped gauge is old.
Must not know requests or sockets; the formula is policies/cost.py.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from routing.engine.policies import cost
from routing.engine.policies.base import Entry, Target


class Loaded(Target, Protocol):
    """A worker as its load is kept: plain numbers, written here only."""

    load: float
    in_flight: int
    backlog: int  # prompt tokens it was sent and has not computed, as far as we can see
    decoding: int  # answers which have begun
    weight: float  # how heavy it counts: 1, or more while the worker starts slowly
    order: Order | None
    entry: Entry


def weigh(worker: Loaded) -> None:
    """After a change of a worker's numbers or of its last pick."""
    decoding = worker.decoding
    load = cost.load(worker.backlog, worker.in_flight - decoding, decoding)
    worker.load = load * worker.weight
    order = worker.order
    if order is not None:
        order.moved(worker)


class Charge:
    """What one request weighs on one worker, from dispatch to its end."""

    __slots__ = ("_decoding", "_uncached", "worker")

    def __init__(self, worker: Loaded, uncached: int) -> None:
        """The request is sent now; `uncached` tokens of its prompt must be computed."""
        self.worker = worker
        self._uncached = uncached
        self._decoding = False
        worker.in_flight += 1
        worker.backlog += uncached
        weigh(worker)

    def answered(self) -> None:
        """The first byte of the answer: its prompt has been computed."""
        worker = self.worker
        worker.backlog -= self._uncached
        self._uncached = 0
        worker.decoding += 1
        self._decoding = True
        weigh(worker)

    def end(self) -> None:
        """Exactly once."""
        worker = self.worker
        worker.in_flight -= 1
        worker.backlog -= self._uncached
        if self._decoding:
            worker.decoding -= 1
        weigh(worker)


class Order:
    """Workers from the least loaded up; of equals the one picked longest ago is first.

    A change costs two bisections, so it is worth having where there are many workers only.
    """

    __slots__ = ("entries", "total")

    def __init__(self, workers: Iterable[Loaded]) -> None:
        self.entries: list[Entry] = []
        self.total = 0.0
        for worker in workers:
            worker.order = self
            worker.entry = (worker.load, worker.last_pick, worker.id, worker)
            self.entries.append(worker.entry)
            self.total += worker.load
        self.entries.sort()

    def moved(self, worker: Loaded) -> None:
        entries = self.entries
        old = worker.entry
        del entries[bisect_left(entries, old)]
        load = worker.load
        worker.entry = new = (load, worker.last_pick, worker.id, worker)
        insort(entries, new)
        self.total += load - old[0]
