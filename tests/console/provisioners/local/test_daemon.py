"""supervisord and its programs on an unwritable log, state file or disk."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from supervisor import events, loggers

from console.processkit.changes import SOCKET
from console.provisioners.base import Observation, ReplicaState
from console.provisioners.local import daemon
from console.provisioners.local.daemon import LossyFileHandler
from console.provisioners.local.rpc import ProcessState, Supervisor
from console.provisioners.local.supervisord import (
    Program,
    include_dir,
    log_path,
    render_program,
    socket_path,
)
from tests.console.provisioners.conftest import LocalRig
from tests.support.supervised import Supervised
from tests.support.waiting import until

# On each USR1: write more than a pipe holds, then a mark that shows it was not blocked.
CHATTY = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
round = 0
while True:
    open(f"{sys.argv[1]}/round-{round}", "w").close()
    signal.sigwait({signal.SIGUSR1})
    round += 1
    os.write(1, b"x" * 300_000 + b"end of round %d\\n" % round)
"""


@pytest.fixture
def chatty(tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised()
    try:
        script = tmp_path / "chatty.py"
        script.write_text(CHATTY)
        argv = (sys.executable, "-S", str(script), str(tmp_path))
        text = render_program(found.var, Program("chatty", argv, start_secs=0), found.var)
        (include_dir(found.var) / "chatty.conf").write_text(text)
        found.start()
        yield found
    finally:
        found.close()


def pid_of(supervised: Supervised, other_than: int = 0) -> int:
    def runs() -> int:
        info = Supervisor(socket_path(supervised.var)).all()["chatty"]
        return info.pid if info.state is ProcessState.RUNNING and info.pid != other_than else 0

    return until(runs, what="chatty runs")


def append_log(supervised: Supervised, marks: Path, number: int) -> None:
    os.kill(pid_of(supervised), 10)
    until((marks / f"round-{number}").exists, what="the program is not blocked by its log")


def test_unwritable_log_stops_and_blocks_nothing(chatty: Supervised, tmp_path: Path) -> None:
    log = log_path(chatty.var, "chatty")
    until((tmp_path / "round-0").exists)
    assert chatty.process is not None
    keeper = chatty.process.pid
    # From here on every write of supervisord fails, to its log and to stderr.
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    append_log(chatty, tmp_path, 1)
    append_log(chatty, tmp_path, 2)
    assert Supervisor(socket_path(chatty.var)).all()["chatty"].state is ProcessState.RUNNING
    assert not log.read_text().strip("x")
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    append_log(chatty, tmp_path, 3)
    written = until(lambda: (t := log.read_text()).endswith("end of round 3\n") and t)
    assert "log records dropped: File too large]" in written
    assert chatty.process.poll() is None


def test_crashed_program_is_restarted(chatty: Supervised, tmp_path: Path) -> None:
    until((tmp_path / "round-0").exists)
    log = log_path(chatty.var, "chatty")
    before = pid_of(chatty)
    log.unlink()
    log.mkdir()  # cannot be opened or rotated, even by root
    (tmp_path / "round-0").unlink()
    os.kill(before, 9)
    pid_of(chatty, other_than=before)
    until((tmp_path / "round-0").exists)
    append_log(chatty, tmp_path, 1)
    log.rmdir()
    append_log(chatty, tmp_path, 2)
    assert "log records dropped: Is a directory]" in until(
        lambda: log.is_file() and log.read_text()
    )


@pytest.fixture
def small_disk() -> Iterator[LocalRig]:
    """Provide a rig whose var/ is a 1 MiB file system."""
    try:
        supervised = Supervised(mounted="size=1m,mode=0700")
    except subprocess.CalledProcessError:
        pytest.skip("NOT TESTED on a full file system: this container allows no mount")
    try:
        supervised.start()
        yield LocalRig(supervised)
    finally:
        supervised.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_replica_that_crashes_on_a_full_disk_is_restarted(small_disk: LocalRig) -> None:
    spec = small_disk.spec("demo", 1)
    ref = small_disk.provisioner.apply(spec)

    def ready(other_than: int = 0) -> Observation | None:
        found = small_disk.provisioner.observe(ref)
        (replica,) = found.replicas
        is_new = replica.state is ReplicaState.READY and replica.pid != other_than
        return found if is_new else None

    before = until(ready).replicas[0].pid
    filler = small_disk.var / "filler"
    with filler.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space left"):
        while True:
            stream.write(b"\0" * 4096)
    small_disk.crash(ref, 0)
    until(lambda: ready(before), what="the replica is back while the disk is full")
    assert small_disk.supervised.process is not None
    assert small_disk.supervised.process.poll() is None
    filler.unlink()
    small_disk.provisioner.apply(small_disk.spec("demo", 2))
    until(lambda: len(small_disk.provisioner.observe(ref).replicas) == 2)


def record(text: str) -> loggers.LogRecord:
    return loggers.LogRecord(loggers.LevelsByName.INFO, text.encode())


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EMFILE]
)
@pytest.mark.parametrize("call", ["write", "open", "half"])
def test_faults_drop_complete_records_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    real = os.write

    def fails(*args: object) -> int:
        if call == "half" and args[1] == b"lost\n":
            return real(args[0], b"lo")  # type: ignore[arg-type]
        raise OSError(number, os.strerror(number))

    handler = LossyFileHandler(str(tmp_path / "log"), "a", 1000, 2)
    handler.emit(record("first\n"))
    with monkeypatch.context() as patched:
        patched.setattr(os, "open" if call == "open" else "write", fails)
        if call == "open":
            handler.reopen()
        handler.emit(record("lost\n"))
        handler.emit(record("lost\n"))
        assert handler.dropped == 2
    handler.emit(record("last\n"))
    handler.close()
    notice = f"[2 log records dropped: {os.strerror(number)}]\n"
    assert (tmp_path / "log").read_text() == f"first\n{notice}last\n"


def test_log_is_rotated_and_its_oldest_part_deleted(tmp_path: Path) -> None:
    handler = LossyFileHandler(str(tmp_path / "log"), "a", 8, 2)
    for n in range(7):
        handler.emit(record(f"line {n}\n"))
        handler.emit(record("more\n"))
    handler.close()
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"log": "line 6\nmore\n", "log.1": "line 5\nmore\n", "log.2": "line 4\nmore\n"}


def test_unrotatable_log_does_not_grow(tmp_path: Path) -> None:
    blocked = tmp_path / "log.1" / "not empty"
    blocked.mkdir(parents=True)
    handler = LossyFileHandler(str(tmp_path / "log"), "a", 8, 1)
    for n in range(5):
        handler.emit(record(f"line {n}\n"))
    assert (tmp_path / "log").read_text() == "line 0\nline 1\n"
    assert handler.dropped == 3
    blocked.rmdir()
    blocked.parent.rmdir()
    handler.emit(record("line 5\n"))
    handler.close()
    assert (tmp_path / "log").read_text() == "[3 log records dropped: Is a directory]\nline 5\n"


def test_supervisord_reports_an_invalid_file_to_the_launcher(tmp_path: Path) -> None:
    config = tmp_path / "supervisord.conf"
    config.write_text("[supervisord]\nlogfile_maxbytes=many\n")
    command = [sys.executable, "-m", "console.provisioners.local.daemon", "-n", "-c", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "'many'" in done.stderr


def test_notices_are_sent_again_with_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sender = SimpleNamespace(send=calls.append, resend=lambda: calls.append("again"))
    monkeypatch.setattr(events, "notify", lambda _event: None)
    daemon.announce_states(sender)  # type: ignore[arg-type]
    events.notify(events.Tick60Event(0, None))
    assert calls == []
    events.notify(events.Tick5Event(0, None))
    assert calls == ["again"]


def test_the_end_of_a_process_is_announced(
    supervised: Supervised, local: LocalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = supervised.var / "run" / "changes.sock"
    supervised.stop()
    monkeypatch.setenv(SOCKET, str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(str(path))
        received.settimeout(60)
        supervised.start()
        provisioner = local.another()
        assert provisioner.announces
        ref = provisioner.apply(local.spec("told", 1))
        assert received.recv(256) == b"program/told-0"
        until(lambda: provisioner.observe(ref).ready())
        received.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while received.recv(256):
                pass
        received.settimeout(60)
        local.crash(ref, 0)
        assert received.recv(256) == b"program/told-0"
