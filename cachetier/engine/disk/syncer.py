"""Makes files durable behind the writer's back, which waits only when too much is behind.

Not for the values' sake: what a process wrote outlives it anyway, and after a crash of the machine
nothing is believed. It keeps the system from holding gigabytes which it writes at the worst moment,
and a stop in good order from taking minutes.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from cachetier.engine.disk.segment import SegmentFile

_MAX_BEHIND_BYTES: Final = 256 * 1024 * 1024


class Syncer:
    """The writer's thread only. Its calls raise the OSError of any sync which failed."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="l2-disk-syncer")
        self._syncs: deque[tuple[SegmentFile, int, Future[None]]] = deque()
        self._behind = 0

    def sync(self, file: SegmentFile, written_bytes: int) -> None:
        """So much was written to it since it was given here last."""
        self._syncs.append((file, written_bytes, self._thread.submit(file.sync)))
        self._behind += written_bytes
        while self._syncs and (self._syncs[0][2].done() or self._behind > _MAX_BEHIND_BYTES):
            self._finish_first()

    def forget(self, file: SegmentFile) -> None:
        """It is about to be closed: nothing may be under way on it."""
        for _, _, sync in [one for one in self._syncs if one[0] is file]:
            if not sync.cancel():
                sync.exception()

    def _finish_first(self) -> None:
        _, written_bytes, sync = self._syncs.popleft()
        self._behind -= written_bytes
        if not sync.cancelled():
            sync.result()

    def forget_all(self) -> None:
        """One failed: what the others say changes nothing."""
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
