"""Cleanup of L1 files in /dev/shm after any exit of a worker.

vLLM unlinks the file only on a clean exit. Here it is unlinked as soon as all sides have mapped it,
and files of processes that ended earlier are removed at the next start. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

DIRECTORY = Path("/dev/shm")  # noqa: S108  (where vLLM puts L1)
PATTERN = "vllm_offload_*.mmap"
# A file this young may belong to a worker that has not yet locked or mapped it.
MIN_AGE_S = 60.0


def lock_file(fd: int) -> None:
    """Lock the open file for the lifetime of this process."""
    fcntl.flock(fd, fcntl.LOCK_SH)


def unlink_file(path: str) -> None:
    """Unlink the file; existing mappings stay valid."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()


def sweep_dead_files(
    directory: Path = DIRECTORY, *, proc: Path = Path("/proc"), now: float | None = None
) -> list[Path]:
    """Remove files of dead engines and return their paths.

    A file that is young, locked, or open in a visible process is kept: unlinking a region still
    being joined would split a worker from its scheduler.
    """
    clock = time.time() if now is None else now
    old = [path for path in sorted(directory.glob(PATTERN)) if _age_s(path, clock) >= MIN_AGE_S]
    if not old:
        return []
    used = _open_files(proc)
    removed = []
    for path in old:
        if _identity(path) in used or _is_locked(path):
            continue
        with contextlib.suppress(OSError):
            path.unlink()
            removed.append(path)
    return removed


def _age_s(path: Path, now: float) -> float:
    with contextlib.suppress(OSError):
        return now - path.stat().st_ctime
    return 0.0


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return True  # other owner
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _open_files(proc: Path) -> set[tuple[int, int]]:
    """Return (device, inode) of the L1 files open or mapped in any readable process."""
    files: set[tuple[int, int]] = set()
    for folder in proc.glob("[0-9]*"):
        for name in ("fd", "map_files"):
            for entry in _entries(folder / name):
                with contextlib.suppress(OSError):
                    if Path(entry).readlink().name.startswith("vllm_offload_"):
                        status = Path(entry).stat()
                        files.add((status.st_dev, status.st_ino))
    return files


def _entries(folder: Path) -> Iterable[str]:
    try:
        return [entry.path for entry in os.scandir(folder)]
    except OSError:
        return ()
