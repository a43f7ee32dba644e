"""Lock held by a running `make up` or `make down`, and its takeover by `down`.

The file names the holder; the kernel decides whether the lock is held.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from console.launcher.layout import Layout
from console.launcher.progress import StepFailed, print_line

# `up` stops its programs in order before it releases the lock.
_TERM_DEADLINE_S = 120.0
_POLL_S = 0.1


@contextmanager
def hold_lock(layout: Layout, verb: str) -> Iterator[None]:
    """Hold the lock; raise StepFailed if it is taken."""
    with _open_lock_file(layout) as file:
        if not _acquire(file):
            other, pid = _read_holder(file)
            raise StepFailed(
                f"Another `make {other or 'up'}` (pid {pid or 'unknown'}) is "
                "running here. Wait for it, or stop it: make down"
            )
        _write_holder(file, verb)
        yield


@contextmanager
def take_over_lock(layout: Layout) -> Iterator[bool]:
    """Hold the lock for `down`: end a running `up`, wait for another `down`. Yield whether an `up`
    was ended.
    """
    with _open_lock_file(layout) as file:
        reported = 0
        deadline = time.monotonic() + _TERM_DEADLINE_S
        while not _acquire(file):
            verb, pid = _read_holder(file)
            late = time.monotonic() > deadline
            if verb == "up" and _is_launcher(pid) and (late or reported != pid):
                if not late:
                    print_line(f"Stopping the running `make up` (pid {pid}).")
                reported = pid
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            elif late:
                raise StepFailed(f"`make {verb or 'up'}` (pid {pid}) does not stop. Kill it.")
            time.sleep(_POLL_S)
        _write_holder(file, "down")
        yield bool(reported)


@contextmanager
def _open_lock_file(layout: Layout) -> Iterator[int]:
    """Open without append mode, in which Linux ignores write offsets."""
    file = os.open(layout.run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _acquire(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_holder(file: int, verb: str) -> None:
    """Write in place with constant length, which needs no disk space; ignore a full disk."""
    with suppress(OSError):
        os.pwrite(file, f"{verb:4} {os.getpid():12}\n".encode(), 0)


def _read_holder(file: int) -> tuple[str, int]:
    """Return ("", 0) if unknown."""
    verb, _, pid = os.pread(file, 18, 0).decode(errors="replace").partition(" ")
    return (verb, int(pid)) if pid.strip().isdecimal() else ("", 0)


def _is_launcher(pid: int) -> bool:
    """Verify the pid, which may have been reused since the file was written."""
    try:
        return pid > 0 and "console.launcher" in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
