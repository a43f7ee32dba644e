"""Run one command as a managed process: `python -m console.processkit.launch FOLDER`.

When this process has ended, nothing of the command is left:

    command exits       everything it started is killed, even outside the process group (this
                        process is the subreaper); same exit status
    TERM or INT         forwarded to the command alone, which may finish its work and end its own
                        helpers; killed after `grace_s`
    this is killed      the kernel kills the command (PDEATHSIG); its children are found and ended
                        by the next launch in the same folder, before it starts
    supervisor is killed   like TERM: an unsupervised process would run forever

Command, environment and secrets are in `FOLDER/.emberline/launch.json`, mode 0600: neither argv
nor supervisor's configuration has a secret. The result of the last run is in `run.json` beside it.
Uses little of the standard library and nothing else: one launcher stays in memory per process, and
`dataclasses` or `tempfile` would double the time of its start.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from console.processkit import leftovers
from console.processkit.files import write_private

LAUNCH_DIR = ".emberline"
ENDED = "launch: exited"
"""Prefix of the line that separates runs in a log."""
_FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_FORWARDED)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 5.0
_REAP_DEADLINE_S = 10.0
# Settings of the console, not passed to managed processes.
_CONSOLE_ONLY = ("DATABASE_URL", "REDIS_URL", "REDIS_URL_FILE", "PROMETHEUS_URL", "SECRET_KEY")
_CONSOLE_PREFIXES = ("DJANGO_", "SUPERVISOR_", "CELERY_")
_libc = ctypes.CDLL(None, use_errno=True)


class Launch(NamedTuple):
    """The command. `env` is added to the supervisor's environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = MappingProxyType({})
    grace_s: float = 30.0

    def write(self, folder: Path) -> None:
        (folder / LAUNCH_DIR).mkdir(exist_ok=True)
        document = self._asdict() | {"env": dict(self.env)}
        write_private(folder / LAUNCH_DIR / "launch.json", json.dumps(document))

    @classmethod
    def read(cls, folder: Path) -> Launch:
        document = json.loads((folder / LAUNCH_DIR / "launch.json").read_text(encoding="utf-8"))
        return cls(tuple(document["argv"]), document["env"], document["grace_s"])


class LaunchRun(NamedTuple):
    """Current or last run in a folder. `deaths` counts exits without a stop request."""

    alive: bool = False
    group: int = 0
    deaths: int = 0
    last_exit: str = ""

    def write(self, folder: Path) -> None:
        """Write the record; a full disk loses only the record: with stale `alive` and `group`, the
        next launch still finds leftovers by their mark.
        """
        try:
            write_private(folder / LAUNCH_DIR / "run.json", json.dumps(self._asdict()))
        except OSError as error:
            _print_line(f"cannot record the run: {error.strerror}")

    @classmethod
    def read(cls, folder: Path) -> LaunchRun:
        """Return an empty record if absent or unreadable."""
        try:
            return cls(**json.loads((folder / LAUNCH_DIR / "run.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()


def main(folder: Path) -> int:
    launch = Launch.read(folder)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    end_with_parent(signal.SIGTERM)
    last = LaunchRun.read(folder)
    if last.alive:  # no exit recorded: killed, or the machine went down
        last = last._replace(deaths=last.deaths + 1, last_exit="killed")
    left = leftovers.end_leftovers(folder, last.group, grace_s=_LEFTOVER_GRACE_S)
    if left:
        _print_line(f"processes of an earlier run cannot be stopped: {left}")
    run = last._replace(alive=True, group=os.getpgrp())
    run.write(folder)
    status, requested = _supervise(_start(launch, folder), launch.grace_s)
    _end_descendants()
    ended = f"exit status {status}" if status >= 0 else f"signal {-status}"
    if not requested:
        _print_line(f"{ENDED.removeprefix('launch: ')}: {ended}")
    deaths = run.deaths + (0 if requested else 1)
    run._replace(alive=False, deaths=deaths, last_exit=ended).write(folder)
    return status if status >= 0 else 128 - status


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in _CONSOLE_ONLY and not name.startswith(_CONSOLE_PREFIXES)
    }
    return variables | dict(extra)


def _start(launch: Launch, folder: Path) -> int:
    """Fork and exec; the child is killed with this process in any case."""
    env = environment(launch.env)
    keeper = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        end_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:  # it ended before the line above took effect
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        os.chdir(folder)
        # Python ignores it, and exec would inherit that
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvpe(launch.argv[0], list(launch.argv), env)  # noqa: S606 (no shell is the point)
    except OSError as error:
        _print_line(f"cannot start {launch.argv[0]}: {error.strerror}")
    os._exit(127)


def _supervise(child: int, grace_s: float) -> tuple[int, bool]:
    """Wait for the child; return its exit status (negative: a signal) and whether a stop was
    requested.
    """
    deadline: float | None = None
    while True:
        wait_s = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        info = signal.sigtimedwait(_HANDLED, wait_s)
        if info is None:
            if deadline is not None:
                _print_line(f"did not end within {grace_s:g} s: killed")
                os.kill(child, signal.SIGKILL)
                deadline = time.monotonic() + _REAP_DEADLINE_S
            continue
        if info.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                return status, deadline is not None
        elif info.si_signo in _FORWARDED:
            os.kill(child, info.si_signo)
        elif deadline is None:  # once: servers treat a second TERM as immediate
            deadline = time.monotonic() + grace_s
            os.kill(child, signal.SIGTERM)


def _reap(child: int) -> int | None:
    """Reap every dead child and adopted orphan; return the status if `child` is among them."""
    status_code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status_code
        if pid == 0:
            return status_code
        if pid == child:
            status_code = os.waitstatus_to_exitcode(status)


def _end_descendants() -> None:
    """Kill all descendants: when a process ends, its children become ours."""
    deadline = time.monotonic() + _REAP_DEADLINE_S
    while time.monotonic() < deadline:
        for pid in leftovers.child_pids(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            signal.sigtimedwait((signal.SIGCHLD,), 0.1)
    _print_line("a child process cannot be killed")


def end_with_parent(number: signal.Signals) -> None:
    """Make the kernel send `number` to this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _print_line(text: str) -> None:
    sys.stderr.write(f"launch: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
