"""The launcher without a supervisor: signals, exits, leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.processkit import leftovers
from console.processkit.launch import Launch, LaunchRun
from tests.support.cachenode import ROOT
from tests.support.waiting import until

SLEEP = "import time; time.sleep(600)"
# Prints `ready`, records each signal, and exits on TERM.
NOTES = """
import signal, sys
def note(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, note)
print('ready', flush=True)
while True:
    signal.pause()
"""


class Room:
    """A replica's folder and the processes launched in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder.parent / f"{folder.name}.out"
        self.started: list[subprocess.Popen[bytes]] = []

    def launch(self, code: str, grace_s: float = 20.0, **env: str) -> subprocess.Popen[bytes]:
        self.folder.mkdir(exist_ok=True)
        Launch((sys.executable, "-S", "-c", code), env, grace_s).write(self.folder)
        return self.again()

    def again(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-S", "-E", "-m", "console.processkit.launch", str(self.folder)]
        env = {**os.environ, leftovers.MARK: str(self.folder), "REDIS_URL": "redis://hidden"}
        with self.out.open("wb") as out:
            process = subprocess.Popen(
                argv, cwd=ROOT, env=env, stdout=out, stderr=out, process_group=0
            )
        self.started.append(process)
        return process

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.out.read_text(), what=f"{text!r} in the output")

    def child(self, process: subprocess.Popen[bytes]) -> int:
        return until(lambda: leftovers.child_pids(process.pid))[0]

    @property
    def run(self) -> LaunchRun:
        return LaunchRun.read(self.folder)

    def pid(self, name: str) -> int:
        """Return a pid written by the command."""
        path = self.folder / name
        return int(until(lambda: path.exists() and path.read_text()))


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    found = Room(tmp_path / "0")
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
            process.wait(60)
    leftovers.end_leftovers(found.folder)


def alive(pid: int) -> bool:
    return any(p.pid == pid and not p.is_zombie for p in leftovers.processes())


def helper(name: str, how: str) -> str:
    """Return code that starts a sleeping helper and writes its pid."""
    argv = [sys.executable, "-S", "-c", SLEEP]
    return (
        f"import subprocess, pathlib; p = subprocess.Popen({argv!r}, {how});"
        f"pathlib.Path({name!r}).write_text(str(p.pid))\n"
    )


@pytest.mark.parametrize(
    ("code", "status", "exit_text"),
    [
        ("raise SystemExit(0)", 0, "exit status 0"),
        ("raise SystemExit(3)", 3, "exit status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, "signal 9"),
    ],
)
def test_status_and_record(room: Room, code: str, status: int, exit_text: str) -> None:
    assert room.launch(code).wait(60) == status
    assert room.run.deaths == 1
    assert room.run.last_exit == exit_text
    assert not room.run.alive
    assert room.again().wait(60) == status
    assert room.run.deaths == 2


def test_command_that_cannot_start(room: Room) -> None:
    room.folder.mkdir()
    Launch(("/nowhere/at/all",)).write(room.folder)
    assert room.again().wait(60) == 127
    assert "cannot start /nowhere/at/all" in room.out.read_text()


def test_signals_reach_the_command_and_term_is_no_crash(room: Room) -> None:
    process = room.launch(NOTES)
    room.wait_for("ready")
    process.send_signal(signal.SIGHUP)
    room.wait_for("SIGHUP")
    process.send_signal(signal.SIGUSR1)
    room.wait_for("SIGUSR1")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 7
    assert room.out.read_text().split() == ["ready", "SIGHUP", "SIGUSR1", "SIGTERM"]
    assert room.run == LaunchRun(False, process.pid, 0, "exit status 7")


def test_second_term_is_not_forwarded(room: Room) -> None:
    stubborn = (
        "import signal, time; signal.signal(15, lambda *a: print('term', flush=True));"
        "signal.signal(10, lambda *a: print('usr1', flush=True)); print('ready', flush=True)\n"
        "while True: time.sleep(9)"
    )
    process = room.launch(stubborn, grace_s=600)
    room.wait_for("ready")
    process.send_signal(signal.SIGTERM)
    room.wait_for("term")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGUSR1)
    room.wait_for("usr1")
    assert room.out.read_text().count("term") == 1


def test_command_that_ignores_term_is_killed(room: Room) -> None:
    process = room.launch(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True);"
        "time.sleep(600)",
        grace_s=0.1,
    )
    room.wait_for("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 137
    assert "killed" in room.out.read_text()


@pytest.mark.parametrize("how", ["", "start_new_session=True", "start_new_session=True, env={}"])
@pytest.mark.parametrize("end", ["exit", "term"])
def test_no_child_outlives_the_command(room: Room, how: str, end: str) -> None:
    code = helper("helper", how) + ("raise SystemExit(1)" if end == "exit" else SLEEP)
    process = room.launch(code)
    pid = room.pid("helper")
    if end == "term":
        process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert not alive(pid)


# Like vLLM's processes: the title overwrote the environment, and with it the mark.
@pytest.mark.parametrize("how", ["", "env={}", "start_new_session=True"])
def test_killed_launcher_kills_the_command_and_the_next_one_cleans_up(room: Room, how: str) -> None:
    process = room.launch(helper("helper", how) + SLEEP)
    pid, child = room.pid("helper"), room.child(process)
    process.kill()
    process.wait(60)
    until(lambda: not alive(child))
    assert alive(pid)  # only the next launch ends it, before its command starts
    # It may remain as a zombie until process 1 reaps it.
    room.launch(
        "from pathlib import Path\n"
        f"try: state = Path('/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]\n"
        "except OSError: state = 'gone'\n"
        "print('helper', 'ended' if state in ('gone', 'Z', 'X') else state, flush=True)"
    )
    room.wait_for("helper ended")
    until(lambda: not room.run.alive)
    assert room.run.deaths == 2  # one kill and one exit


def test_dead_supervisor_is_a_term(room: Room) -> None:
    room.folder.mkdir()
    Launch((sys.executable, "-S", "-c", NOTES)).write(room.folder)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-m", "console.processkit.launch", {str(room.folder)!r}])
time.sleep(600)
""",
        ],
        cwd=ROOT,
        env={**os.environ, leftovers.MARK: str(room.folder)},
        stdout=room.out.open("wb"),
    )
    room.wait_for("ready")
    parent.kill()
    parent.wait(60)
    room.wait_for("SIGTERM")
    until(lambda: not room.run.alive)
    assert room.run.deaths == 0
    # The launcher writes its record before it exits, so it may still be alive briefly.
    until(lambda: leftovers.find_leftovers(room.folder) == [])


def test_foreign_process_is_spared(room: Room, tmp_path: Path) -> None:
    """A user's shell in the folder, and a replica whose folder name has the same prefix."""
    room.folder.mkdir()
    shell = subprocess.Popen(["sleep", "600"], cwd=room.folder)
    mark = {**os.environ, leftovers.MARK: f"{room.folder}1"}
    other = subprocess.Popen(["sleep", "600"], env=mark, cwd=tmp_path)
    try:
        room.launch("raise SystemExit(0)").wait(60)
        assert shell.poll() is None
        assert other.poll() is None
        assert leftovers.end_leftovers(room.folder, group=os.getpgrp() + 1) == []
        assert shell.poll() is None
    finally:
        shell.kill()
        other.kill()
        shell.wait()
        other.wait()


def test_environment(room: Room) -> None:
    code = "import os, json; print(json.dumps(dict(os.environ)), flush=True)"
    room.launch(code, SECRET="x y").wait(60)
    seen = json.loads(room.out.read_text().splitlines()[0])
    assert seen["SECRET"] == "x y"
    assert seen["PATH"] == os.environ["PATH"]
    assert seen[leftovers.MARK] == str(room.folder)
    assert "REDIS_URL" not in seen


def test_broken_pipe_ends_the_command_as_in_a_shell(room: Room) -> None:
    room.launch("import signal; print(signal.getsignal(signal.SIGPIPE), flush=True)").wait(60)
    # Python ignores SIGPIPE; the inherited disposition matters.
    Launch(("grep", "SigIgn", "/proc/self/status")).write(room.folder)
    room.again().wait(60)
    ignored = int(room.out.read_text().split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_state_file_is_private(room: Room) -> None:
    room.folder.mkdir()
    Launch(("x",), {"S": "secret"}).write(room.folder)
    path = room.folder / ".emberline" / "launch.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert Launch.read(room.folder) == Launch(("x",), {"S": "secret"})


def test_launcher_imports_little() -> None:
    """One starts, and stays in memory, for each managed process."""
    code = "import sys, console.processkit.launch; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    imported = set(done.stdout.split())
    assert "console.processkit.launch" in imported, done.stderr
    assert not {"dataclasses", "inspect", "tempfile", "shutil", "subprocess"} & imported
