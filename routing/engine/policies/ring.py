"""Multi-probe consistent hashing.

A key is hashed several times; the probe closest to its next point wins. Lookup time does not grow
with the fleet, unlike rendezvous hashing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from routing.engine.policies.load_order import RoutingTarget

POINTS = 16
PROBES = 4
MAX_STEPS = 16  # points tried per probe until a worker fits
_MASK = 2**64 - 1
_MULTIPLIER = 0x9E3779B97F4A7C15
_INDEX_BITS = 20
_NUMBERS = tuple(bytes([number]) for number in range(POINTS))


class HashRing:
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
        found: RoutingTarget | None = None
        throw = key
        step = (key * _MULTIPLIER) & _MASK | 1
        for _ in range(PROBES if count else 0):
            at = bisect_left(points, throw)
            for _ in range(MAX_STEPS):
                if at >= count:
                    at -= count
                point = points[at]
                distance = (point - throw) & _MASK
                if distance >= best:
                    break
                worker = workers[point & ((1 << _INDEX_BITS) - 1)]
                if fits is None or fits(worker):
                    best, found = distance, worker
                    break
                at += 1
            throw = (throw + step) & _MASK
        return found, best
