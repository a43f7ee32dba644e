"""Store interface between the protocol and value storage.

Values are immutable. They are read in place (`Hold`) and received in place (`WriteReservation`), so
that every byte is moved once. `now` is the caller's monotonic clock in seconds. One thread only,
including `Hold.release` (disk threads return holds to the event loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from cachetier.wire.frames import Landing

# Minimum length of values received and sent in place; shorter ones are cheaper to copy and are kept
# as plain bytes.
LONG_BYTES = 16 * 1024


class Condition(StrEnum):
    ALWAYS = "always"
    ABSENT = "absent"
    PRESENT = "present"


class EvictionReason(StrEnum):
    CAPACITY = "capacity"
    TTL = "ttl"
    ADMIN = "admin"
    QUOTA = "quota"  # its namespace exceeded its quota


class DeclineReason(StrEnum):
    """Reason a store declined a value. The first two are unmet conditions, not failures."""

    EXISTS = "exists"  # the key had to be absent
    ABSENT = "absent"  # the key had to be present
    TOO_LARGE = "too_large"  # exceeds the capacity of an empty store
    BACKPRESSURE = "backpressure"  # too many bytes are being received or held by readers
    QUOTA = "quota"  # namespace quota used up
    ADMISSION = "admission"  # namespace only thrashes


@dataclass(frozen=True, slots=True)
class Declined:
    reason: DeclineReason
    detail: str = ""  # numbers and fix, shown to the client


class Hold:
    """Value pinned in place: until `release`, its bytes are neither changed nor reused, even after
    eviction or overwrite.

    `views` are read-only and together the value. `extents` are the same as (offset, length) in the
    arena; None outside the arena. A second release is harmless.
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
        """Return a copy, for short values."""
        return b"".join(self.views)


class DiskValue(Protocol):
    """Value pinned in a file until `release`; sent with sendfile after `fetch` verified it."""

    @property
    def fd(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def deserves_memory(self) -> bool:
        """Return whether it is used often enough to be promoted to memory."""
        ...

    @property
    def is_current(self) -> bool: ...

    def fetch(
        self, done: Callable[[bool], None], views: Sequence[memoryview] | None = None
    ) -> None:
        """Read and verify on another thread, into `views` or the page cache.

        `done` is called on the event loop; False means the value was dropped. `views` must stay
        valid until then, even after `release`.
        """
        ...

    def bring_up(self, commit: Callable[[], Declined | None]) -> bool:
        """Return whether `commit` stored these bytes in memory; the disk copy stays."""
        ...

    def release(self) -> None: ...


class WriteReservation(Landing, Protocol):
    """Space for one incoming value, ended by `commit` or `abandon`; a second end is harmless."""

    def commit(self, now: float, ttl_s: float | None, condition: Condition) -> Declined | None:
        """Make it the key's value (None), unless the condition is unmet by now."""
        ...

    def abandon(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Metadata of a value; `cost` is its share of the capacity."""

    length: int
    cost: int
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Store usage; `used_bytes` includes incoming values and `held_bytes` of removed ones."""

    used_bytes: int
    capacity_bytes: int
    entries: int
    held_bytes: int = 0
    receiving_bytes: int = 0


class Store(Protocol):
    def acquire(self, key: bytes, now: float) -> Hold | DiskValue | None:
        """Return the value, pinned and counted as a use. The caller must release it."""
        ...

    def peek(self, key: bytes, now: float) -> StoreFacts | None:
        """Return metadata without counting a use."""
        ...

    def touch(self, key: bytes, now: float) -> bool: ...

    def room(
        self, key: bytes, length: int, now: float, condition: Condition
    ) -> WriteReservation | Declined:
        """Reserve `length` bytes, evicting as needed. ALWAYS defers the condition to `commit`."""
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
        """Store a copy of a short value; None when stored."""
        ...

    def drop(self, key: bytes, now: float) -> bool:
        """Drop the key; return whether it existed."""
        ...

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        """Set or (None) clear the expiry; return whether the key exists."""
        ...

    def ttl(self, key: bytes, now: float) -> float | None:
        """Return the seconds left, infinite without expiry, None if absent."""
        ...

    def keys(self) -> Iterator[bytes]:
        """Yield every key, possibly expired ones too."""
        ...

    def sweep(self, now: float) -> int:
        """Drop expired keys; return their number."""
        ...

    def clear(self, now: float, namespace: str | None = None) -> int:
        """Drop everything or one namespace; return the number of keys."""
        ...

    def usage(self) -> StoreUsage: ...

    def resize(self, capacity_bytes: int, now: float) -> Declined | None:
        """Evict down to the capacity. `usage()` may exceed it until readers release their holds."""
        ...


class Gate:
    """Gate before insertions, notified of every change in memory: quotas, admission, census."""

    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None:  # noqa: ARG002
        return None

    def crowded(self, key: bytes, cost: int) -> bytes | None:  # noqa: ARG002
        """Return a key to evict before `key` takes `cost` bytes; repeated until None."""
        return None

    def added(self, key: bytes, cost: int) -> None: ...
    def used(self, key: bytes) -> None: ...

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        """Record a removal; `reason` None: deleted or replaced."""


class LowerTier(Protocol):
    @property
    def spare_bytes(self) -> int:
        """Return the memory reserved for values being demoted, less their current use."""
        ...

    def offer(self, key: bytes, hold: Hold, ends_at: float) -> None:
        """Offer an evicted value, taking ownership of the hold.

        It must be released on the event loop and counts as used until then. A full queue may
        release it at once (dropped). `ends_at` is monotonic, infinite without expiry.
        """
        ...

    def find(self, key: bytes, now: float) -> Hold | DiskValue | None: ...
    def peek(self, key: bytes, now: float) -> StoreFacts | None: ...
    def ttl(self, key: bytes, now: float) -> float | None: ...
    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool: ...
    def walk(self) -> Iterator[bytes]: ...

    def drop(self, key: bytes) -> bool:
        """Drop the key, pending writes included; also called when it is newly stored in memory."""
        ...

    def clear(self, namespace: str | None) -> int: ...
