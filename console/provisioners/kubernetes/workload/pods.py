"""State, stable reason and message of a pod.

Reports the root reason (OOMKilled rather than CrashLoopBackOff). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from console.provisioners.base import HUNG, ClusterEvent, ReplicaObservation, ReplicaState
from console.provisioners.crash_cause import death_text, exit_text
from console.provisioners.kubernetes.rendering.names import SPEC_HASH, container_name
from console.provisioners.kubernetes.workload.fields import parse_time

Json = dict[str, Any]
_ORDINAL = re.compile(r"-(\d+)$")
_ENDED = ("Failed", "Succeeded")
_STUCK_S = 60.0
"""Time after the grace period by which a live kubelet has ended a pod."""
_SLOW_CREATING_S = 60.0
_LATELY_S = 300.0
"""Time after which not being ready has another cause than the last exit."""
_HUNG = "It was ready and now fails its health check."
_KILL_S = 180.0
"""Time after the last failed health check by which a hung process has ended."""
_KILLED = (0, 137, 143)
"""Exit codes of a process ended by the kubelet."""


def replica(
    pod: Json, index: int, role: str, ports: tuple[str, ...], channels: tuple[str, ...], now: float
) -> ReplicaObservation:
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    name = main_container(pod, role)
    mine = _status_of(status, name)
    state, reason, message = _state_of(pod, mine, now)
    address = str(status.get("podIP") or "")
    numbers = _numbers(spec, name) if address else {}
    host = f"[{address}]" if ":" in address else address
    running = (mine.get("state") or {}).get("running") or {}
    return ReplicaObservation(
        name=metadata["name"],
        index=index,
        state=state,
        spec_hash=str((metadata.get("labels") or {}).get(SPEC_HASH, "")),
        urls={port: f"http://{host}:{numbers[port]}" for port in ports if port in numbers},
        started_at=parse_time(running.get("startedAt")),
        restarts=int(mine.get("restartCount") or 0),
        message=message,
        channels={
            channel: f"tcp://{host}:{numbers[channel]}"
            for channel in channels
            if channel in numbers
        },
        reason=reason,
        node=str(spec.get("nodeName") or ""),
        created_at=parse_time(metadata.get("creationTimestamp")),
        containers=_containers(spec, name),
    )


def with_events(
    replicas: Iterable[ReplicaObservation], pods: Iterable[Json], happened: Iterable[ClusterEvent]
) -> tuple[ReplicaObservation, ...]:
    """Mark replicas whose liveness probe failed, in this or the previous process, as hung.

    The exit status does not show a kill by the kubelet; only the probe's event does.
    """
    failed = {
        event.subject.removeprefix("Pod/"): event
        for event in happened
        if event.reason == "Unhealthy" and event.message.startswith("Liveness probe failed")
    }
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    return tuple(
        _hung(replica, by_name[replica.name], failed[replica.name])
        if replica.name in failed
        else replica
        for replica in replicas
    )


def _hung(seen: ReplicaObservation, pod: Json, probe: ClusterEvent) -> ReplicaObservation:
    if seen.state in (ReplicaState.READY, ReplicaState.STOPPING, ReplicaState.EXITED):
        return seen
    why = probe.message.rstrip(".")
    if seen.started_at and probe.last_at >= seen.started_at:
        text = f"{_HUNG} {why}. The kubelet restarts it."
        return replace(seen, state=ReplicaState.UNKNOWN, reason=HUNG, message=text)
    last = last_termination(_status_of(pod.get("status") or {}, seen.containers[0]))
    after_s = parse_time(last.get("finishedAt")) - probe.last_at
    by_kubelet = last.get("exitCode") in _KILLED and last.get("reason") != "OOMKilled"
    if not by_kubelet or not 0 <= after_s < _KILL_S:
        return seen
    text = f"It hung and was restarted by the kubelet ({why})."
    return replace(seen, reason=HUNG, message=text)


def last_termination(container: Json) -> Json:
    """Return `terminated` of the current or previous state, {} if none."""
    states = (container.get("state") or {}, container.get("lastState") or {})
    return next((state["terminated"] for state in states if state.get("terminated")), {})


def main_status(pod: Json, role: str) -> Json:
    """Return the status of the main container, {} before it has one."""
    return _status_of(pod.get("status") or {}, main_container(pod, role))


def has_ended(pod: Json) -> bool:
    """Return whether the pod ended and is replaced: evicted, or its node shut down."""
    return (pod.get("status") or {}).get("phase") in _ENDED


def order(pod: Json) -> tuple[float, str]:
    return parse_time(pod["metadata"].get("creationTimestamp")), str(pod["metadata"]["name"])


def ordinal(pod: Json) -> int:
    match = _ORDINAL.search(str(pod["metadata"]["name"]))
    return int(match.group(1)) if match else 0


def condition(status: Mapping[str, Any], kind: str) -> Json:
    conditions = status.get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == kind), {})


def _state_of(pod: Json, mine: Json, now: float) -> tuple[ReplicaState, str, str]:
    metadata, status = pod["metadata"], pod.get("status") or {}
    if "deletionTimestamp" in metadata:
        late = now - parse_time(metadata["deletionTimestamp"]) > _STUCK_S
        if late:
            node = (pod.get("spec") or {}).get("nodeName", "")
            text = f"Overdue to end: node {node} has not confirmed it."
            return ReplicaState.STOPPING, "StuckTerminating", text
        return ReplicaState.STOPPING, "", "Being removed."
    if has_ended(pod):
        reason = str(status.get("reason") or _why_ended(mine) or status["phase"])
        return ReplicaState.EXITED, reason, str(status.get("message") or "")
    if condition(status, "Ready").get("status") == "True":
        return ReplicaState.READY, "", ""
    scheduled = condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        reason = str(scheduled.get("reason") or "Unschedulable")
        return ReplicaState.STARTING, reason, str(scheduled.get("message") or "")
    return _container_state(pod, mine, now)


def _container_state(pod: Json, mine: Json, now: float) -> tuple[ReplicaState, str, str]:
    """Find the container that keeps a scheduled pod from being ready."""
    status = pod.get("status") or {}
    for init in status.get("initContainerStatuses") or []:
        problem = _container_problem(init, f"Step {init.get('name')}")
        if problem is not None:
            return problem
    problem = _container_problem(mine, "It")
    if problem is not None:
        return problem
    step = _running_step(status)
    if step:
        return ReplicaState.STARTING, "Initializing", f"Step {step} runs."
    running = (mine.get("state") or {}).get("running")
    if running is not None and mine.get("ready"):
        node = (pod.get("spec") or {}).get("nodeName", "")
        return ReplicaState.UNKNOWN, "NodeLost", f"Node {node} stopped reporting."
    last = (mine.get("lastState") or {}).get("terminated") or {}
    started_at = parse_time((running or {}).get("startedAt"))
    if running is not None and mine.get("started"):
        since = parse_time(condition(status, "Ready").get("lastTransitionTime"))
        if since > started_at:  # was ready: an earlier exit is unrelated
            return ReplicaState.UNKNOWN, HUNG, _HUNG
    if running is not None and last and now - started_at < _LATELY_S:
        return (
            ReplicaState.STARTING,
            _why(last),
            f"It crashed ({_termination_text(last)}) and runs again.",
        )
    if running is not None and mine.get("started"):
        return ReplicaState.UNKNOWN, "ProbeFails", "Running; its health check fails."
    if running is not None:
        return ReplicaState.STARTING, "", "Starting; its health check has not passed yet."
    slow = now - parse_time(pod["metadata"].get("creationTimestamp")) > _SLOW_CREATING_S
    return (
        ReplicaState.STARTING,
        "ContainerCreating" if slow else "",
        "Its containers are being created.",
    )


def _container_problem(container: Json, what: str) -> tuple[ReplicaState, str, str] | None:
    """Return None if this container does not block the pod."""
    state = container.get("state") or {}
    waiting, dead = state.get("waiting") or {}, state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    if waiting.get("reason") == "CrashLoopBackOff":
        why = _why(last) or "CrashLoopBackOff"
        return (
            ReplicaState.BACKOFF,
            why,
            f"{what} crashed ({_termination_text(last)}); restarting.",
        )
    if waiting.get("reason") not in (None, "", "ContainerCreating", "PodInitializing"):
        return ReplicaState.STARTING, str(waiting["reason"]), str(waiting.get("message") or "")
    if dead and dead.get("exitCode") != 0:
        return ReplicaState.BACKOFF, _why(dead), f"{what} crashed ({_termination_text(dead)})."
    return None


def _why(dead: Json) -> str:
    reason = str(dead.get("reason") or "")
    return "CrashLoopBackOff" if reason in ("", "Error", "Completed") else reason


def _why_ended(mine: Json) -> str:
    dead = (mine.get("state") or {}).get("terminated") or {}
    return str(dead.get("reason") or "")


def _termination_text(dead: Json) -> str:
    """Describe how a process ended, with the cause from its termination message."""
    how = exit_text(int(dead.get("exitCode") or 0), int(dead.get("signal") or 0))
    reason = str(dead.get("reason") or "")
    named = f"{reason}, {how}" if reason not in ("", "Error") else how
    killed = int(dead.get("exitCode") or 0) > 128
    return death_text(named, str(dead.get("message") or ""), by_signal=killed)


def _running_step(status: Mapping[str, Any]) -> str:
    for init in status.get("initContainerStatuses") or []:
        if (init.get("state") or {}).get("running") is not None:
            return str(init.get("name"))
    return ""


def main_container(pod: Json, role: str) -> str:
    """Return the name of the process's container: admission may have put a sidecar before it."""
    containers = (pod.get("spec") or {}).get("containers") or []
    names = [str(container.get("name")) for container in containers]
    main_name = container_name(role)
    return main_name if main_name in names else (names[0] if names else main_name)


def _status_of(status: Mapping[str, Any], name: str) -> Json:
    statuses = status.get("containerStatuses") or []
    return next((status for status in statuses if status.get("name") == name), {})


def _numbers(spec: Mapping[str, Any], name: str) -> dict[str, int]:
    """Return the pod's own ports: an older revision may have others."""
    for container in spec.get("containers") or []:
        if container.get("name") == name:
            ports = container.get("ports") or []
            return {str(port.get("name")): int(port["containerPort"]) for port in ports}
    return {}


def _containers(spec: Mapping[str, Any], main: str) -> tuple[str, ...]:
    every = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    names = [str(container.get("name")) for container in every]
    return (main, *(name for name in names if name != main))
