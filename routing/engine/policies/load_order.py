"""Policies' view of workers: by load, and on a consistent-hash ring."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Final, Protocol

import xxhash


class RoutingTarget:
    """Policies' view of a worker. A class: compiled code reads attributes of a protocol by name.

    `slot`: unique small number in the table, -1 outside. `spare`: cost.spare. `slowness`:
    cost.slowness. `prompts`: those in flight by their blocks, the last of each among them
    (fleet.load).
    """

    __slots__ = (
        "id", "in_flight", "last_pick", "load", "prompts", "seed", "slot", "slowness", "spare",
    )  # fmt: skip

    def __init__(self, worker_id: str, slot: int = -1) -> None:
        self.id = worker_id
        self.slot = slot
        self.seed = xxhash.xxh3_64_intdigest(worker_id.encode())
        self.load = 0.0
        self.in_flight = 0
        self.last_pick = 0
        self.spare = inf
        self.slowness = 0.0
        self.prompts: dict[int, list[int]] = {}


Entry = tuple[float, int, str, RoutingTarget]  # load, last pick, id, worker: sort order


class LoadOrder(Protocol):
    """Workers ordered by load (fleet.load.Order)."""

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def total(self) -> float: ...
    @property
    def bits(self) -> int: ...
    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]: ...
    def up_to(self, good: Callable[[float], bool], bits: int) -> int: ...


class FleetWithout:
    __slots__ = ("_order", "bits", "entries", "total")

    def __init__(self, order: LoadOrder, tried: Collection[RoutingTarget]) -> None:
        self._order = order
        self.entries = [entry for entry in order.entries if entry[3] not in tried]
        self.total = sum(entry[0] for entry in self.entries)
        self.bits = order.bits
        for worker in tried:
            self.bits &= ~(1 << worker.slot)

    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.lightest(bits & self.bits, turn, count)

    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        return self._order.some(bits & self.bits, turn, count)

    def up_to(self, good: Callable[[float], bool], bits: int) -> int:
        return self._order.up_to(good, bits & self.bits)


POINTS: Final = 16
PROBES: Final = 4
MAX_STEPS: Final = 16  # points tried per probe until a worker fits
_MASK: Final = 2**64 - 1
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_INDEX_BITS: Final = 20
_NUMBERS: Final = tuple(bytes([number]) for number in range(POINTS))


class HashRing:
    """Multi-probe consistent hashing.

    A key is hashed several times; the probe closest to its next point wins. Lookup time does not
    grow with the fleet, unlike rendezvous hashing.
    """

    __slots__ = ("_points", "_workers")

    def __init__(self, workers: Sequence[RoutingTarget]) -> None:
        draw = xxhash.xxh3_64_intdigest
        keep = ~((1 << _INDEX_BITS) - 1)
        self._workers = workers
        self._points = sorted(
            (draw(number, worker.seed) & keep) | index  # the low bits hold the worker's index
            for index, worker in enumerate(workers)
            for number in _NUMBERS
        )

    def find(
        self, key: int, fits: Callable[[RoutingTarget], bool] | None = None
    ) -> tuple[RoutingTarget | None, int]:
        """Return the worker of a key among those that fit and its distance; None: none was near."""
        points = self._points
        workers = self._workers
        count = len(points)
        best = _MASK
        target: RoutingTarget | None = None
        throw = key
        step = (key * _MULTIPLIER) & _MASK | 1
        for _ in range(PROBES if count else 0):
            index = bisect_left(points, throw)
            for _ in range(MAX_STEPS):
                if index >= count:
                    index -= count
                point = points[index]
                distance = (point - throw) & _MASK
                if distance >= best:
                    break
                worker = workers[point & ((1 << _INDEX_BITS) - 1)]
                if fits is None or fits(worker):
                    best, target = distance, worker
                    break
                index += 1
            throw = (throw + step) & _MASK
        return target, best
