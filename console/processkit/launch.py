"""Runs one command as a managed process: `python -m console.processkit.launch FOLDER`.

Promises, to the supervisor above it, that when it has ended nothing of the command is left:

    command dies        everything it started is killed, even what left the process group
                        (this process is the subreaper of them all); same exit status
    TERM or INT         sent on to the command alone, which may finish its work and end its own
                        helpers; killed after `grace_s`
    this is killed      the kernel kills the command (PDEATHSIG); what the command had started is
                        found and ended by the next launch in the same folder, before it starts
    supervisor is killed   the same as TERM: a process without a keeper would run for ever

The command, its environment and its secrets come from `FOLDER/.emberline/launch.json`, mode
0600: neither argv nor supervisor's configuration holds a secret. What became of the last run is
kept beside it in `run.json`. Must not know what it runs; standard library only, and little of
it, since one of these stays in memory for each process.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from console.processkit import leftovers
from console.processkit.files import write_private

HIDDEN = ".emberline"
ENDED = "launch: ended by itself"
"""Begins the line that divides the output of one run from the next in a log."""
_FORWARDED = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, *_FORWARDED)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 5.0
_REAP_DEADLINE_S = 10.0
# Settings of the console itself; what it manages has no business with them.
_CONSOLE_ONLY = ("DATABASE_URL", "REDIS_URL", "REDIS_URL_FILE", "PROMETHEUS_URL", "SECRET_KEY")
_CONSOLE_PREFIXES = ("DJANGO_", "SUPERVISOR_", "CELERY_")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run. `env` is added to what the supervisor was started with."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0

    def write(self, folder: Path) -> None:
        (folder / HIDDEN).mkdir(exist_ok=True)
        write_private(folder / HIDDEN / "launch.json", json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Launch:
        facts = json.loads((folder / HIDDEN / "launch.json").read_text(encoding="utf-8"))
        return cls(tuple(facts["argv"]), facts["env"], facts["grace_s"])


@dataclass(frozen=True, slots=True)
class LaunchRun:
    """The present or last run in a folder. `deaths` counts ends which nobody asked for."""

    alive: bool = False
    group: int = 0
    deaths: int = 0
    last_exit: str = ""

    def write(self, folder: Path) -> None:
        """A full disk costs the record and never the run: with `alive` and `group` unknown, the
        next launch still finds what is left by its mark."""
        try:
            write_private(folder / HIDDEN / "run.json", json.dumps(asdict(self)))
        except OSError as error:
            _say(f"cannot record the run: {error.strerror}")

    @classmethod
    def read(cls, folder: Path) -> LaunchRun:
        """An empty one if there is none, or none that can be read."""
        try:
            return cls(**json.loads((folder / HIDDEN / "run.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()


def main(folder: Path) -> int:
    launch = Launch.read(folder)
    signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    end_with_parent(signal.SIGTERM)
    last = LaunchRun.read(folder)
    if last.alive:  # it could not say how it ended: killed, or the machine went down
        last = replace(last, deaths=last.deaths + 1, last_exit="killed")
    left = leftovers.end(folder, last.group, grace_s=_LEFTOVER_GRACE_S)
    if left:
        _say(f"processes of an earlier run cannot be ended: {left}")
    run = replace(last, alive=True, group=os.getpgrp())
    run.write(folder)
    status, asked = _keep(_start(launch, folder), launch.grace_s)
    _end_descendants()
    ended = f"exit status {status}" if status >= 0 else f"signal {-status}"
    if not asked:
        _say(f"{ENDED.removeprefix('launch: ')}: {ended}")
    deaths = run.deaths + (0 if asked else 1)
    replace(run, alive=False, deaths=deaths, last_exit=ended).write(folder)
    return status if status >= 0 else 128 - status


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _CONSOLE_ONLY and not name.startswith(_CONSOLE_PREFIXES)
    }
    return kept | dict(extra)


def _start(launch: Launch, folder: Path) -> int:
    """Fork and exec; the child dies with this process, whatever ends it."""
    env = environment(launch.env)
    keeper = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        end_with_parent(signal.SIGKILL)
        if os.getppid() != keeper:  # it died before the line above took effect
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        os.chdir(folder)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; exec would pass that on
        os.execvpe(launch.argv[0], list(launch.argv), env)  # noqa: S606 (no shell is the point)
    except OSError as error:
        _say(f"cannot start {launch.argv[0]}: {error.strerror}")
    os._exit(127)


def _keep(child: int, grace_s: float) -> tuple[int, bool]:
    """Wait for the child's end: its exit status (negative: a signal) and whether it was asked."""
    deadline: float | None = None
    while True:
        wait_s = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
        info = signal.sigtimedwait(_HANDLED, wait_s)
        if info is None:
            if deadline is not None:
                _say(f"did not end within {grace_s:g} s: killed")
                os.kill(child, signal.SIGKILL)
                deadline = time.monotonic() + _REAP_DEADLINE_S
            continue
        if info.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                return status, deadline is not None
        elif info.si_signo in _FORWARDED:
            os.kill(child, info.si_signo)
        elif deadline is None:  # once: servers take a second TERM as "now"
            deadline = time.monotonic() + grace_s
            os.kill(child, signal.SIGTERM)


def _reap(child: int) -> int | None:
    """Collect every dead child and adopted orphan; the status if `child` is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = os.waitstatus_to_exitcode(status)


def _end_descendants() -> None:
    """Kill what the command left behind. As each one dies its own children become ours."""
    deadline = time.monotonic() + _REAP_DEADLINE_S
    while time.monotonic() < deadline:
        for pid in leftovers.children(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            signal.sigtimedwait((signal.SIGCHLD,), 0.1)
    _say("something the command started cannot be killed")


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process `number` when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def _say(text: str) -> None:
    sys.stderr.write(f"launch: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
