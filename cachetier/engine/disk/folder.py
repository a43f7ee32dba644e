"""The folder of a disk tier: whose it is, what is in it, and whether that may be believed.

One process at a time (flock). Everything written by a process which was killed is in the system's
cache and therefore true; after a crash of the machine the latest writes, wipes among them, may be
missing. The `state` file tells the two apart: it names the boot during which the folder was in use,
or says that it was left in good order. What cannot be believed is removed, never served.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
from pathlib import Path
from typing import Final

from cachetier.engine.disk import segment as segments
from cachetier.engine.disk.format import FormatError
from cachetier.engine.disk.health import GoneError
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.segment import RecoveredRecord, SegmentFile

_LOCK: Final = "emberline-l2.lock"
_STATE: Final = "emberline-l2.state"
_CLEAN: Final = "clean"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# What a fresh file system has in it by itself.
_HARMLESS: Final = {"lost+found"}


class InUseError(RuntimeError):
    """The folder cannot be this node's: says why and what to do."""


class Folder:
    """Open and locked once made. Blocking calls."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._refuse_others_files()
            self._lock_fd = self._lock()
        except BaseException:
            os.close(self._fd)
            raise
        self._keep_others_out()

    @property
    def device(self) -> int:
        """Which file system it is on."""
        return os.fstat(self._fd).st_dev

    def _refuse_others_files(self) -> None:
        names = self._names() - _HARMLESS
        if names and _LOCK not in names:
            raise InUseError(
                f"the disk folder {self.path} is not empty and not a cache node's: "
                "give a folder of its own, or empty it"
            )

    def _lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(_LOCK, flags, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise InUseError(
                f"the disk folder {self.path} is in use by another cache node: "
                "give each node a folder of its own"
            ) from None
        return fd

    def _keep_others_out(self) -> None:
        """A folder made by somebody else (a mounted volume) may be open to all."""
        if os.fstat(self._fd).st_mode & 0o077:
            with contextlib.suppress(OSError):  # not ours to change: the files are closed anyway
                os.fchmod(self._fd, 0o700)

    def check(self) -> None:
        """GoneError if the path leads elsewhere by now: removed, unmounted, mounted over."""
        mine = os.fstat(self._fd)
        try:
            there = self.path.stat()
        except OSError as exc:
            raise GoneError(exc.errno, os.strerror(exc.errno or 0)) from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise GoneError(0, "the folder was replaced")

    def is_believable(self) -> bool:
        """Whether what is here is all that was written, and nothing but."""
        try:
            state = (self.path / _STATE).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
        return state in (_CLEAN, _boot())

    def mark_in_use(self) -> None:
        """Call before anything is written, and after what is not believable was removed."""
        self._write_state(_boot())

    def leave_in_order(self) -> None:
        """Call when everything is written and durable."""
        self._write_state(_CLEAN)

    def disown(self) -> None:
        """Nothing here may be believed by whoever opens it next."""
        self._write_state("doubtful")

    def _write_state(self, text: str) -> None:
        name = f"{_STATE}.new"
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600,
                     dir_fd=self._fd)  # fmt: skip
        try:
            os.write(fd, f"{text}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(name, _STATE, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def segments(self) -> list[Path]:
        """The segment files here, the oldest first."""
        paths = (self.path / name for name in self._names())
        return sorted(path for path in paths if segments.number_of(path) is not None)

    def _names(self) -> set[str]:
        with os.scandir(self._fd) as entries:
            return {entry.name for entry in entries}

    def close(self) -> None:
        """Ends the lock."""
        os.close(self._lock_fd)
        os.close(self._fd)


def _boot() -> str:
    """Names this run of the machine; where that is not known, something nobody believes later."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


log = logging.getLogger(__name__)


def recover(folder: Folder, now_ms: int) -> tuple[Index, int]:
    """(index, segments removed). Blocks; OSError when the folder as a whole cannot be used."""
    index, removed = Index(), 0
    believable = folder.is_believable()
    for path in folder.segments():
        opened = _open(path) if believable else None
        if opened is None:
            path.unlink(missing_ok=True)
            removed += 1
        else:
            _add(index, *opened, now_ms)
    folder.mark_in_use()
    return index, removed


def _open(path: Path) -> tuple[SegmentFile, list[RecoveredRecord]] | None:
    try:
        return SegmentFile.open(path)
    except (FormatError, OSError) as exc:
        log.warning("segment %s is removed: %s", path.name, exc)
        return None


def _add(index: Index, file: SegmentFile, records: list[RecoveredRecord], now_ms: int) -> None:
    segment = Segment(file, file.size)
    segment.is_active = False
    index.open(segment)
    for record, ends_ms in records:
        if ends_ms <= now_ms:
            continue
        older = index.take(record.key)
        if older is not None:  # it was being moved: the copy is as good, and stays
            with contextlib.suppress(OSError):
                older[0].file.wipe(older[1])
        index.put(segment, record, ends_ms)
