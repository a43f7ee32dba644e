"""The threads which read: every value is checked before one byte of it is sent.

Reading pulls the value into the system's cache, so that the loop's sendfile afterwards does not
wait for the disk; or, where memory was made for it, into that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from cachetier.engine.disk.format import FormatError, Record
from cachetier.engine.disk.mailbox import Mailbox
from cachetier.engine.disk.segment import SegmentFile

THREADS: Final = 4
# Reads asked for and not done: beyond it a disk is so far behind that recomputing is quicker.
MAX_WAITING: Final = 256

# None: the value is what was written. Else why not.
Done = Callable[[FormatError | OSError | None], None]


class Reader:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="l2-disk-reader")
        self.waiting = 0

    @property
    def is_behind(self) -> bool:
        return self.waiting >= MAX_WAITING

    def read(
        self, file: SegmentFile, record: Record, views: Sequence[memoryview] | None, done: Done
    ) -> None:
        self.waiting += 1
        self._pool.submit(self._read, file, record, views, done)

    def _read(
        self, file: SegmentFile, record: Record, views: Sequence[memoryview] | None, done: Done
    ) -> None:
        trouble: FormatError | OSError | None = None
        try:
            file.read(record, views)
        except (FormatError, OSError) as exc:
            trouble = exc
        self._mailbox.put(lambda: self._finish(done, trouble))

    def _finish(self, done: Done, trouble: FormatError | OSError | None) -> None:
        self.waiting -= 1
        done(trouble)

    def close(self) -> None:
        """Reads which were not begun are forgotten."""
        self._pool.shutdown(wait=True, cancel_futures=True)
