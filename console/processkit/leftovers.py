"""Find processes that outlived their launcher. Linux only: reads /proc.

A process belongs to the folder if it has the folder's mark in its environment, or (a server that
overwrote its environment) is in the launcher's old process group and still works in the folder. A
user's shell in the folder matches neither.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "EMBERLINE_WORKLOAD"
_PROC = Path("/proc")
_POLL_S = 0.05


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    is_zombie: bool


def processes() -> Iterator[Process]:
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            process = _read(int(entry.name))
            if process is not None:
                yield process


def _read(pid: int) -> Process | None:
    try:
        # The command, in brackets, may contain anything; fields follow the last bracket.
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return Process(pid, parent=int(stat[1]), group=int(stat[2]), is_zombie=stat[0] in "ZX")


def child_pids(pid: int) -> list[int]:
    """Return living children, the first started or adopted one first."""
    listed = _PROC / str(pid) / "task" / str(pid) / "children"
    try:
        children = [_read(int(word)) for word in listed.read_text().split()]
    except OSError:  # the process is gone, or the kernel has no such list
        children = [p for p in processes() if p.parent == pid]
    return [p.pid for p in children if p is not None and not p.is_zombie]


def find_leftovers(folder: Path, group: int = 0) -> list[int]:
    """Return pids that belong to `folder`; `group` is its last process group, if known."""
    mark = f"{MARK}={folder}".encode()
    spared = _ancestors(os.getpid())
    return [
        process.pid
        for process in processes()
        if process.pid not in spared
        and not process.is_zombie
        and (
            _is_marked(process.pid, mark) or (process.group == group and _works_in(process, folder))
        )
    ]


def end_leftovers(folder: Path, group: int = 0, grace_s: float = 0.0) -> list[int]:
    """Send TERM, then KILL after `grace_s`; return the pids that survive both."""
    if grace_s > 0:
        _signal(find_leftovers(folder, group), signal.SIGTERM)
        if not _wait(folder, group, grace_s):
            return []
    left = find_leftovers(folder, group)
    if not left:
        return []
    _signal(left, signal.SIGKILL)
    return _wait(folder, group, 1.0)


def _wait(folder: Path, group: int, deadline_s: float) -> list[int]:
    stop = time.monotonic() + deadline_s
    while (left := find_leftovers(folder, group)) and time.monotonic() < stop:
        time.sleep(_POLL_S)
    return left


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _works_in(process: Process, folder: Path) -> bool:
    try:
        where = str((_PROC / str(process.pid) / "cwd").readlink())
    except OSError:
        return False
    return where.removesuffix(" (deleted)") == str(folder)


def _ancestors(pid: int) -> set[int]:
    ancestors: set[int] = set()
    while pid > 1 and pid not in ancestors:
        ancestors.add(pid)
        process = _read(pid)
        if process is None:
            break
        pid = process.parent
    return ancestors
