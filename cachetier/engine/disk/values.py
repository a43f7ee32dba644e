"""Values handed out by the disk tier: pinned in their segment, or still being written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cachetier.engine.disk.format import FormatError, Record
from cachetier.engine.disk.index import Segment
from cachetier.engine.disk.writer import Write
from cachetier.engine.store import Declined, Hold

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
    """Disk value, pinned until `release`: its file stays open even if removed."""

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
        """Read and verify on another thread, into `views` or the page cache, then call `done` with
        the result.

        A corrupt value is dropped. `views` must stay valid until then, even after `release`.
        """
        tier, segment = self._tier, self._segment
        segment.pins += 1

        def read(trouble: FormatError | OSError | None) -> None:
            tier.was_read(segment, self.record, trouble)
            tier.unpin(segment)
            done(trouble is None)

        tier.read(segment, self.record, views, read)

    def bring_up(self, commit: Callable[[], Declined | None]) -> bool:
        """Return whether `commit` stored these bytes in memory."""
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
