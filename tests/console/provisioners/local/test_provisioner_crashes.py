"""Callers that crash between any two steps, and concurrent callers."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.base import Observation, Ref, TemporaryError, WorkloadSpec
from console.provisioners.local import folders, state
from console.provisioners.local.provisioner import LocalProvisioner
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import include_dir, socket_path
from tests.console.provisioners.conftest import LocalRig
from tests.support.waiting import until

STEPS: list[tuple[Any, str]] = [
    (Supervisor, "reread"),
    (Supervisor, "add"),
    (Supervisor, "stop"),
    (Supervisor, "remove"),
    (state, "save"),
    (folders, "prepare"),
    (folders, "write_program"),
    (folders, "remove_replica"),
]


class Died(BaseException):
    """Simulated kill; not an Exception, so that no handler catches it."""


class Bomb(threading.local):
    """Counts the steps of this thread and raises before the chosen one."""

    def __init__(self) -> None:
        self.left = -1

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise Died
            return function(*args, **kwargs)

        return step


@pytest.fixture
def bomb(monkeypatch: pytest.MonkeyPatch) -> Bomb:
    found = Bomb()
    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, found.wrap(getattr(owner, name)))
    return found


def life(local: LocalRig, bomb: Bomb, name: str, dies_at: int) -> bool:
    """Create two replicas, change them, scale to one, delete; crash once at step `dies_at`. Return
    whether that step was reached.
    """
    bomb.left = dies_at
    ref = Ref("local", name)

    def call(verb: Callable[[], object]) -> None:
        try:
            verb()
        except Died:
            bomb.left = -1

    def reach(spec: WorkloadSpec) -> None:
        def done() -> bool:
            call(lambda: LocalProvisioner(local.var).apply(spec))
            seen: list[Observation] = []
            call(lambda: seen.append(LocalProvisioner(local.var).observe(ref)))
            ready = seen[0].ready(spec.spec_hash) if seen else ()
            return bool(seen) and len(ready) == len(seen[0].replicas) == spec.replicas

        until(done, 90, f"{name} ({dies_at}) as wanted")

    def gone() -> bool:
        call(lambda: LocalProvisioner(local.var).delete(ref))
        seen: list[Observation] = []
        call(lambda: seen.append(LocalProvisioner(local.var).observe(ref)))
        return bool(seen) and not seen[0].exists

    # A child of each server, which must end with it, in every fourth life: each is a start more.
    child = ("--child",) if dies_at % 4 == 0 else ()
    reach(local.spec(name, 2, "1", *child))
    reach(local.spec(name, 1, "2", *child))
    until(gone, 60, f"{name} ({dies_at}) gone")
    survived = bomb.left > 0
    bomb.left = -1
    return not survived


@pytest.mark.timeout(300)
def test_caller_may_be_killed_at_any_step(local: LocalRig, bomb: Bomb) -> None:
    steps = range(1, 49)  # a run has about 46
    with ThreadPoolExecutor(8) as pool:
        lives = [pool.submit(life, local, bomb, f"w{n}", n) for n in steps]
        died = [one.result() for one in lives]
    assert sum(died) >= 36, "the test no longer reaches the later steps"
    assert Supervisor(socket_path(local.var)).all() == {}
    assert local.supervised.processes() == []
    assert list(include_dir(local.var).iterdir()) == []
    assert list(state.workloads_dir(local.var).iterdir()) == []


def _apply(var: Path, spec: WorkloadSpec, times: int) -> None:
    for _ in range(times):
        LocalProvisioner(var).apply(spec)


def test_concurrent_callers_make_one_workload(local: LocalRig) -> None:
    spec = local.spec("demo", 3)
    context = multiprocessing.get_context("spawn")
    callers = [context.Process(target=_apply, args=(local.var, spec, 5)) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert caller.exitcode == 0
    ref = Ref("local", "demo")
    seen = until(
        lambda: (found := local.provisioner.observe(ref)) and len(found.ready()) == 3 and found
    )
    assert [r.restarts for r in seen.replicas] == [0, 0, 0]
    # Exactly one launcher and one server each.
    assert len(local.supervised.processes()) == 6


def test_concurrently_started_workloads_get_different_ports(local: LocalRig) -> None:
    specs = [local.spec(f"w{n}", 2) for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        refs = list(pool.map(local.provisioner.apply, specs))
    urls = [r.urls["http"] for ref in refs for r in local.provisioner.observe(ref).replicas]
    assert len(set(urls)) == 12


@pytest.mark.parametrize("lock", ["workload", "ports"])
def test_callers_wait_for_each_other_with_a_timeout(
    local: LocalRig, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr(state, "_WAIT_S", 0.05)
    spec, ref = local.spec("demo", 1), Ref("local", "demo")
    verbs: list[Callable[[], object]] = [lambda: local.provisioner.apply(spec)]
    if lock == "workload":
        verbs += [lambda: local.provisioner.observe(ref), lambda: local.provisioner.delete(ref)]
    held = state.workload_lock(local.var, "demo") if lock == "workload" else None
    with held or state.ports_lock(local.var):
        for verb in verbs:
            with pytest.raises(TemporaryError) as caught:
                verb()
            assert caught.value.reason == "Busy"
        assert local.supervised.processes() == []
    local.provisioner.apply(spec)
