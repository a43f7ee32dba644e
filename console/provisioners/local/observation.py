"""Observe a workload's replicas from supervisord, launcher records and probes. Read-only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from console.processkit import leftovers
from console.processkit.launch import ENDED, LaunchRun
from console.provisioners.base import PORT_TAKEN, ReplicaObservation, ReplicaState
from console.provisioners.crash_cause import death_text, ending_text, exit_text
from console.provisioners.local import folders, ports, probes, state
from console.provisioners.local.ports import HOST
from console.provisioners.local.rpc import ProcessInfo, ProcessState
from console.provisioners.local.state import Goal, Replica, Workload
from console.provisioners.local.supervisord import log_path

_RUNNING = (ProcessState.STARTING, ProcessState.RUNNING)
_CAUSE_LINES = 600
_LATELY_S = 300.0
"""Period after a restart in which the previous exit is reported."""
_NOT_SERVING = (ReplicaState.STARTING, ReplicaState.BACKOFF, ReplicaState.UNKNOWN)
_NEXT_APPLY = "Not running; started by the next apply."


def observe(
    var: Path, workload: Workload, infos: Mapping[str, ProcessInfo], probe: bool = True
) -> tuple[ReplicaObservation, ...]:
    """Return observations; without `probe`, a running replica counts as starting."""
    observations = [
        _observe_replica(var, workload.name, index, replica, infos.get(f"{workload.name}-{index}"))
        for index, replica in sorted(workload.replicas.items())
    ]
    if not probe:
        return tuple(observations)
    running = [r for r in observations if r.state is ReplicaState.STARTING]
    probed = [r for r in running if workload.replicas[r.index].probe_port]
    answers = probes.probe_targets([_target(workload.replicas[r.index]) for r in probed])
    judged = {r.index: _probe_state(r, answer) for r, answer in zip(probed, answers, strict=True)}
    pids = {r.pid for r in observations if r.pid}  # may share a port
    return tuple(_with_port(workload, judged.get(r.index, r), pids) for r in observations)


def _observe_replica(
    var: Path, name: str, index: int, replica: Replica, info: ProcessInfo | None
) -> ReplicaObservation:
    folder = state.replica_dir(var, name, index)
    run = LaunchRun.read(folder)
    replica_state, message = _state(replica, info)
    started_at = info.started_at if info else 0.0
    if replica_state is ReplicaState.BACKOFF and info is not None:
        died = _death(var, f"{name}-{index}", run) or info.spawn_error
        message = f"{ending_text(died)}; restarting."
    elif (
        replica_state is ReplicaState.STARTING
        and run.deaths
        and time.time() - started_at < _LATELY_S
    ):
        message = f"{ending_text(_death(var, f'{name}-{index}', run))} and runs again."
    pid = info.pid if info else 0
    return ReplicaObservation(
        name=f"{name}-{index}",
        index=index,
        state=replica_state,
        spec_hash=replica.spec_hash,
        urls={port: f"http://{HOST}:{number}" for port, number in replica.ports.items()},
        pid=served_pid(pid),
        started_at=started_at,
        restarts=run.deaths,
        message=message,
        channels={
            channel: f"ipc://{folder / folders.socket_name(channel)}"
            for channel in replica.channels
        },
    )


def _death(var: Path, program: str, run: LaunchRun) -> str:
    """Describe how the last process ended, with the cause from its part of the log."""
    killed = run.last_exit.startswith("signal ")
    how = exit_text(0, int(run.last_exit.split()[1])) if killed else run.last_exit
    before, ended, _ = folders.tail(log_path(var, program), _CAUSE_LINES).rpartition(ENDED)
    own = before.rpartition(ENDED)[2] if ended else ""
    return death_text(how, own.partition("\n")[2] if ENDED in before else own, by_signal=killed)


def _with_port(workload: Workload, seen: ReplicaObservation, pids: set[int]) -> ReplicaObservation:
    """Add the process that holds a fixed port the replica needs. `pids`: of all replicas."""
    if seen.state not in _NOT_SERVING:
        return seen
    last_ports = workload.replicas[seen.index].ports
    for port in (
        last_ports[name] for name in state.fixed_ports(workload.role) if name in last_ports
    ):
        if ports.is_free(port):
            continue
        pid, text = ports.port_holder(port)
        if pid not in pids:
            message = (
                f"Port {port} is in use by {text}. The same port is retried every few seconds."
            )
            return replace(seen, reason=PORT_TAKEN, message=message)
    return seen


def _state(replica: Replica, info: ProcessInfo | None) -> tuple[ReplicaState, str]:
    if replica.goal is Goal.REMOVE:
        return ReplicaState.STOPPING, "Being removed."
    if replica.goal is Goal.REPLACE:
        return ReplicaState.STOPPING, "Being replaced."
    if info is None or info.state is ProcessState.STOPPED:
        return ReplicaState.EXITED, _NEXT_APPLY
    if info.state in _RUNNING:
        return ReplicaState.STARTING, ""
    if info.state in (ProcessState.BACKOFF, ProcessState.EXITED):
        return ReplicaState.BACKOFF, ""
    if info.state is ProcessState.STOPPING:
        return ReplicaState.STOPPING, "Stopped outside Emberline."
    if info.state is ProcessState.FATAL:
        return (
            ReplicaState.EXITED,
            f"Restarts exhausted ({info.spawn_error}); started by the next apply.",
        )
    return ReplicaState.UNKNOWN, "Unknown to supervisord."


def _probe_state(replica: ReplicaObservation, answer: str) -> ReplicaObservation:
    if answer == probes.OK:
        return replace(replica, state=ReplicaState.READY, message="")
    late = answer.startswith(probes.LATE)
    state = ReplicaState.UNKNOWN if late else ReplicaState.STARTING
    # A hung replica has been up: the exit of an earlier process is unrelated.
    before = "" if late or not replica.message else f"{replica.message} "
    return replace(replica, state=state, message=f"{before}Health: {answer}.")


def _target(replica: Replica) -> probes.ProbeTarget:
    port = replica.ports[replica.probe_port]
    return probes.ProbeTarget(HOST, port, replica.probe_path, replica.probe_timeout_s)


def served_pid(launcher: int) -> int:
    """Return the process started by the launcher, or the launcher itself before that."""
    below = leftovers.child_pids(launcher) if launcher else []
    return below[0] if below else launcher
