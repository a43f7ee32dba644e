"""A stopped router or worker is killed, and its supervisor starts another one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from console.provisioners.base import ReplicaObservation, ReplicaState
from console.provisioners.local import hung
from console.provisioners.local.hung import HungProcesses


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    code = "import subprocess; subprocess.run(['sh', '-c', 'echo started; sleep 600'])"
    started = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == b"started\n"
    os.kill(started.pid, signal.SIGSTOP)
    yield started
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def observed(process: subprocess.Popen[bytes], state: ReplicaState) -> ReplicaObservation:
    return ReplicaObservation("demo-router-0", 0, state, "hash", {}, process.pid)


@pytest.mark.parametrize("role", ["router", "worker"])
def test_stopped_process_is_killed_after_a_while_with_its_children(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    late = [observed(process, ReplicaState.UNKNOWN)]
    processes.end(role, late)
    now += hung.HUNG_S[role] - 0.1
    (seen,) = processes.end(role, late)
    assert (seen.state, seen.reason) == (ReplicaState.UNKNOWN, "Hung")
    assert process.poll() is None
    now += 0.1
    processes.end(role, late)
    assert process.wait(60) == -signal.SIGKILL
    assert select.select([process.stdout], [], [], 60)[0], "its child has the pipe open"
    processes.end(role, late)  # it is gone: nothing to do
    (again,) = processes.end(role, [replace(late[0], state=ReplicaState.STARTING, pid=1)])
    assert (again.reason, "was restarted" in again.message) == ("Hung", True)
    now += 301
    (again,) = processes.end(role, [replace(late[0], state=ReplicaState.STARTING, pid=1)])
    assert again.reason == "", "another cause"


def test_router_that_responds_again_is_left_alone(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    for _ in range(5):
        processes.end("router", [observed(process, ReplicaState.UNKNOWN)])
        now += hung.HUNG_S["router"] - 1
        processes.end("router", [observed(process, ReplicaState.READY)])
    assert process.poll() is None


@pytest.mark.parametrize("role", ["cache-node", ""])
def test_other_processes_are_not_killed(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    for _ in range(3):
        processes.end(role, [observed(process, ReplicaState.UNKNOWN)])
        now += 600
    assert process.poll() is None
