"""Exits, kills and restarts under a real supervisord leave no process behind and lose none."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.processkit import leftovers
from console.provisioners.base import (
    PORT_TAKEN,
    Observation,
    Ref,
    ReplicaObservation,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.local import folders, state
from console.provisioners.local.rpc import Supervisor
from console.provisioners.local.supervisord import (
    include_dir,
    log_path,
    render_program,
    socket_path,
)
from tests.console.provisioners.conftest import LocalRig
from tests.console.provisioners.contract import gone, settle
from tests.support.waiting import until


def helpers(local: LocalRig, name: str) -> dict[str, int]:
    """Return the pids last printed by the tiny server."""
    found = {}
    for line in log_path(local.var, name).read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word in ("child", "daemon"):
            found[word] = int(rest)
    return found


def both_helpers(local: LocalRig, name: str) -> dict[str, int]:
    """Return them once the log, which supervisord writes, has both."""
    found = helpers(local, name)
    return found if len(found) == 2 else {}


def alive(pid: int) -> bool:
    return any(p.pid == pid and not p.is_zombie for p in leftovers.processes())


def launcher_of(replica: ReplicaObservation) -> int:
    return next(p.parent for p in leftovers.processes() if p.pid == replica.pid)


def again(local: LocalRig, name: str, what: Callable[[ReplicaObservation], bool]) -> Observation:
    """Observe, without apply, until every replica satisfies the condition."""

    def seen() -> Observation | None:
        observed = local.provisioner.observe(ref)
        return observed if all(what(r) for r in observed.replicas) else None

    ref = Ref("local", name)
    return until(seen)


def ready_after(restarts: int) -> Callable[[ReplicaObservation], bool]:
    return lambda r: r.state is ReplicaState.READY and r.restarts >= restarts


@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_kill_9_ends_every_child(local: LocalRig, victim: str) -> None:
    spec = local.spec("demo", 1, "1", "--child", "--daemon")
    before = settle(local, spec).replicas[0]
    old = until(lambda: both_helpers(local, "demo-0"))
    assert all(alive(pid) for pid in old.values())
    os.kill(before.pid if victim == "worker" else launcher_of(before), signal.SIGKILL)
    after = again(local, "demo", ready_after(1)).replicas[0]
    assert after.pid != before.pid
    assert after.urls == before.urls
    assert not alive(before.pid)
    assert not any(alive(pid) for pid in old.values())

    def as_printed() -> bool:
        expected = {after.pid, launcher_of(after), *helpers(local, "demo-0").values()}
        return set(local.supervised.processes()) == expected

    until(as_printed, what="the processes of the new run, and no other")


def test_delete_ends_children_and_processes_that_ignore_term(local: LocalRig) -> None:
    spec = dataclasses.replace(
        local.spec("demo", 1, "1", "--child", "--daemon", "--stubborn"), stop_grace_s=1
    )
    settle(local, spec)
    ref = local.provisioner.apply(spec)
    local.provisioner.delete(ref)
    gone(local, ref)
    assert local.supervised.processes() == []
    assert list(include_dir(local.var).iterdir()) == []
    assert list(state.workloads_dir(local.var).iterdir()) == []
    assert not log_path(local.var, "demo-0").exists()
    assert Supervisor(socket_path(local.var)).all() == {}


def test_launcher_killed_while_stopping_leaves_no_child(local: LocalRig) -> None:
    spec = local.spec("demo", 1, "1", "--child", "--daemon", "--stubborn")
    replica = settle(local, spec).replicas[0]
    old, launcher = until(lambda: both_helpers(local, "demo-0")), launcher_of(replica)
    ref = local.provisioner.apply(spec)
    local.provisioner.delete(ref)
    os.kill(launcher, signal.SIGKILL)
    gone(local, ref)
    assert not any(alive(pid) for pid in old.values())


def test_lost_term_is_repeated(local: LocalRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(*args: object) -> str:
        """Ignore the stop signal, like a TERM between fork and exec."""
        return render_program(*args).replace("stopsignal=TERM", "stopsignal=WINCH")  # type: ignore

    monkeypatch.setattr(folders, "render_program", deaf)
    spec = dataclasses.replace(local.spec("demo", 1), stop_grace_s=600)
    settle(local, spec)
    ref = local.provisioner.apply(spec)
    local.provisioner.delete(ref)
    gone(local, ref)


def test_restarted_supervisord_finds_all_programs(local: LocalRig) -> None:
    spec = local.spec("demo", 2)
    before = settle(local, spec)
    local.supervised.stop()
    assert local.supervised.processes() == []
    local.supervised.start()
    after = again(local, "demo", ready_after(0))
    assert [r.urls for r in after.replicas] == [r.urls for r in before.replicas]
    assert [r.spec_hash for r in after.replicas] == [spec.spec_hash] * 2
    assert [r.restarts for r in after.replicas] == [0, 0]
    assert {r.pid for r in after.replicas}.isdisjoint(r.pid for r in before.replicas)


def test_killed_supervisord_leaves_no_orphan(local: LocalRig) -> None:
    spec = local.spec("demo", 2, "1", "--child", "--daemon")
    before = settle(local, spec)
    local.supervised.kill()
    until(lambda: not local.supervised.processes(), what="no process without its keeper")
    local.supervised.start()
    after = again(local, "demo", ready_after(0))
    assert [r.urls for r in after.replicas] == [r.urls for r in before.replicas]


def test_crashing_replica_is_retried_and_fixed_by_a_new_spec(local: LocalRig) -> None:
    bad = local.spec("demo", 1, "1", "--die")
    ref = local.provisioner.apply(bad)

    def died_twice() -> ReplicaObservation | None:
        found = local.provisioner.observe(ref).replicas[0]
        return found if found.restarts >= 2 and found.state is ReplicaState.BACKOFF else None

    dying = until(died_twice)
    assert "exit status 1: told to die" in dying.message
    assert "told to die" in local.provisioner.logs(ref)["demo-0"]
    assert settle(local, local.spec("demo", 1)).replicas[0].restarts == 0


def test_crash_cause_is_that_of_the_last_run(local: LocalRig) -> None:
    script = (
        "from pathlib import Path; marker = Path('ran'); first = not marker.exists();"
        "marker.touch(); print('noise', flush=True);"
        "raise (ValueError('first run') if first else RuntimeError('second run'))"
    )
    argv = (sys.executable, "-S", "-c", script)
    spec = dataclasses.replace(local.spec("demo", 1), argv=argv)
    ref = local.provisioner.apply(spec)

    def logged(words: str) -> bool:
        return words in local.provisioner.observe(ref).replicas[0].message

    until(lambda: logged("exit status 1: RuntimeError: second run"))
    assert not logged("first run")
    assert "ValueError: first run" in local.provisioner.logs(ref)["demo-0"]


def test_missing_command_is_reported(local: LocalRig) -> None:
    spec = dataclasses.replace(local.spec("demo", 1), argv=("/nowhere/vllm",))
    ref = local.provisioner.apply(spec)
    until(lambda: "cannot start /nowhere" in local.provisioner.observe(ref).replicas[0].message)
    assert "cannot start /nowhere/vllm" in local.provisioner.logs(ref)["demo-0"]


def test_unready_replica_stops_the_rollout(local: LocalRig) -> None:
    good, bad = local.spec("demo", 2), local.spec("demo", 2, "2", "--unready")
    settle(local, good)
    ref = local.provisioner.apply(bad)

    def replaced() -> Observation | None:
        seen = local.provisioner.observe(local.provisioner.apply(bad))
        return seen if "503" in seen.replicas[0].message else None

    until(replaced)
    local.provisioner.apply(bad)
    seen = local.provisioner.observe(ref)
    assert [r.state for r in seen.replicas] == [ReplicaState.STARTING, ReplicaState.READY]
    assert seen.replicas[1].spec_hash == good.spec_hash
    settle(local, good)  # roll back


def test_replica_stopped_by_hand_is_started_by_the_next_apply(local: LocalRig) -> None:
    spec = local.spec("demo", 1)
    settle(local, spec)
    Supervisor(socket_path(local.var)).stop("demo-0")
    again(local, "demo", lambda r: r.state is ReplicaState.EXITED)
    assert settle(local, spec).replicas[0].restarts == 0


def test_port_taken_meanwhile_is_replaced(local: LocalRig) -> None:
    spec = local.spec("demo", 1)
    before = settle(local, spec).replicas[0]
    supervisor = Supervisor(socket_path(local.var))
    supervisor.stop("demo-0")
    again(local, "demo", lambda r: r.state is ReplicaState.EXITED)
    port = int(before.urls["http"].rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        # As after `make up`: supervisord starts it on its previous port.
        supervisor.remove("demo-0")
        supervisor.add("demo-0")
        again(local, "demo", lambda r: r.state is ReplicaState.BACKOFF)
        after = settle(local, spec).replicas[0]
    assert after.urls != before.urls


def test_lost_state_file_leaves_no_orphan(local: LocalRig) -> None:
    spec = local.spec("demo", 1)
    before = settle(local, spec).replicas[0]
    (state.workload_dir(local.var, "demo") / "state.json").unlink()
    after = settle(local, spec).replicas[0]
    assert not alive(before.pid)
    (state.workload_dir(local.var, "demo") / "state.json").write_text("{")
    ref = local.provisioner.apply(spec)
    local.provisioner.delete(ref)
    gone(local, ref)
    assert not alive(after.pid)
    assert local.supervised.processes() == []


def test_lost_folder_leaves_no_orphan(local: LocalRig) -> None:
    spec = local.spec("demo", 1)
    settle(local, spec)
    ref = local.provisioner.apply(spec)
    shutil.rmtree(state.workload_dir(local.var, "demo"))
    assert local.provisioner.observe(ref).exists
    local.provisioner.delete(ref)
    gone(local, ref)
    assert local.supervised.processes() == []
    assert list(include_dir(local.var).glob("*")) == []


def test_delete_while_supervisord_is_down(local: LocalRig) -> None:
    spec = local.spec("demo", 1)
    settle(local, spec)
    ref = local.provisioner.apply(spec)
    local.supervised.stop()
    with pytest.raises(TemporaryError) as caught:
        local.provisioner.delete(ref)
    assert caught.value.reason == "SupervisorUnavailable"
    assert "make up" in caught.value.message
    local.supervised.start()
    assert Supervisor(socket_path(local.var)).all() == {}  # not even briefly
    gone(local, ref)
    assert not Path(state.workload_dir(local.var, "demo")).exists()


def test_router_port_is_kept_and_its_holder_named(local: LocalRig) -> None:
    """Clients use it. Workers and cache nodes may move to a new address."""
    spec = dataclasses.replace(local.spec("demo-router", 1), role="router")
    before = settle(local, spec).replicas[0]
    port = int(before.urls["http"].rpartition(":")[2])
    supervisor = Supervisor(socket_path(local.var))
    supervisor.stop("demo-router-0")
    again(local, "demo-router", lambda r: r.state is ReplicaState.EXITED)
    with socket.create_server(("127.0.0.1", port)):
        local.provisioner.apply(spec)
        seen: set[ReplicaState] = set()

        def both() -> bool:
            found = local.provisioner.observe(local.provisioner.apply(spec)).replicas[0]
            seen.add(found.state)
            # The report is stable between restart attempts.
            assert found.reason == PORT_TAKEN
            assert f"Port {port} is in use by pid {os.getpid()} (" in found.message
            return ReplicaState.BACKOFF in seen and len(seen) > 1

        until(both)
    after = settle(local, spec).replicas[0]
    assert (after.urls, after.reason) == (before.urls, "")


def test_unknown_workload_gets_its_preferred_port_if_free(local: LocalRig) -> None:
    def started(port: int) -> int:
        spec = dataclasses.replace(local.spec("demo", 1), preferred_ports={"http": port})
        return port_of(settle(local, spec).replicas[0])

    other = port_of(settle(local, local.spec("other", 1)).replicas[0])
    chosen = started(other)
    assert chosen != other
    assert started(other) == chosen, "known by now"
    for port in (80, chosen):
        ref = Ref("local", "demo")
        local.provisioner.delete(ref)
        gone(local, ref)
        assert (started(port) == port) is (port == chosen)
    local.provisioner.delete(ref)
    gone(local, ref)
    with socket.create_server(("127.0.0.1", chosen)):
        assert started(chosen) != chosen


def port_of(replica: ReplicaObservation) -> int:
    return int(replica.urls["http"].rpartition(":")[2])


def served(local: LocalRig, spec: WorkloadSpec) -> tuple[ReplicaObservation, ...]:
    """Settle, and wait for each replica's own process: at a shared port, the answer of one makes
    all of them ready."""
    ref = local.provisioner.apply(spec)

    def started() -> tuple[ReplicaObservation, ...]:
        launchers = {info.pid for info in Supervisor(socket_path(local.var)).all().values()}
        found = local.provisioner.observe(ref).replicas
        return found if launchers.isdisjoint(replica.pid for replica in found) else ()

    settle(local, spec)
    return until(started)


def test_replicas_of_a_shared_port_have_one_address(local: LocalRig) -> None:
    def routers(count: int) -> WorkloadSpec:
        spec = local.spec("demo-router", count, "1", "--shared")
        return dataclasses.replace(spec, role="router", shared_ports=("http",))

    one = settle(local, routers(1)).replicas
    three = served(local, routers(3))
    assert {r.urls["http"] for r in three} == {one[0].urls["http"]}
    assert three[:1] == one, "not restarted"
    assert not any(r.reason for r in three), "its port is not taken by a stranger"
    again = settle(local, routers(2)).replicas
    assert again == three[:2]


def test_replicas_of_a_shared_port_do_not_report_each_other(local: LocalRig) -> None:
    spec = local.spec("demo-router", 2, "1", "--shared", "--unready")
    spec = dataclasses.replace(spec, role="router", shared_ports=("http",))
    ref = local.provisioner.apply(spec)

    def probed() -> tuple[ReplicaObservation, ...]:
        found = local.provisioner.observe(ref).replicas
        return found if all("503" in r.message or r.reason for r in found) else ()

    def listening(replica: ReplicaObservation) -> bool:
        log = log_path(local.var, replica.name)
        return log.is_file() and "argv" in log.read_text()

    until(lambda: all(map(listening, local.provisioner.observe(ref).replicas)))
    assert [r.reason for r in until(probed)] == ["", ""]
