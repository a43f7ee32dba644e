"""Start, query and stop supervisord, the parent of every managed process.

At most one supervisord per `var/`. `stop` returns when nothing is left; processes that do not stop
are killed and reported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from console.launcher import processes
from console.launcher.layout import ROOT, Layout
from console.launcher.progress import StepFailed
from console.launcher.runtime_environment import supervisor_pid
from console.processkit import changes, descriptors
from console.provisioners.base import ProvisionError
from console.provisioners.local.rpc import ProcessInfo, Supervisor
from console.provisioners.local.supervisord import command, socket_path

STOP_DEADLINE_S = 90.0
_KILLED_S = 10.0
# Inherited by every managed process, so that one that left its group is still found.
MARK = "EMBERLINE_SUPERVISED"
_BROKERS = ("valkey-server", "redis-server")


def is_running(layout: Layout) -> bool:
    return list_programs(layout) is not None


def list_programs(layout: Layout) -> dict[str, ProcessInfo] | None:
    """Return every program by name; None if supervisord does not respond."""
    try:
        return Supervisor(socket_path(layout.var)).all()
    except ProvisionError:
        return None


def start(layout: Layout, config: Path) -> subprocess.Popen[bytes]:
    """Start supervisord in its own session, so that Ctrl-C reaches only the launcher, which stops
    the programs in order. Raise StepFailed if it does not respond.
    """
    log = layout.logs / "supervisord.out"
    descriptors.raise_limit()  # inherited by every program
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(config),
            cwd=ROOT,
            env={
                **processes.without_secrets(os.environ),
                MARK: str(layout.var),
                changes.SOCKET: str(layout.run / "changes.sock"),
                "PYTHONDONTWRITEBYTECODE": "",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if not wait_until(lambda: is_running(layout) or process.poll() is not None, 20):
        raise StepFailed("supervisord does not respond; see var/log/supervisord.log")
    if process.poll() is not None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise StepFailed("supervisord did not start", tail)
    return process


def stop(layout: Layout) -> list[str]:
    """Stop every program and supervisord; return a line per killed process."""
    pid = supervisor_pid(layout)
    try:
        Supervisor(socket_path(layout.var)).shut_down()
    except ProvisionError:
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGTERM)
    if pid:
        wait_until(lambda: not _is_alive(pid), STOP_DEADLINE_S)
    return kill_leftovers(layout)


def _is_alive(pid: int) -> bool:
    """Ignore zombies: after Ctrl-C supervisord is an unreaped child of the launcher."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def find_leftovers(layout: Layout) -> list[psutil.Process]:
    """Return processes with this var's mark in their environment, except the caller and its
    ancestors.
    """
    mark = str(layout.var)
    family = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    leftovers = []
    for process in psutil.process_iter():
        if process.pid in family:
            continue
        try:
            if process.environ().get(MARK) == mark or _is_broker(process, layout):
                leftovers.append(process)
        except psutil.Error:
            continue
    return leftovers


def _is_broker(process: psutil.Process, layout: Layout) -> bool:
    """Recognize Valkey by its working directory: its title overwrites its environment."""
    return process.name() in _BROKERS and process.cwd() == str(layout.run)


def kill_leftovers(layout: Layout) -> list[str]:
    """Kill processes that outlived supervisord and return a description of each."""
    killed = []
    leftovers = find_leftovers(layout)
    for process in leftovers:
        try:
            killed.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(leftovers, timeout=_KILLED_S)  # their ports are in use until then
    return killed


def wait_until(condition: Callable[[], bool], deadline_s: float, every_s: float = 0.2) -> bool:
    """Poll until the condition is true; return False at the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(every_s)
    return condition()
