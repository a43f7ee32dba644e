"""Child processes of the test run: a test that leaves one behind fails the run.

Linux only: the run becomes the parent of orphans (PR_SET_CHILD_SUBREAPER), so that a daemon whose
own parent ended is still found.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 60.0  # a process that was sent a signal in the last teardown may still be ending


class ChildProcesses:
    """Children of this process, each with the test after which it was first seen."""

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}

    def adopt_orphans(self) -> None:
        """Make this process the parent of every descendant whose own parent ends."""
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def note(self, test: str) -> None:
        """Record the children that the given test started, or that it orphaned."""
        pids = children() if has_children() else []
        self.seen = {pid: self.seen.get(pid, test) for pid in pids}

    def left_behind(self, grace_s: float = GRACE_S) -> list[str]:
        """Return a line for each child that still runs after `grace_s` seconds."""
        end = time.monotonic() + grace_s
        while (left := [pid for pid in children() if runs(pid)]) and time.monotonic() < end:
            time.sleep(0.05)
        return [f"pid {pid} ({command(pid)}), started by {self.seen.get(pid, '?')}" for pid in left]


def has_children() -> bool:
    """Ask the kernel once, instead of reading a file for each thread."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children(of: int | str = "self") -> list[int]:
    """Return the pids of a process' children, zombies included."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{of}/task").iterdir())
    except OSError:  # the process ended
        return []
    for task in tasks:
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:  # the thread ended
            continue
    return sorted(found)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX" and "multiprocessing.resource_tracker" not in command(pid)


def command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "ended"
    return words.replace("\0", " ").strip()[:200]


def supported() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()
