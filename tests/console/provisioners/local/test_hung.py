"""A stopped router is killed, and its supervisor starts another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from console.provisioners.base import ReplicaObservation, ReplicaState
from console.provisioners.local import hung
from console.provisioners.local.hung import HungProcesses


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(started.pid, signal.SIGSTOP)
    yield started
    started.kill()
    started.wait()


def observed(process: subprocess.Popen[bytes], state: ReplicaState) -> ReplicaObservation:
    return ReplicaObservation("demo-router-0", 0, state, "hash", {}, process.pid)


def test_stopped_router_is_killed_after_a_while(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    late = [observed(process, ReplicaState.UNKNOWN)]
    processes.end("router", late)
    now += hung.HUNG_S - 0.1
    processes.end("router", late)
    assert process.poll() is None
    now += 0.1
    processes.end("router", late)
    assert process.wait(60) == -signal.SIGKILL
    processes.end("router", late)  # it is gone: nothing to do


def test_router_that_responds_again_is_left_alone(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    for _ in range(5):
        processes.end("router", [observed(process, ReplicaState.UNKNOWN)])
        now += hung.HUNG_S - 1
        processes.end("router", [observed(process, ReplicaState.READY)])
    assert process.poll() is None


@pytest.mark.parametrize("role", ["worker", "cache-node", ""])
def test_only_routers_are_killed(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    now = 100.0
    monkeypatch.setattr(hung.time, "monotonic", lambda: now)
    processes = HungProcesses()
    for _ in range(3):
        processes.end(role, [observed(process, ReplicaState.UNKNOWN)])
        now += hung.HUNG_S
    assert process.poll() is None
