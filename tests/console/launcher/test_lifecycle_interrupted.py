"""`up` interrupted at any step, concurrent `up`s, and `down` at any time; real supervisord."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from console.accounts.models import User
from console.launcher import lock, runtime_environment, stack
from console.launcher.layout import ROOT, Layout, read_facts
from console.launcher.progress import StepFailed
from tests.support.child_processes import runs
from tests.support.waiting import until

STEPS = ("emberline_admin", "seed-demo", "wait")


class Rig:
    def __init__(self) -> None:
        # Short: a Unix socket path is limited to 107 bytes.
        self.layout = Layout(Path(tempfile.mkdtemp(prefix="emb-", dir="/tmp")).resolve())
        self.started: list[subprocess.Popen[str]] = []

    def start(self, verb: str, fault: str = "") -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tests.console.launcher.rig", str(self.layout.var)]
        process = subprocess.Popen(
            [*argv, verb, fault], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, verb: str, fault: str = "") -> tuple[int, str]:
        process = self.start(verb, fault)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def reached(self, step: str) -> bool:
        try:
            return step in (self.layout.var / "steps").read_text().splitlines()
        except FileNotFoundError:
            return False

    def runs(self) -> bool:
        return bool(
            runtime_environment.supervisor_pid(self.layout) or stack.find_leftovers(self.layout)
        )

    def assert_set_up(self) -> None:
        pid = runtime_environment.supervisor_pid(self.layout)
        assert pid
        assert [name for name in STEPS if not (self.layout.var / name).exists()] == []
        programs = stack.list_programs(self.layout)
        assert programs is not None
        assert list(programs) == ["idle"]
        keepers = [  # a fork that is about to become a program has the same command line
            p
            for p in stack.find_leftovers(self.layout)
            if "supervisord.conf" in p.cmdline()[-1] and p.ppid() != pid
        ]
        assert [p.pid for p in keepers] == [pid]
        assert json.loads(self.layout.kept_environment.read_text())["supervisor"] == pid
        assert read_facts(self.layout)["completed"] == pid

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        stack.kill_leftovers(self.layout)
        shutil.rmtree(self.layout.var)


@pytest.fixture
def interrupted_launcher() -> Iterator[Rig]:
    made = Rig()
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    "step",
    [
        "after prepare",
        "after Starting processes",
        "after emberline_admin",
        "before seed-demo",
        "before wait",
    ],
)
def test_next_up_completes_a_killed_one(interrupted_launcher: Rig, step: str) -> None:
    code, _ = interrupted_launcher.run("up", f"{step}:SIGKILL")
    assert code == -signal.SIGKILL
    code, output = interrupted_launcher.run("up")
    assert code == 0, output
    interrupted_launcher.assert_set_up()
    code, output = interrupted_launcher.run("up")
    assert (code, "already running" in output) == (0, True), output
    assert interrupted_launcher.run("down")[0] == 0
    assert not interrupted_launcher.runs()


@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("after prepare", "SIGINT"),
        ("after Starting processes", "SIGTERM"),
        ("before seed-demo", "SIGINT"),
    ],
)
def test_interrupted_up_leaves_nothing(interrupted_launcher: Rig, step: str, number: str) -> None:
    code, output = interrupted_launcher.run("up", f"{step}:{number}")
    assert code == 130, output
    assert not interrupted_launcher.runs()


def test_interrupted_resumed_up_stops_no_running_program(interrupted_launcher: Rig) -> None:
    interrupted_launcher.run("up", "before wait:SIGKILL")
    serving = runtime_environment.supervisor_pid(interrupted_launcher.layout)
    code, output = interrupted_launcher.run("up", "before wait:SIGINT")
    assert code == 130
    assert "make down" in output
    assert runtime_environment.supervisor_pid(interrupted_launcher.layout) == serving


@pytest.mark.parametrize("step", ["before prepare", "after Starting processes", "before wait"])
def test_down_stops_a_running_up(interrupted_launcher: Rig, step: str) -> None:
    preparing = interrupted_launcher.start("up", f"{step}:hang")
    until(lambda: interrupted_launcher.reached(step))
    code, output = interrupted_launcher.run("down")
    assert code == 0, output
    assert f"(pid {preparing.pid})" in output
    assert "Everything is stopped." in output
    assert preparing.wait(60) == 130
    assert not interrupted_launcher.runs()


def test_second_up_names_the_first(interrupted_launcher: Rig) -> None:
    first = interrupted_launcher.start("up", "after Starting processes:hang")
    until(lambda: interrupted_launcher.reached("after Starting processes"))
    code, output = interrupted_launcher.run("up")
    assert code == 1
    assert f"Another `make up` (pid {first.pid}) is running here" in output


def test_concurrent_downs_both_succeed(interrupted_launcher: Rig) -> None:
    assert interrupted_launcher.run("up")[0] == 0
    both = [interrupted_launcher.start("down") for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("\nStopped. `make up` restores" in f"\n{output}" for output in outputs) == 1
    assert not interrupted_launcher.runs()
    assert interrupted_launcher.run("down") == (0, "Nothing is running.\n")


def test_down_without_a_setup_makes_no_folder(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "console.launcher", "down"]
    env = {**os.environ, "EMBERLINE_VAR": str(tmp_path / "var")}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Nothing is running.\n")
    assert not (tmp_path / "var").exists()


def test_step_ends_with_its_killed_launcher(tmp_path: Path) -> None:
    """Otherwise the next `up` would migrate concurrently."""
    code = (
        "import sys; from pathlib import Path; from console.launcher.progress import run;"
        "run([sys.executable, '-S', '-c', 'import os, signal, sys;"
        "open(sys.argv[1], chr(119)).write(str(os.getpid())); os.rename(sys.argv[1],"
        "sys.argv[1] + chr(46)); signal.pause()', sys.argv[1]], 'failed')"
    )
    mark = tmp_path / "pid"
    launcher = subprocess.Popen([sys.executable, "-c", code, str(mark)], cwd=ROOT)
    step = int(until(lambda: Path(f"{mark}.").exists() and Path(f"{mark}.").read_text()))
    launcher.kill()
    launcher.wait()
    until(lambda: not runs(step))


def test_unknown_lock_holder_is_not_killed(interrupted_launcher: Rig) -> None:
    interrupted_launcher.layout.prepare()
    stranger = subprocess.Popen([shutil.which("sleep") or "/bin/sleep", "60"])
    try:
        (interrupted_launcher.layout.run / "up.lock").write_text(f"up   {stranger.pid:12}\n")
        assert not lock._is_launcher(stranger.pid)
        assert lock._is_launcher(0) is False
        with lock.take_over_lock(interrupted_launcher.layout) as ended:
            assert ended is False, "nobody held it"
        assert stranger.poll() is None
        with (
            lock.hold_lock(interrupted_launcher.layout, "up"),
            pytest.raises(StepFailed, match=f"pid {os.getpid()}"),
        ):
            with lock.hold_lock(interrupted_launcher.layout, "up"):
                pytest.fail("held twice")
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.django_db
def test_admin_with_an_unshown_password_gets_another(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("emberline_admin", "--create")
    first = capsys.readouterr().out
    call_command("emberline_admin", "--create", "--renew-unused")
    second = capsys.readouterr().out
    assert "password:" in first
    assert "password:" in second
    password = second.partition("password: ")[2].split()[0]
    assert User.objects.get().check_password(password)
    call_command("emberline_admin", "--create")
    assert "nothing was changed" in capsys.readouterr().out
    User.objects.update(last_login=timezone.now())
    call_command("emberline_admin", "--create", "--renew-unused")
    assert "nothing was changed" in capsys.readouterr().out
