"""Atomic writes of small private files, and locks among this machine's processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.01


@contextmanager
def hold_lock(path: Path, wait_s: float) -> Iterator[None]:
    """Hold the exclusive lock of a file, among threads, too; raise TimeoutError after `wait_s`."""
    deadline = time.monotonic() + wait_s
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path.name} is locked by another process") from None
                time.sleep(_POLL_S)
        yield


def write_private(path: Path, text: str) -> None:
    """Replace `path` atomically; mode 0600 from the first byte on."""
    temporary = path.parent / f".{path.name}.{os.urandom(8).hex()}"
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_private_dir(path: Path) -> None:
    """Create the folder and its parents; set the mode of the last one only."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
