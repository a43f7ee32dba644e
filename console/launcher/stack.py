"""Starts, asks and stops supervisord, the one parent of every managed process.

Promises that there is at most one supervisord per `var/`, that `stop` returns only when nothing
of it is left, and that whatever it could not stop is killed and named. Must not know what the
programs are for.
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
from console.provisioners.base import ProvisionError
from console.provisioners.local.rpc import ProcessInfo, Supervisor
from console.provisioners.local.supervisord import command, socket_path

STOP_DEADLINE_S = 90.0
_KILLED_S = 10.0
# Every managed process inherits this variable, so that one which left its group is still found.
MARK = "EMBERLINE_SUPERVISED"
_BROKERS = ("valkey-server", "redis-server")


def is_running(layout: Layout) -> bool:
    return programs(layout) is not None


def programs(layout: Layout) -> dict[str, ProcessInfo] | None:
    """supervisord's view of every program by name; None when it does not answer."""
    try:
        return Supervisor(socket_path(layout.var)).all()
    except ProvisionError:
        return None


def start(layout: Layout, config: Path) -> subprocess.Popen[bytes]:
    """Start supervisord in a session of its own, so that Ctrl-C reaches only the launcher,
    which then stops the programs in order. Raises StepFailed if it does not answer."""
    log = layout.logs / "supervisord.out"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command(config),
            cwd=ROOT,
            env={
                **processes.without_secrets(os.environ),
                MARK: str(layout.var),
                "PYTHONDONTWRITEBYTECODE": "",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    if not wait_until(lambda: is_running(layout) or process.poll() is not None, 20):
        raise StepFailed("supervisord does not answer; see var/log/supervisord.log")
    if process.poll() is not None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise StepFailed("supervisord did not start", tail)
    return process


def stop(layout: Layout) -> list[str]:
    """Stop every program and supervisord; returns a line for each process that had to be killed."""
    pid = supervisor_pid(layout)
    try:
        Supervisor(socket_path(layout.var)).shut_down()
    except ProvisionError:
        with suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGTERM)
    if pid:
        wait_until(lambda: not _runs(pid), STOP_DEADLINE_S)
    return kill_leftovers(layout)


def _runs(pid: int) -> bool:
    """A zombie does not: after Ctrl-C supervisord is the launcher's own child, not yet reaped."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def leftovers(layout: Layout) -> list[psutil.Process]:
    """Processes which carry this var's mark in their environment, the caller's family apart."""
    mark = str(layout.var)
    family = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in family:
            continue
        try:
            if process.environ().get(MARK) == mark or _is_broker(process, layout):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_broker(process: psutil.Process, layout: Layout) -> bool:
    """Valkey writes its title over its environment, so it is known by where it works."""
    return process.name() in _BROKERS and process.cwd() == str(layout.run)


def kill_leftovers(layout: Layout) -> list[str]:
    """Kill what outlived supervisord (a process that left its group), and say what it was."""
    killed = []
    found = leftovers(layout)
    for process in found:
        try:
            killed.append(f"{process.pid} {' '.join(process.cmdline())[:120]}")
            process.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(found, timeout=_KILLED_S)  # until then their ports are taken
    return killed


def wait_until(condition: Callable[[], bool], deadline_s: float, every_s: float = 0.2) -> bool:
    """Poll until the condition holds; False at the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(every_s)
    return condition()
