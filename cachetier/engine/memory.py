"""Values in memory, least recently used out first, never a byte more than the capacity.

Accounting is exact and simple: an entry costs its key, its value and ENTRY_BYTES for the objects
around them; what goes out is accounted before what comes in, so the sum never passes the capacity,
not even for a moment. Entries with an end stand in one bucket for each second they could end in:
a sweep visits the seconds that have passed and nothing else, and an entry leaves its bucket when it
is dropped, so nothing grows with churn.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from cachetier.engine.store import Condition, EvictionReason, TooLargeError, Usage, Value

# Measured with sys.getsizeof: entry 72, key object 33, value object 57, their places in the two
# dictionaries and in a bucket of ends.
ENTRY_BYTES: Final = 320

# Hears what left, why, and how old it was (seconds).
OnEvict = Callable[[EvictionReason, float], None]


class _Entry:
    __slots__ = ("born_at", "cost", "ends_at", "value")

    def __init__(self, value: Value, cost: int, born_at: float, ends_at: float) -> None:
        self.value = value
        self.cost = cost
        self.born_at = born_at
        self.ends_at = ends_at


class MemoryStore:
    """One thread only."""

    def __init__(self, capacity_bytes: int, on_evict: OnEvict) -> None:
        self._capacity = capacity_bytes
        self._on_evict = on_evict
        self._used = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()  # the oldest use comes first
        self._ends: dict[int, set[bytes]] = {}
        self._swept_to: int | None = None

    # -- reading -------------------------------------------------------------------------------
    def get(self, key: bytes, now: float) -> Value | None:
        entry = self._alive(key, now)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry.value

    def peek(self, key: bytes, now: float) -> Value | None:
        entry = self._alive(key, now)
        return None if entry is None else entry.value

    def touch(self, key: bytes, now: float) -> bool:
        if self._alive(key, now) is None:
            return False
        self._entries.move_to_end(key)
        return True

    def ttl(self, key: bytes, now: float) -> float | None:
        entry = self._alive(key, now)
        return None if entry is None else entry.ends_at - now

    def keys(self) -> Iterator[bytes]:
        return iter(self._entries)

    def usage(self) -> Usage:
        return Usage(self._used, self._capacity, len(self._entries))

    # -- writing -------------------------------------------------------------------------------
    def put(
        self, key: bytes, value: Value, *, now: float, ttl_s: float | None, condition: Condition
    ) -> bool:
        cost = len(key) + len(value) + ENTRY_BYTES
        if cost > self._capacity:
            raise TooLargeError(f"{cost} bytes in a store of {self._capacity}")
        there = self.touch(key, now)
        if there and condition is Condition.ABSENT:
            return False
        if not there and condition is Condition.PRESENT:
            return False
        if there:
            self._remove(key)
        while self._used + cost > self._capacity:
            oldest = next(iter(self._entries))
            self._evict(oldest, EvictionReason.CAPACITY, now)
        entry = _Entry(value, cost, now, math.inf if ttl_s is None else now + ttl_s)
        self._entries[key] = entry
        self._used += cost
        self._plan_end(key, entry)
        return True

    def drop(self, key: bytes, now: float) -> bool:
        if self._alive(key, now) is None:
            return False
        self._remove(key)
        return True

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        entry = self._alive(key, now)
        if entry is None:
            return False
        self._forget_end(key, entry)
        entry.ends_at = math.inf if ttl_s is None else now + ttl_s
        self._plan_end(key, entry)
        return True

    def clear(self, now: float) -> int:
        count = len(self._entries)
        for key in list(self._entries):
            self._evict(key, EvictionReason.ADMIN, now)
        return count

    def sweep(self, now: float) -> int:
        second = int(now)
        if self._swept_to is None:
            self._swept_to = min(self._ends, default=second)
        count = 0
        for passed in range(self._swept_to, second):
            for key in list(self._ends.get(passed, ())):
                self._evict(key, EvictionReason.TTL, now)
                count += 1
        self._swept_to = max(self._swept_to, second)
        return count

    # -- inside --------------------------------------------------------------------------------
    def _alive(self, key: bytes, now: float) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.ends_at <= now:
            self._evict(key, EvictionReason.TTL, now)
            return None
        return entry

    def _evict(self, key: bytes, reason: EvictionReason, now: float) -> None:
        self._on_evict(reason, now - self._remove(key).born_at)

    def _remove(self, key: bytes) -> _Entry:
        entry = self._entries.pop(key)
        self._used -= entry.cost
        self._forget_end(key, entry)
        return entry

    def _plan_end(self, key: bytes, entry: _Entry) -> None:
        if entry.ends_at != math.inf:
            second = int(entry.ends_at)
            self._ends.setdefault(second, set()).add(key)
            if self._swept_to is not None:  # a key may be born past its end
                self._swept_to = min(self._swept_to, second)

    def _forget_end(self, key: bytes, entry: _Entry) -> None:
        if entry.ends_at == math.inf:
            return
        second = int(entry.ends_at)
        bucket = self._ends.get(second)
        if bucket is not None:
            bucket.discard(key)
            if not bucket:
                del self._ends[second]
