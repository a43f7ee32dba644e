"""Disk reader and sync threads, and the mailbox that returns results to the event loop.

Every value is verified before it is sent. A read fills the page cache, so that sendfile does not
wait for the disk, or the memory reserved for the value.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from cachetier.engine.disk.format import FormatError, Record
from cachetier.engine.disk.segment import SegmentFile

log = logging.getLogger(__name__)

Call = Callable[[], None]
# Schedule a call on the event loop: loop.call_soon_threadsafe.
Post = Callable[[Call], object]


class Mailbox:
    def __init__(self, post: Post) -> None:
        self._post = post
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()
        self._is_posted = False

    def put(self, call: Call) -> None:
        """Queue a call. Thread-safe."""
        with self._lock:
            self._calls.append(call)
            wake, self._is_posted = not self._is_posted, True
        if wake:
            try:
                self._post(self._deliver)
            except RuntimeError:  # loop closed: the result is not needed
                return

    def _deliver(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._is_posted = False
        for call in calls:
            try:
                call()
            except Exception:  # one failing callback must not block the others
                log.exception("Disk callback failed")


THREADS: Final = 4
# Maximum queued reads; beyond it recomputing is faster than the disk.
MAX_QUEUED_READS: Final = 256

# None: verified. Otherwise the reason.
Done = Callable[[FormatError | OSError | None], None]


class Reader:
    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="l2-disk-reader")
        self.waiting = 0

    @property
    def is_behind(self) -> bool:
        return self.waiting >= MAX_QUEUED_READS

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
        """Stop; drop queued reads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


_MAX_UNSYNCED_BYTES: Final = 256 * 1024 * 1024


class Syncer:
    """Background fsync. Writer thread only; calls raise the OSError of any failed sync."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="l2-disk-syncer")
        self._syncs: deque[tuple[SegmentFile, int, Future[None]]] = deque()
        self._behind = 0

    def sync(self, file: SegmentFile, written_bytes: int) -> None:
        """Count bytes written to the file and sync when due."""
        self._syncs.append((file, written_bytes, self._thread.submit(file.sync)))
        self._behind += written_bytes
        while self._syncs and (self._syncs[0][2].done() or self._behind > _MAX_UNSYNCED_BYTES):
            self._finish_first()

    def forget(self, file: SegmentFile) -> None:
        """Wait for syncs of a file that is about to be closed."""
        for synced, _, sync in self._syncs:
            if synced is file and not sync.cancel():
                sync.exception()

    def _finish_first(self) -> None:
        _, written_bytes, sync = self._syncs.popleft()
        self._behind -= written_bytes
        if not sync.cancelled():
            sync.result()

    def forget_all(self) -> None:
        """Drop all syncs after a failure; other results do not matter."""
        for _, _, sync in self._syncs:
            if not sync.cancel():
                sync.exception()
        self._syncs.clear()
        self._behind = 0

    def close(self) -> None:
        try:
            while self._syncs:
                self._finish_first()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)
