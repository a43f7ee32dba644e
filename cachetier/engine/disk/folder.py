"""Disk tier folder: locking, trust in its contents, and recovery.

One process at a time (flock). After a killed process all writes are in the page cache and valid;
after a machine crash the latest writes and wipes may be missing. The `state` file distinguishes
them: it records the boot id during use, or a clean shutdown. Untrusted contents are removed, never
served.
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
# Entries of a new file system.
_FILE_SYSTEM_ENTRIES: Final = {"lost+found"}


class FolderInUseError(RuntimeError):
    """Folder cannot be used; the message states reason and fix."""


class DiskFolder:
    """Open, locked folder. Calls block."""

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
        return os.fstat(self._fd).st_dev

    def _refuse_others_files(self) -> None:
        names = self._names() - _FILE_SYSTEM_ENTRIES
        if names and _LOCK not in names:
            raise FolderInUseError(
                f"the disk folder {self.path} is neither empty nor a cache node's: "
                "use a dedicated folder or empty it"
            )

    def _lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(_LOCK, flags, 0o600, dir_fd=self._fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FolderInUseError(
                f"the disk folder {self.path} is in use by another cache node: use "
                "one folder per node"
            ) from None
        return fd

    def _keep_others_out(self) -> None:
        """Restrict permissions: a mounted volume may be world-readable."""
        if os.fstat(self._fd).st_mode & 0o077:
            with contextlib.suppress(OSError):  # other owner: the files themselves are restricted
                os.fchmod(self._fd, 0o700)

    def check(self) -> None:
        """Raise GoneError if the path was removed, unmounted or mounted over."""
        mine = os.fstat(self._fd)
        try:
            there = self.path.stat()
        except OSError as exc:
            raise GoneError(exc.errno, os.strerror(exc.errno or 0)) from None
        if (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            raise GoneError(0, "the folder was replaced")

    def is_believable(self) -> bool:
        """Return whether the contents are complete and valid."""
        try:
            state = (self.path / _STATE).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
        return state in (_CLEAN, _read_boot_id())

    def mark_in_use(self) -> None:
        """Mark in use. Call before any write, and after untrusted contents were removed."""
        self._write_state(_read_boot_id())

    def leave_in_order(self) -> None:
        """Mark a clean shutdown. Call after everything is written and synced."""
        self._write_state(_CLEAN)

    def disown(self) -> None:
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
        paths = (self.path / name for name in self._names())
        return sorted(path for path in paths if segments.parse_segment_number(path) is not None)

    def _names(self) -> set[str]:
        with os.scandir(self._fd) as entries:
            return {entry.name for entry in entries}

    def close(self) -> None:
        os.close(self._lock_fd)
        os.close(self._fd)


def _read_boot_id() -> str:
    """Return the boot id, or a unique value that never matches later."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


log = logging.getLogger(__name__)


def recover_index(folder: DiskFolder, now_ms: int) -> tuple[Index, int]:
    """Return (index, removed segments). Blocks; raise OSError if the folder is unusable."""
    index, removed = Index(), 0
    believable = folder.is_believable()
    for path in folder.segments():
        opened = _open_segment(path) if believable else None
        if opened is None:
            path.unlink(missing_ok=True)
            removed += 1
        else:
            _add_to_index(index, *opened, now_ms)
    folder.mark_in_use()
    return index, removed


def _open_segment(path: Path) -> tuple[SegmentFile, list[RecoveredRecord]] | None:
    try:
        return SegmentFile.open(path)
    except (FormatError, OSError) as exc:
        log.warning("Removed invalid segment %s: %s", path.name, exc)
        return None


def _add_to_index(
    index: Index, file: SegmentFile, records: list[RecoveredRecord], now_ms: int
) -> None:
    segment = Segment(file, file.size)
    segment.is_active = False
    index.open(segment)
    for record, ends_ms in records:
        if ends_ms <= now_ms:
            continue
        older = index.take(record.key)
        if older is not None:  # interrupted move: both copies are valid, keep the new one
            with contextlib.suppress(OSError):
                older[0].file.wipe(older[1])
        index.put(segment, record, ends_ms)
