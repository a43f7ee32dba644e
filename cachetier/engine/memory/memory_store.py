"""Memory store with an exact capacity bound.

Long values are in the arena, short ones are plain bytes. An entry costs its key, its value's memory
(whole pages in the arena) and ENTRY_BYTES for objects. Evictions are accounted before insertions,
and space for a value before its first byte is received, so the sum never exceeds the capacity. A
removed value counts until its readers release it.

The policy selects victims, but values being sent are skipped while others are left, since evicting
them frees nothing. Expiry uses one bucket per second: a sweep visits only past seconds, and a
dropped entry leaves its bucket, so buckets do not grow with churn.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cachetier.engine.memory.arena import Arena
from cachetier.engine.memory.entries import Entry, HeldEntry, IncomingEntry
from cachetier.engine.policies import EvictionPolicy, Lru
from cachetier.engine.store import (
    LONG_BYTES,
    Condition,
    Declined,
    DeclineReason,
    DiskValue,
    EvictionReason,
    Gate,
    Hold,
    LowerTier,
    StoreFacts,
    StoreUsage,
    WriteReservation,
)
from cachetier.wire import envelope as block_keys

log = logging.getLogger(__name__)

# Measured with sys.getsizeof: entry 104, key object 33, value object 57 (or extents 120), plus
# slots in the dictionaries of store, policy and expiry bucket.
ENTRY_BYTES: Final = 320
# After this growth outside the arena, which has its own check, the system is asked for so much
# memory, which is given back: a shortage shows while there is some left. CPython 3.11 to 3.13 may
# loop for ever when it cannot allocate an integer as it handles an exception (ceval.c,
# exception_unwind).
_PROBE_EVERY_BYTES: Final = 64 * 1024
_PROBE_BYTES = 1024 * 1024
# Consecutive held values that are skipped before one is evicted.
_MAX_SKIPPED: Final = 16

# Called with the removed key, the reason and its age in seconds.
OnEvict = Callable[[EvictionReason, float], None]


class MemoryStore:
    """Memory store. One thread only.

    `receiving_bytes` bounds the bytes being received at once; without `arena` a private one of
    fixed size is made.
    """

    def __init__(
        self,
        capacity_bytes: int,
        on_evict: OnEvict,
        *,
        arena: Arena | None = None,
        receiving_bytes: int | None = None,
        policy: EvictionPolicy | None = None,
        gates: Sequence[Gate] = (),
        lower: LowerTier | None = None,
    ) -> None:
        self.arena = arena if arena is not None else Arena(capacity_bytes)
        self._capacity = capacity_bytes
        self._on_evict = on_evict
        self._receiving_limit = receiving_bytes if receiving_bytes is not None else capacity_bytes
        self._gates = gates
        self.lower = lower
        self._policy = policy if policy is not None else Lru(capacity_bytes)
        self._used = 0
        self._objects = 0  # part of `_used` outside the arena
        self._probed_at = 0  # `_objects` at the last probe
        self._receiving = 0  # bytes being received
        self._pinned = 0  # cost of held entries, removed or not
        self._gone = 0  # cost of held entries that were removed
        self._entries: dict[bytes, Entry] = {}
        self._ends: dict[int, set[bytes]] = {}
        self._swept_to: int | None = None
        self._resized_at = 0.0
        self._trimming = False

    def acquire(self, key: bytes, now: float) -> Hold | DiskValue | None:
        entry = self._alive(key, now)
        if entry is None:
            return None if self.lower is None else self.lower.find(key, now)
        self._use(key)
        return self._hold(entry)

    def peek(self, key: bytes, now: float) -> StoreFacts | None:
        entry = self._alive(key, now)
        if entry is None:
            return None if self.lower is None else self.lower.peek(key, now)
        return StoreFacts(entry.length, entry.cost)

    def touch(self, key: bytes, now: float) -> bool:
        if self._alive(key, now) is None:
            return self.lower is not None and self.lower.peek(key, now) is not None
        self._use(key)
        return True

    def ttl(self, key: bytes, now: float) -> float | None:
        entry = self._alive(key, now)
        if entry is None:
            return None if self.lower is None else self.lower.ttl(key, now)
        return entry.ends_at - now

    def keys(self) -> Iterator[bytes]:
        yield from self._entries
        if self.lower is not None:
            yield from (key for key in self.lower.walk() if key not in self._entries)

    def usage(self) -> StoreUsage:
        return StoreUsage(
            self._used, self._capacity, len(self._entries), self._gone, self._receiving
        )

    def room(
        self, key: bytes, length: int, now: float, condition: Condition
    ) -> WriteReservation | Declined:
        declined = self._unmet(key, now, condition)
        if declined is not None:
            return declined
        if self._receiving + length > self._receiving_limit:
            return Declined(DeclineReason.BACKPRESSURE, "too many bytes are being received at once")
        cost = len(key) + self.arena.cost(length) + ENTRY_BYTES
        declined = self._make_room(key, cost, now)
        if declined is not None:
            return declined
        extents = self.arena.take(length)
        if extents is None:
            self._do_with_less(now)
            return Declined(DeclineReason.BACKPRESSURE, "the system has too little shared memory")
        self._used += cost
        self._objects += len(key) + ENTRY_BYTES
        self._pinned += cost
        self._receiving += length
        return IncomingEntry(self, key, Entry(length, cost, None, extents))

    def put(
        self,
        key: bytes,
        value: bytes | bytearray | memoryview,
        *,
        now: float,
        ttl_s: float | None,
        condition: Condition,
    ) -> Declined | None:
        length = len(value)
        if length >= LONG_BYTES:
            return self._put_long(key, memoryview(value), now, ttl_s, condition)
        declined = self._unmet(key, now, condition)
        if declined is not None:
            return declined
        entry = Entry(length, len(key) + length + ENTRY_BYTES, bytes(value))
        declined = self._make_room(key, entry.cost, now)
        if declined is not None:
            return declined
        self._used += entry.cost
        self._objects += entry.cost
        self._insert(key, entry, now, ttl_s)
        return None

    def _put_long(
        self, key: bytes, value: memoryview, now: float, ttl_s: float | None, condition: Condition
    ) -> Declined | None:
        room = self.room(key, len(value), now, condition)
        if isinstance(room, Declined):
            return room
        place = 0
        for view in room.views:
            view[:] = value[place : place + len(view)]
            place += len(view)
        return room.commit(now, ttl_s, condition)

    def drop(self, key: bytes, now: float) -> bool:
        below = self.lower is not None and self.lower.drop(key)
        if self._alive(key, now) is None:
            return below
        self._policy.removed(key)
        self._remove(key, None)
        return True

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        below = self.lower is not None and self.lower.expire(key, ttl_s, now)
        entry = self._alive(key, now)
        if entry is None:
            return below
        self._forget_end(key, entry)
        entry.ends_at = math.inf if ttl_s is None else now + ttl_s
        self._plan_end(key, entry)
        return True

    def clear(self, now: float, namespace: str | None = None) -> int:
        going = [
            key
            for key in self._entries
            if namespace is None or block_keys.parse_namespace(key) == namespace
        ]
        for key in going:
            self._evict(key, EvictionReason.ADMIN, now)
        below = 0 if self.lower is None else self.lower.clear(namespace)
        return len(going) + below

    def hand_down(self, key: bytes, now: float) -> None:
        """Move a value to the lower tier before its eviction."""
        if self._alive(key, now) is not None:
            self._evict(key, EvictionReason.CAPACITY, now)

    def resize(self, capacity_bytes: int, now: float) -> Declined | None:
        most = self.arena.limit_bytes
        if capacity_bytes > most:
            return Declined(
                DeclineReason.TOO_LARGE, f"this node can be grown to {most} bytes without a restart"
            )
        self._set_capacity(capacity_bytes, now)
        self.arena.resize(capacity_bytes)
        return None

    def shed(self, now: float) -> None:
        """Do with an eighth less from now on, as the system has no more memory."""
        self._set_capacity(self._used - self._used // 8, now)

    def _set_capacity(self, capacity_bytes: int, now: float) -> None:
        self._capacity = capacity_bytes
        self._policy.resize(capacity_bytes)
        self._resized_at = now
        self._trim()

    def _trim(self) -> None:
        """Evict down to a reduced capacity; held values follow on release."""
        if self._trimming:
            return
        self._trimming = True
        try:
            while self._used > self._capacity:
                victim = self._policy.victim()
                if victim is None:
                    break
                when = max(self._resized_at, self._entries[victim].born_at)
                self._evict(victim, EvictionReason.CAPACITY, when)
        finally:
            self._trimming = False

    def _do_with_less(self, now: float) -> None:
        """Adjust to an arena that shrank for lack of system memory."""
        log.error(
            "Memory limited to %d bytes instead of %d", self.arena.capacity_bytes, self._capacity
        )
        self._set_capacity(self.arena.capacity_bytes, now)

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

    def _unmet(self, key: bytes, now: float, condition: Condition) -> Declined | None:
        """Return the unmet condition, if any. The check counts as a use of an existing key."""
        if condition is Condition.ALWAYS:
            return None
        there = self.touch(key, now)
        if there and condition is Condition.ABSENT:
            return Declined(DeclineReason.EXISTS)
        if not there and condition is Condition.PRESENT:
            return Declined(DeclineReason.ABSENT)
        return None

    def _make_room(self, key: bytes, cost: int, now: float) -> Declined | None:
        """Evict until `cost` more bytes fit; return None on success."""
        if cost > self._capacity:
            text = f"{cost} bytes in a store of {self._capacity}"
            return Declined(DeclineReason.TOO_LARGE, text)
        if self._pinned + cost > self._capacity:  # evicting everything else would not suffice
            return Declined(DeclineReason.BACKPRESSURE, "readers and writers hold the memory")
        for gate in self._gates:
            declined = gate.refuses(key, cost, now)
            if declined is not None:
                return declined
        if self._objects > self._probed_at + _PROBE_EVERY_BYTES:
            bytes(_PROBE_BYTES)
            self._probed_at = self._objects
        self._uncrowd(key, cost, now)
        spared = 0
        while self._used + cost > self._capacity - self._spare_bytes:
            victim = self._policy.victim()
            if victim is None and self._used + cost <= self._capacity:
                break
            if victim is None:
                return Declined(DeclineReason.BACKPRESSURE, "readers and writers hold the memory")
            if self._entries[victim].holds and spared < _MAX_SKIPPED:
                self._policy.used(victim)  # held: move it to the end
                spared += 1
                continue
            self._evict(victim, EvictionReason.CAPACITY, now)
        return None

    @property
    def _spare_bytes(self) -> int:
        return 0 if self.lower is None else self.lower.spare_bytes

    def _uncrowd(self, key: bytes, cost: int, now: float) -> None:
        for gate in self._gates:
            while True:
                there = self._entries.get(key)  # the new value takes its place
                more = cost if there is None else cost - there.cost
                victim = gate.crowded(key, more)
                if victim is None:
                    break
                self._evict(victim, EvictionReason.QUOTA, now)

    def give_up(self, entry: Entry) -> None:
        self._receiving -= entry.length
        self._pinned -= entry.cost
        self._free(entry)

    def settle(
        self, key: bytes, entry: Entry, now: float, ttl_s: float | None, condition: Condition
    ) -> Declined | None:
        declined = self._unmet(key, now, condition)
        if declined is not None:
            self.give_up(entry)
            return declined
        self._receiving -= entry.length
        self._pinned -= entry.cost
        self._insert(key, entry, now, ttl_s)
        self._trim()
        return None

    def _insert(self, key: bytes, entry: Entry, now: float, ttl_s: float | None) -> None:
        """Insert an entry whose cost is already in `_used`."""
        if key in self._entries:
            self._policy.removed(key)
            self._remove(key, None)
        self._uncrowd(key, entry.cost, now)  # its namespace may have grown meanwhile
        if self.lower is not None:
            self.lower.drop(key)
        entry.born_at = now
        entry.ends_at = math.inf if ttl_s is None else now + ttl_s
        try:
            self._entries[key] = entry
            self._plan_end(key, entry)
            self._policy.added(key, entry.cost)
        except MemoryError:
            self._entries.pop(key, None)
            self._forget_end(key, entry)
            self._policy.removed(key)
            self._free(entry)
            raise
        for gate in self._gates:
            gate.added(key, entry.cost)

    def _hold(self, entry: Entry) -> Hold:
        entry.holds += 1
        if entry.holds == 1:
            self._pinned += entry.cost
        return HeldEntry(self, entry)

    def let_go(self, entry: Entry) -> None:
        entry.holds -= 1
        if entry.holds:
            return
        self._pinned -= entry.cost
        if entry.gone:
            self._gone -= entry.cost
            self._free(entry)

    def _free(self, entry: Entry) -> None:
        self._used -= entry.cost
        self._objects -= entry.cost - (self.arena.cost(entry.length) if entry.extents else 0)
        self._probed_at = min(self._probed_at, self._objects)
        if entry.extents:
            self.arena.give(entry.extents)
            if self.arena.capacity_bytes > self._capacity:  # shrunk while the entry was held
                self.arena.resize(self._capacity)

    def _use(self, key: bytes) -> None:
        self._policy.used(key)
        for gate in self._gates:
            gate.used(key)

    def _alive(self, key: bytes, now: float) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.ends_at <= now:
            self._evict(key, EvictionReason.TTL, now)
            return None
        return entry

    def _evict(self, key: bytes, reason: EvictionReason, now: float) -> None:
        entry = self._entries[key]
        hold = None
        if reason in (EvictionReason.CAPACITY, EvictionReason.QUOTA):
            self._policy.evicted(key)
            hold = None if self.lower is None else self._hold(entry)
        else:
            self._policy.removed(key)
        self._remove(key, reason)
        self._on_evict(reason, now - entry.born_at)
        if hold is not None and self.lower is not None:
            self.lower.offer(key, hold, entry.ends_at)

    def _remove(self, key: bytes, reason: EvictionReason | None) -> None:
        """Remove an entry already removed from the policy."""
        entry = self._entries.pop(key)
        self._forget_end(key, entry)
        entry.gone = True
        if entry.holds:
            self._gone += entry.cost
        else:
            self._free(entry)
        for gate in self._gates:
            gate.left(key, entry.cost, reason)

    def _plan_end(self, key: bytes, entry: Entry) -> None:
        if entry.ends_at != math.inf:
            second = int(entry.ends_at)
            self._ends.setdefault(second, set()).add(key)
            if self._swept_to is not None:  # a key may be stored already expired
                self._swept_to = min(self._swept_to, second)

    def _forget_end(self, key: bytes, entry: Entry) -> None:
        if entry.ends_at == math.inf:
            return
        second = int(entry.ends_at)
        bucket = self._ends.get(second)
        if bucket is not None:
            bucket.discard(key)
            if not bucket:
                del self._ends[second]
