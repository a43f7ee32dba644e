"""Values of the disk tier: queued for disk, and handed out.

Event loop only; state shared with the writer thread is guarded by the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from cachetier.engine.disk.format import FormatError, Record
from cachetier.engine.disk.index import Segment
from cachetier.engine.disk.writer import Write
from cachetier.engine.store import Declined, Hold


class PendingWrites:
    """Pending writes, at most one valid per key; cancelled ones end silently."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.waiting_bytes = 0  # in memory until written
        self._writes: dict[bytes, Write] = {}
        self._held: set[Write] = set()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._writes)

    def get(self, key: bytes) -> Write | None:
        return self._writes.get(key)

    def value(self, key: bytes, now_ms: int) -> Write | None:
        """Return the key's write if its value can still be read from memory."""
        write = self._writes.get(key)
        return write if write is not None and write.hold and write.ends_ms > now_ms else None

    def add(self, write: Write) -> None:
        self._writes[write.key] = write
        if write.hold is not None:
            self._held.add(write)
            self.waiting_bytes += write.length

    def cancel(self, key: bytes) -> Write | None:
        """Cancel the key's write; if already committed, its `place` is to be wiped."""
        write = self._writes.pop(key, None)
        if write is not None:
            with self.lock:
                write.cancelled = True
        return write

    def ended(self, write: Write) -> bool:
        """Record that the writer finished; return whether the write was still valid."""
        stood = self._writes.get(write.key) is write
        if stood:
            del self._writes[write.key]
        write.ended = True
        self.let_go(write)
        return stood

    def let_go(self, write: Write) -> None:
        """Release the hold once neither writer nor readers need it."""
        if not write.ended or write.readers or write.hold is None:
            return
        self._held.discard(write)
        self.waiting_bytes -= write.length
        hold, write.hold, write.views = write.hold, None, None
        hold.release()

    def end_all(self) -> None:
        self._writes.clear()
        for write in list(self._held):
            write.ended = True
            self.let_go(write)


# Uses after which a disk value is promoted to memory.
_PROMOTED_AT = 2


class ValueSource(Protocol):
    def is_at(self, segment: Segment, record: Record) -> bool: ...

    def read(
        self,
        segment: Segment,
        record: Record,
        views: Sequence[memoryview] | None,
        done: Callable[[FormatError | OSError | None], None],
    ) -> None: ...

    def was_read(
        self, segment: Segment, record: Record, trouble: FormatError | OSError | None
    ) -> None: ...

    def bring_up(
        self, segment: Segment, record: Record, commit: Callable[[], Declined | None]
    ) -> bool: ...

    def unpin(self, segment: Segment) -> None: ...


class StoredValue:
    """See store.DiskValue; pinned until `release`: its file stays open even if removed."""

    __slots__ = ("_is_released", "_segment", "_tier", "record", "uses")

    def __init__(self, tier: ValueSource, segment: Segment, slot: int) -> None:
        self._tier = tier
        self._segment = segment
        self._is_released = False
        self.record = segment.record(slot)
        self.uses = segment.use(slot)
        segment.pins += 1

    @property
    def fd(self) -> int:
        return self._segment.file.fd

    @property
    def offset(self) -> int:
        return self.record.value_offset

    @property
    def length(self) -> int:
        return self.record.length

    @property
    def deserves_memory(self) -> bool:
        return self.uses >= _PROMOTED_AT

    @property
    def is_current(self) -> bool:
        return self._tier.is_at(self._segment, self.record)

    def fetch(
        self, done: Callable[[bool], None], views: Sequence[memoryview] | None = None
    ) -> None:
        tier, segment = self._tier, self._segment
        segment.pins += 1

        def read(trouble: FormatError | OSError | None) -> None:
            tier.was_read(segment, self.record, trouble)
            tier.unpin(segment)
            done(trouble is None)

        tier.read(segment, self.record, views, read)

    def bring_up(self, commit: Callable[[], Declined | None]) -> bool:
        return self._tier.bring_up(self._segment, self.record, commit)

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._tier.unpin(self._segment)


class SharedHold(Hold):
    """Second hold on a value that is being written."""

    __slots__ = ("_let_go", "_write")

    def __init__(self, write: Write, let_go: Callable[[Write], None]) -> None:
        assert write.hold is not None
        super().__init__(write.hold.views, write.hold.length, self._done)
        self._write = write
        self._let_go = let_go
        write.readers += 1

    def _done(self) -> None:
        self._write.readers -= 1
        self._let_go(self._write)
