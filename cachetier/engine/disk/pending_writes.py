"""Values on their way to disk, as the loop sees them: found, cancelled, released when written.

The loop's thread only; what is shared with the writer's thread is so under the lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from cachetier.engine.disk.writer import Write


class PendingWrites:
    """At most one write for a key stands; one which was cancelled ends without being heard."""

    def __init__(self, lock: threading.Lock) -> None:
        self.lock = lock
        self.waiting_bytes = 0  # held in memory until written
        self._writes: dict[bytes, Write] = {}
        self._held: set[Write] = set()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._writes)

    def get(self, key: bytes) -> Write | None:
        return self._writes.get(key)

    def value(self, key: bytes, now_ms: int) -> Write | None:
        """One which can be read from memory meanwhile."""
        write = self._writes.get(key)
        return write if write is not None and write.hold and write.ends_ms > now_ms else None

    def add(self, write: Write) -> None:
        self._writes[write.key] = write
        if write.hold is not None:
            self._held.add(write)
            self.waiting_bytes += write.length

    def cancel(self, key: bytes) -> Write | None:
        """It will not count; if it does already, its `place` says where to wipe it."""
        write = self._writes.pop(key, None)
        if write is not None:
            with self.lock:
                write.cancelled = True
        return write

    def ended(self, write: Write) -> bool:
        """The writer is done with it. Whether it still stood."""
        stood = self._writes.get(write.key) is write
        if stood:
            del self._writes[write.key]
        write.ended = True
        self.let_go(write)
        return stood

    def let_go(self, write: Write) -> None:
        """Release its hold once neither the writer nor a reader needs it."""
        if not write.ended or write.readers or write.hold is None:
            return
        self._held.discard(write)
        self.waiting_bytes -= write.length
        hold, write.hold, write.views = write.hold, None, None
        hold.release()

    def end_all(self) -> None:
        """The writer is gone."""
        self._writes.clear()
        for write in list(self._held):
            write.ended = True
            self.let_go(write)
