"""The lock that one `make up` or `make down` holds while it works, and how `down` takes it over.

The file names its holder for messages and for `down`; whether the lock is held, the kernel decides.
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
from console.launcher.progress import StepFailed, say

# `up` stops the programs it started, in order, before it lets go.
_TERM_DEADLINE_S = 120.0
_POLL_S = 0.1


@contextmanager
def held(layout: Layout, verb: str) -> Iterator[None]:
    """Raise StepFailed if another one is at work."""
    with _opened(layout) as file:
        if not _take(file):
            other, pid = _holder(file)
            raise StepFailed(
                f"Another `make {other or 'up'}` (pid {pid or 'unknown'}) is at work here. "
                "Wait for it, or stop it: make down"
            )
        _sign(file, verb)
        yield


@contextmanager
def taken_over(layout: Layout) -> Iterator[bool]:
    """For `down`: end the `up` that is at work, wait for another `down`. Yields whether an `up`
    was ended."""
    with _opened(layout) as file:
        asked = 0
        deadline = time.monotonic() + _TERM_DEADLINE_S
        while not _take(file):
            verb, pid = _holder(file)
            late = time.monotonic() > deadline
            if verb == "up" and _is_launcher(pid) and (late or asked != pid):
                if not late:
                    say(f"Stopping the `make up` that is at work here (pid {pid}).")
                asked = pid
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
            elif late:
                raise StepFailed(f"`make {verb or 'up'}` (pid {pid}) does not end. Kill it.")
            time.sleep(_POLL_S)
        _sign(file, "down")
        yield bool(asked)


@contextmanager
def _opened(layout: Layout) -> Iterator[int]:
    """Not to append: Linux would then write at the end, whatever offset is given."""
    file = os.open(layout.run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def _take(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: int, verb: str) -> None:
    """In place and of one length, which needs no space; on a full disk it may stay unsigned."""
    with suppress(OSError):
        os.pwrite(file, f"{verb:4} {os.getpid():12}\n".encode(), 0)


def _holder(file: int) -> tuple[str, int]:
    """("", 0) if it is not known."""
    verb, _, pid = os.pread(file, 18, 0).decode(errors="replace").partition(" ")
    return (verb, int(pid)) if pid.strip().isdecimal() else ("", 0)


def _is_launcher(pid: int) -> bool:
    """A pid that was not yet replaced in the file may be anybody's by now."""
    try:
        return pid > 0 and "console.launcher" in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False
