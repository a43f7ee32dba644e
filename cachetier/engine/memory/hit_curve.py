"""Estimated hit rate at other cache sizes, measured online.

SHARDS with a fixed number of samples (Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC
construction with SHARDS", FAST 2015, sections 3.2 and 3.3, with the adjustment of 3.3). Only keys
whose hash is below a threshold are sampled; the threshold falls so that at most MAX_SAMPLES are.
For each use of a sampled key, the bytes of other sampled keys since its last use, divided by the
sampling rate, are the smallest LRU capacity with a hit. The node's own policy may differ.

Bounded memory (about 2 MB); an unsampled key costs one hash and comparison. Counts are halved
periodically, so that recent lookups weigh more.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Final

MAX_SAMPLES: Final = 8192
_PLACES: Final = 1 << 24
_STEPS: Final = 8  # buckets per doubling of capacity
_BUCKETS: Final = 56 * _STEPS
# Counts are halved when they reach this multiple of the samples.
_MEMORY: Final = 64
# Beyond the knee, doubling the capacity gains less than this share of all lookups.
KNEE_GAIN: Final = 0.02


class _Sums:
    """Binary indexed tree: slots and the sum of those after a slot."""

    __slots__ = ("_tree", "size", "total")

    def __init__(self, size: int) -> None:
        self.size = size
        self.total = 0
        self._tree = [0] * (size + 1)

    def add(self, slot: int, number: int) -> None:
        self.total += number
        index = slot + 1
        while index <= self.size:
            self._tree[index] += number
            index += index & -index

    def behind(self, slot: int) -> int:
        """Return the sum of all slots after this one."""
        upto = 0
        index = slot + 1
        while index:
            upto += self._tree[index]
            index &= index - 1
        return self.total - upto


@dataclass(slots=True)
class _Sample:
    slot: int
    cost: int


@dataclass(frozen=True, slots=True)
class Point:
    capacity_bytes: int
    hit_ratio: float


class HitCurve:
    """Hit curve. One thread only."""

    def __init__(self, max_samples: int = MAX_SAMPLES) -> None:
        self._max = max_samples
        self._threshold = _PLACES
        self._samples: dict[int, _Sample] = {}
        self._places: list[
            tuple[int, int]
        ] = []  # max-heap by sampling position, with the key's hash
        self._sums = _Sums(4 * max_samples)
        self._next_slot = 0
        self._buckets = [0.0] * _BUCKETS
        self._never = 0.0  # first uses of sampled keys
        self._lookups = 0.0
        self._costs = 0
        self._costed = 0

    def record_lookup(self, key: bytes, cost: int | None = None) -> None:
        """Record a lookup; `cost` in bytes if known."""
        self._lookups += 1
        name = hash(key)
        if name & (_PLACES - 1) < self._threshold:
            self._follow(name, cost)

    def stored(self, key: bytes, cost: int) -> None:
        self._costs += cost
        self._costed += 1
        sample = self._samples.get(hash(key))
        if sample is not None:
            self._sums.add(sample.slot, cost - sample.cost)
            sample.cost = cost

    def _follow(self, name: int, cost: int | None) -> None:
        sample = self._samples.get(name)
        if sample is None:
            self._never += 1
            mean = self._costs // self._costed if self._costed else 1
            sample = self._samples[name] = _Sample(0, mean if cost is None else cost)
            heapq.heappush(self._places, (-(name & (_PLACES - 1)), name))
        else:
            others = self._sums.behind(sample.slot) * _PLACES / self._threshold
            self._buckets[_bucket(others + sample.cost)] += 1
            self._sums.add(sample.slot, -sample.cost)
            if cost is not None:
                sample.cost = cost
        if self._next_slot == self._sums.size:
            self._renumber(name)
        sample.slot = self._next_slot
        self._next_slot += 1
        self._sums.add(sample.slot, sample.cost)
        if len(self._samples) > self._max:
            self._lower_threshold()
        if self._lookups * self.sampled_share > _MEMORY * self._max:
            self._weigh(0.5)
            self._lookups /= 2

    def _lower_threshold(self) -> None:
        """Remove the keys with the highest hash and lower the threshold below it."""
        place = -self._places[0][0]
        while self._places and -self._places[0][0] == place:
            _, name = heapq.heappop(self._places)
            gone = self._samples.pop(name)
            self._sums.add(gone.slot, -gone.cost)
        self._weigh(place / self._threshold)
        self._threshold = max(place, 1)

    def _weigh(self, factor: float) -> None:
        self._buckets = [count * factor for count in self._buckets]
        self._never *= factor

    def _renumber(self, coming: int) -> None:
        """Reassign the slots from the start, in order, after all were used."""
        self._sums = _Sums(self._sums.size)
        ordered = sorted(
            (sample.slot, name) for name, sample in self._samples.items() if name != coming
        )
        for slot, (_, name) in enumerate(ordered):
            sample = self._samples[name]
            sample.slot = slot
            self._sums.add(slot, sample.cost)
        self._next_slot = len(ordered)

    @property
    def samples(self) -> int:
        return len(self._samples)

    @property
    def sampled_share(self) -> float:
        return self._threshold / _PLACES

    @property
    def lookups(self) -> int:
        """Return the weighted number of lookups."""
        return round(self._lookups)

    def hit_ratio(self, capacity: int) -> float:
        if self._lookups == 0 or capacity <= 0:
            return 0.0
        expected = self._lookups * self.sampled_share
        measured = sum(self._buckets) + self._never
        # SHARDS adjustment: sampling error is dominated by a few hot keys, whose reuse distances
        # are short.
        hits = expected - measured
        place = math.log2(max(capacity, 1)) * _STEPS
        whole = min(int(place), _BUCKETS)
        hits += sum(self._buckets[:whole])
        if whole < _BUCKETS:
            hits += self._buckets[whole] * (place - whole)
        return min(max(hits / expected, 0.0), 1.0)

    def points(self, capacity: int) -> list[Point]:
        """Return points from 1/16 to 16 times the capacity, four per doubling."""
        sizes = [round(capacity * 2 ** (step / 4)) for step in range(-16, 17)]
        return [Point(size, self.hit_ratio(size)) for size in sizes]

    def knee(self, capacity: int) -> int | None:
        """Return the smallest of `points` beyond which no doubling gains KNEE_GAIN, else None."""
        if self._lookups == 0:
            return None
        knee = None
        for point in reversed(self.points(capacity)):
            if self.hit_ratio(2 * point.capacity_bytes) - point.hit_ratio >= KNEE_GAIN:
                break
            knee = point.capacity_bytes
        return knee


def _bucket(size: float) -> int:
    return min(int(math.log2(max(size, 1.0)) * _STEPS), _BUCKETS - 1)
