"""Disk writer thread: records, moves, seals, file removal, and recovery after a failure.

The end of each piece of work is reported through `Events`, on the event loop, in order. After a
failed write the writer is halted: all work fails at once until `retry` succeeds.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, TypeVar

from cachetier.engine.disk.folder import DiskFolder, FolderInUseError
from cachetier.engine.disk.format import FormatError, Record, value_crc
from cachetier.engine.disk.health import GoneError
from cachetier.engine.disk.segment import SegmentFile, SyncError
from cachetier.engine.disk.threads import Mailbox, Syncer
from cachetier.engine.store import Hold

log = logging.getLogger(__name__)

# Bytes per sync.
_SYNC_BYTES: Final = 64 * 1024 * 1024
_NO_WORK: Final[deque[Write]] = deque()
T = TypeVar("T")


class WriteOutcome(StrEnum):
    WRITTEN = "written"
    CANCELLED = "cancelled"
    DOWN = "down"  # disk not writable
    NO_ROOM = "no_room"  # for a move: other segments must be removed first
    CORRUPT = "corrupt"  # source record of a move is corrupt


@dataclass(slots=True, eq=False)
class Write:
    """Pending write: the bytes under `hold`, or a record moved from `source`.

    `cancelled`, `ends_ms` and `place` are shared with the writer thread under the lock; `hold`,
    `readers` and `ended` belong to the event loop.
    """

    key: bytes
    length: int
    ends_ms: int
    hold: Hold | None = None
    source: tuple[SegmentFile, Record] | None = None
    views: Sequence[memoryview] | None = field(init=False)
    readers: int = 0
    ended: bool = False
    cancelled: bool = False
    place: tuple[SegmentFile, Record] | None = None
    outcome: WriteOutcome = WriteOutcome.CANCELLED

    def __post_init__(self) -> None:
        self.views = None if self.hold is None else self.hold.views


class Events(Protocol):
    """Writer callbacks, on the event loop."""

    def opened(self, file: SegmentFile, free_bytes: int) -> None: ...
    def finished(self, file: SegmentFile, size: int) -> None: ...
    def closed(self, file: SegmentFile) -> None: ...
    def ended(self, write: Write) -> None: ...
    def worked(self) -> None: ...
    def failed(self, error: OSError, doing: str) -> None: ...
    def short(self) -> None: ...


class Writer:
    """Writer thread; `lock` guards shared fields of Writes, `files` are the existing segments."""

    def __init__(
        self,
        folder: DiskFolder | None,
        path: Path,
        capacity_bytes: int,
        segment_bytes: int,
        lock: threading.Lock,
        mailbox: Mailbox,
        events: Events,
        files: Sequence[SegmentFile],
    ) -> None:
        self._folder = folder
        self._path = path
        self._device = None if folder is None else folder.device
        self._capacity = capacity_bytes
        self._segment_bytes = segment_bytes
        self._lock = lock
        self._mailbox = mailbox
        self._events = events
        self._files: dict[SegmentFile, int] = {file: file.size for file in files}
        self._next_number = max((file.number for file in files), default=0) + 1
        self._active: SegmentFile | None = None
        self._leftovers: list[SegmentFile] = []  # to remove before any write
        self._syncer = Syncer()
        self._since_sync = 0
        self._is_doubtful = False
        self.halted = folder is None
        self._urgent: deque[Callable[[], None]] = deque()
        self._writes: deque[Write] = deque()
        self._moves: deque[Write] = deque()
        self._moved_last = False
        self._is_short = False  # values wait until a segment is removed
        self._wake = threading.Condition()
        self._stop_at: float | None = None
        self._thread = threading.Thread(target=self._run, name="l2-disk-writer", daemon=True)
        self._thread.start()

    def write(self, write: Write) -> None:
        self._queue(self._writes, write)

    def move(self, write: Write) -> None:
        self._queue(self._moves, write)

    def remove(self, file: SegmentFile) -> None:
        self._queue(self._urgent, lambda: self._remove(file))

    def retry(self) -> None:
        self._queue(self._urgent, self._retry)

    def check(self) -> None:
        self._queue(self._urgent, self._check)

    def stop(self, finish_s: float) -> None:
        """Finish queued work for up to `finish_s` seconds and close the folder cleanly."""
        with self._wake:
            self._stop_at = time.monotonic() + finish_s
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _queue(self, queue: deque[T], piece: T) -> None:
        with self._wake:
            queue.append(piece)
            self._wake.notify()

    def _run(self) -> None:
        while True:
            piece = self._next()
            if piece is None:
                break
            if isinstance(piece, Write):
                self._write(piece)
            else:
                piece()
        self._leave()

    def _next(self) -> Write | Callable[[], None] | None:
        """Return the next work item; moves alternate with writes, since they make room for them."""
        with self._wake:
            while True:
                if self._stop_at is not None and time.monotonic() >= self._stop_at:
                    return None
                if self._urgent:
                    return self._urgent.popleft()
                first, second = self._moves, self._writes
                if self._is_short:
                    second = _NO_WORK
                elif self._moved_last:
                    first, second = second, first
                for queue in (first, second):
                    if queue:
                        self._moved_last = queue is self._moves
                        return queue.popleft()
                if self._stop_at is not None:
                    return None
                self._wake.wait()

    def _post_event(self, event: Callable[..., None], *args: object) -> None:
        self._mailbox.put(lambda: event(*args))

    def _write(self, write: Write) -> None:
        """Write one item; a value waits for room, a move does not."""
        outcome = self._try(write)
        if outcome is WriteOutcome.NO_ROOM and write.source is None:
            self._is_short = True
            self._writes.appendleft(write)
            self._post_event(self._events.short)
            return
        write.outcome = outcome
        self._post_event(self._events.ended, write)

    def _try(self, write: Write) -> WriteOutcome:
        if write.cancelled:
            return WriteOutcome.CANCELLED
        try:
            return WriteOutcome.DOWN if self.halted else self._append(write)
        except FormatError:
            return WriteOutcome.CORRUPT
        except OSError as exc:
            self._halt(exc, "writing")
        except Exception:  # a dead thread would silently hold memory forever
            log.exception("Disk writer failed with an internal error; pausing writes")
            self._halt(OSError(errno.EIO, os.strerror(errno.EIO)), "handling an internal error")
        return WriteOutcome.DOWN

    def _append(self, write: Write) -> WriteOutcome:
        file = self._file_for(write)
        if file is None:
            return WriteOutcome.NO_ROOM
        if write.source is not None:
            record = file.copy(*write.source)
        else:
            assert write.views is not None
            record = file.append(write.key, write.views, write.length, value_crc(write.views))
        with self._lock:
            if write.cancelled:
                return WriteOutcome.CANCELLED
            file.commit(record.slot, write.ends_ms, record.crc)
            write.place = (file, record)
            if write.source is not None:  # else a dropped record would return from its new place
                write.source[0].wipe(write.source[1].slot)
        self._since_sync += record.end - record.offset
        if self._since_sync >= _SYNC_BYTES:
            self._sync(file)
        return WriteOutcome.WRITTEN

    def _sync(self, file: SegmentFile) -> None:
        written, self._since_sync = self._since_sync, 0
        self._syncer.sync(file, written)

    def _file_for(self, write: Write) -> SegmentFile | None:
        """Return the active or a new segment; None if there is no room now."""
        active = self._active
        if active is not None and not active.voided and active.fits(write.key, write.length):
            return active
        if active is not None:
            self._finish(active)
        return self._create()

    def _create(self) -> SegmentFile | None:
        if sum(self._files.values()) + self._segment_bytes > self._capacity:
            return None
        assert self._folder is not None
        self._folder.check()
        file = SegmentFile.create(self._path, self._next_number, self._segment_bytes)
        self._next_number += 1
        self._files[file] = self._segment_bytes
        self._active = file
        file_system = os.statvfs(self._path)
        self._post_event(self._events.opened, file, file_system.f_bavail * file_system.f_frsize)
        return file

    def _finish(self, file: SegmentFile) -> None:
        self._active = None
        try:
            if not file.voided:
                file.seal()
                self._sync(file)
        finally:
            self._files[file] = file.size
            self._post_event(self._events.finished, file, file.size)

    def _halt(self, error: OSError, doing: str) -> None:
        self.halted = True
        self._is_short = False
        if isinstance(error, SyncError):
            self._syncer.forget_all()
            self._doubt()
        active, self._active = self._active, None
        if active is not None:
            with contextlib.suppress(OSError):  # truncated when the folder is opened next
                active.cut()
            self._files[active] = active.size
            self._post_event(self._events.finished, active, active.size)
        self._post_event(self._events.failed, error, doing)

    def _doubt(self) -> None:
        """Mark the folder untrusted: a later process cannot tell which records were dropped."""
        self._is_doubtful = True
        if self._folder is not None:
            with contextlib.suppress(OSError):  # the machine is likely to be restarted
                self._folder.disown()

    def _remove(self, file: SegmentFile) -> None:
        if file is self._active:
            self._active = None
        try:
            file.unlink()
        except OSError as exc:
            self._leftovers.append(file)
            self._halt(exc, "removing a segment")
            return
        self._forget(file)

    def _forget(self, file: SegmentFile) -> None:
        self._syncer.forget(file)
        file.close()  # frees the space, which may take a while
        self._files.pop(file, None)
        self._is_short = False
        self._post_event(self._events.closed, file)

    def _check(self) -> None:
        if self._folder is not None and not self.halted:
            try:
                self._folder.check()
            except OSError as exc:
                self._halt(exc, "checking its folder")

    def _retry(self) -> None:
        try:
            self._find_folder()
            leftovers, self._leftovers = self._leftovers, []
            for place, file in enumerate(leftovers):
                try:
                    file.unlink()
                except OSError:
                    self._leftovers = leftovers[place:]
                    raise
                self._forget(file)
            if self._active is not None:
                self._finish(self._active)
            self._create()
        except OSError as exc:
            self._halt(exc, "trying again")
        else:
            self.halted = False
            self._post_event(self._events.worked)

    def _find_folder(self) -> None:
        if self._folder is not None:
            try:
                self._folder.check()
            except GoneError:
                self._folder.close()
                self._folder = None
        if self._folder is None:
            self._folder = self._open_again()

    def _open_again(self) -> DiskFolder:
        """Open and empty the folder: values dropped during the failure must not return."""
        try:
            folder = DiskFolder(self._path)
        except FolderInUseError as exc:
            raise OSError(errno.EBUSY, str(exc)) from None
        if self._device not in (None, folder.device):
            folder.close()  # an unmounted volume leaves a folder of the underlying disk
            raise GoneError(errno.ENODEV, "the folder is on another file system")
        try:
            for path in folder.segments():
                path.unlink()
            folder.mark_in_use()
        except OSError:
            folder.close()
            raise
        return folder

    def _leave(self) -> None:
        try:
            if self._active is not None and not self.halted:
                self._active.seal()
            self._syncer.close()
            for file in self._files:
                if file.unsynced:
                    file.sync()
            fine = not (self.halted or self._leftovers or self._is_doubtful)
            if self._folder is not None and fine:
                self._folder.leave_in_order()
        except OSError as exc:
            log.error("Disk folder was not closed cleanly: %s", exc)
            if isinstance(exc, SyncError):
                self._doubt()
        finally:
            for file in self._files:
                file.close()
            if self._folder is not None:
                self._folder.close()
