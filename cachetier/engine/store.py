"""The waist between the protocol and whatever keeps values: few verbs, no protocol words.

Values are never changed once stored. They are not handed out as bytes but held where they lie
(`Hold`), and not handed in as bytes but received into a place made for them (`Room`): whoever
speaks to sockets moves every byte once. `now` is the caller's monotonic clock in seconds, so that a
store needs none of its own. One thread only, `Hold.release` too (a disk tier's thread hands holds
back to the loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

# The smallest value which is received into a place of its own and sent from it. A shorter one is
# cheaper to copy than to look after, and is kept as plain bytes.
LONG_BYTES = 16 * 1024


class Condition(StrEnum):
    """When a value may be put."""

    ALWAYS = "always"
    ABSENT = "absent"
    PRESENT = "present"


class EvictionReason(StrEnum):
    CAPACITY = "capacity"
    TTL = "ttl"
    ADMIN = "admin"
    QUOTA = "quota"  # its namespace needed room within its own share


class DeclineReason(StrEnum):
    """Why a store declined a value. The first two are no failures: a condition was not met."""

    EXISTS = "exists"  # asked for a key that is absent
    ABSENT = "absent"  # asked for a key that is present
    TOO_LARGE = "too_large"  # an empty store could not hold it
    BACKPRESSURE = "backpressure"  # too much is being received, or is held by readers
    QUOTA = "quota"  # its namespace has had its share
    ADMISSION = "admission"  # it would only thrash


@dataclass(frozen=True, slots=True)
class Declined:
    reason: DeclineReason
    detail: str = ""  # for the client's eyes: the numbers, and the remedy


class Hold:
    """A value pinned in place: until `release`, its bytes are neither changed nor used again, also
    when the entry has been evicted, dropped or overwritten meanwhile.

    `views` are read-only and together are the value. `extents` are the same as (offset, length) in
    the arena; None for a value which does not lie there. To release twice is harmless.
    """

    __slots__ = ("_on_release", "extents", "length", "views")

    def __init__(
        self,
        views: Sequence[memoryview],
        length: int,
        on_release: Callable[[], None] | None = None,
        extents: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.views = views
        self.length = length
        self.extents = extents
        self._on_release = on_release

    def release(self) -> None:
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    def tobytes(self) -> bytes:
        """A copy: for short values and for tests."""
        return b"".join(self.views)


class DiskValue(Protocol):
    """A value in a file, pinned there until `release`; sent with sendfile once `fetch` said that it
    is what was written."""

    @property
    def fd(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def deserves_memory(self) -> bool:
        """Whether it is used so often that it should be brought up."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether it is still the key's value."""
        ...

    def fetch(
        self, done: Callable[[bool], None], views: Sequence[memoryview] | None = None
    ) -> None:
        """Read and check it in another thread, into `views` or only into the system's cache. `done`
        is called on the loop's thread: False means that it is gone for good. `views` must stay as
        they are until then, also when the value is released meanwhile."""
        ...

    def bring_up(self, commit: Callable[[], Declined | None]) -> bool:
        """Whether `commit`, which makes these bytes the key's value above, did so; they stay here
        as well."""
        ...

    def release(self) -> None: ...


class WriteReservation(Protocol):
    """A place for one value that is being received. Ends by exactly one of `commit` or `abandon`;
    a second end is harmless."""

    @property
    def views(self) -> Sequence[memoryview]:
        """Writable; together `length` bytes."""
        ...

    @property
    def length(self) -> int: ...

    def commit(self, now: float, ttl_s: float | None, condition: Condition) -> Declined | None:
        """Make it the key's value (None), unless the condition does not hold by now."""
        ...

    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What is known of a value without touching it; `cost` is what it takes of the capacity."""

    length: int
    cost: int
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """`used_bytes` counts everything that takes room: entries, values being received, and values
    which left but are still held by a reader (`held_bytes` of it)."""

    used_bytes: int
    capacity_bytes: int
    entries: int
    held_bytes: int = 0
    receiving_bytes: int = 0


class Store(Protocol):
    def look(self, key: bytes, now: float) -> Hold | DiskValue | None:
        """The value, pinned, counted as a use. The caller must release it."""
        ...

    def peek(self, key: bytes, now: float) -> StoreFacts | None:
        """What is known of it, not counted as a use."""
        ...

    def touch(self, key: bytes, now: float) -> bool:
        """Whether the key is there, counted as a use."""
        ...

    def room(
        self, key: bytes, length: int, now: float, condition: Condition
    ) -> WriteReservation | Declined:
        """A place to receive a value of exactly `length` bytes; makes room by evicting. ALWAYS
        where the condition is not known yet: `commit` is told it again."""
        ...

    def put(
        self,
        key: bytes,
        value: bytes | bytearray | memoryview,
        *,
        now: float,
        ttl_s: float | None,
        condition: Condition,
    ) -> Declined | None:
        """A value that is there already, at once: None when stored. A copy, so for short ones."""
        ...

    def drop(self, key: bytes, now: float) -> bool:
        """Whether the key was there."""
        ...

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        """Set or (None) clear when a key ends; whether it is there."""
        ...

    def ttl(self, key: bytes, now: float) -> float | None:
        """Seconds left, infinite for a key without end, None if it is not there."""
        ...

    def keys(self) -> Iterator[bytes]:
        """Every key, some perhaps already past their time."""
        ...

    def sweep(self, now: float) -> int:
        """Drop what is past its time; how many were."""
        ...

    def clear(self, now: float, namespace: str | None = None) -> int:
        """Drop everything, or one namespace's; how many were."""
        ...

    def usage(self) -> StoreUsage: ...

    def resize(self, capacity_bytes: int, now: float) -> Declined | None:
        """Evicts what no longer fits. What readers hold leaves when they release it, so that
        `usage()` may show more than the new capacity until then, and never again after."""
        ...


class Gate(Protocol):
    """Asked before room is made; told of every change of what is in memory, so that it can keep
    exact accounts. Quotas and admission are gates, and so is who counts by namespace."""

    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None: ...

    def crowded(self, key: bytes, cost: int) -> bytes | None:
        """Who must go first, whether or not there is room, for `key` to take `cost` bytes more;
        None: nobody. Asked until it says so, when a value is announced and when it is there."""
        ...

    def added(self, key: bytes, cost: int) -> None: ...
    def used(self, key: bytes) -> None: ...

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        """None: deleted, or another value takes its place."""
        ...


class Lower(Protocol):
    """The tier below memory, if there is one."""

    @property
    def spare_bytes(self) -> int:
        """How much memory to keep free, for the values which are on their way down to leave it
        before others need the place; less what those take now."""
        ...

    def offer(self, key: bytes, hold: Hold, ends_at: float) -> None:
        """A value leaves memory for want of room. Takes the hold over and must release it, on the
        loop's thread; until then its bytes count as used. Bounded: may release at once (dropped).
        `ends_at` is on the monotonic clock, infinite for none."""
        ...

    def find(self, key: bytes, now: float) -> Hold | DiskValue | None: ...
    def peek(self, key: bytes, now: float) -> StoreFacts | None: ...
    def ttl(self, key: bytes, now: float) -> float | None: ...
    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool: ...
    def walk(self) -> Iterator[bytes]: ...

    def drop(self, key: bytes) -> bool:
        """Also called for a key newly stored above, and then for what is still on its way down."""
        ...

    def clear(self, namespace: str | None) -> int: ...
