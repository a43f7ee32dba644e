"""Containers of a pod: the main process and its init steps.

Every container satisfies restricted pod security, a dollar in an argument is preserved, and raw
Kubernetes fields (probes, resources, variables) override rendered ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.names import (
    FILES_DIR,
    REPLICA_VARIABLE,
    container_name,
    env_name,
    pod_of,
    port_numbers,
    replica_facts,
)
from console.provisioners.kubernetes.rendering.values import (
    cpu_quantity,
    escape_dollars,
    memory_quantity,
    merge,
    merge_by_name,
    whole_seconds,
)
from console.provisioners.pods import InitStep, SecretKey

STARTUP_PERIOD_S = 2
"""Startup probe period (s), the precision of measured start times."""
HUNG_GRACE_S = 1
"""Grace after a failed liveness probe: a hung process has no requests to drain. The kubelet then
ends preStop, sends SIGTERM and waits its minimum of 2 s.
"""
# Emberline processes write only to their volumes; a model server's image may write elsewhere.
_READ_ONLY_ROLES = ("router", "cache-node")
_HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")


def main_container(spec: WorkloadSpec, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    if not spec.image:
        raise PermanentError(
            "NoImage", f"Workload {spec.name!r} has no image, which a pod requires."
        )
    pod = pod_of(spec)
    filling, variables = replica_facts(spec), _variables(spec)
    argv = [filling.fill(escape_dollars(word, variables)) for word in spec.argv]
    ports = port_numbers(spec)
    container: dict[str, Any] = {
        "name": container_name(spec.role),
        "image": spec.image,
        "command": argv,
        "workingDir": pod.working_dir or FILES_DIR,
        "ports": [
            {"name": name, "containerPort": number, "protocol": "TCP"}
            for name, number in ports.items()
        ],
        "env": _env(spec),
        "resources": _resources(spec),
        **_probes(spec),
        "volumeMounts": mounts,
        "securityContext": _security(spec),
        # The last output is the termination reason of a process that exits without one.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if pod.drain_s > 0:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": pod.drain_s}}}
    return container


def init_containers(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Return our steps in order, then the raw ones."""
    steps = [_step(spec, step) for step in pod_of(spec).init]
    raw = [
        merge({"securityContext": _security(spec)}, container)
        for container in pod_of(spec).init_containers
    ]
    return merge_by_name(steps, raw)


def is_read_only(spec: WorkloadSpec) -> bool:
    """Return whether the root filesystem is read-only, which requires a /tmp volume."""
    return spec.role in _READ_ONLY_ROLES


def _step(spec: WorkloadSpec, step: InitStep) -> dict[str, Any]:
    """Render a step. Its resources default to those of the process: this costs nothing (steps end
    before it starts), and a quota rejects pods in which a container requests nothing.
    """
    cpus, size = step.cpus or spec.cpus, step.memory_bytes or spec.memory_bytes
    variables = {*step.env, *step.secret_env}
    return {
        "name": step.name,
        "image": step.image or spec.image,
        "command": [escape_dollars(word, variables) for word in step.argv],
        "env": [
            *_secret_variables(step.secret_env),
            *_in_order(
                {"name": name, "value": escape_dollars(value, variables)}
                for name, value in step.env.items()
            ),
        ],
        "resources": _resource_requests(cpus, size),
        "volumeMounts": [
            {"name": name, "mountPath": path} for name, path in sorted(step.mounts.items())
        ],
        "securityContext": _security(spec),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _security(spec: WorkloadSpec) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": is_read_only(spec),
    }


def _variables(spec: WorkloadSpec) -> frozenset[str]:
    """Return the names that an argument or value may reference as `$(NAME)`."""
    pod = pod_of(spec)
    raw = (str(entry.get("name", "")) for entry in pod.env_raw)
    return frozenset({*spec.env, *spec.secret_env, *pod.secret_env, *raw})


def _env(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Return variables; raw ones win. Order matters: a value can reference only preceding
    variables.
    """
    pod = pod_of(spec)
    path = "metadata.labels['apps.kubernetes.io/pod-index']" if pod.stable else "metadata.name"
    field = {"apiVersion": "v1", "fieldPath": path}
    own = {"name": REPLICA_VARIABLE, "valueFrom": {"fieldRef": field}}
    ours = {name: SecretKey(env_name(spec.name), name) for name in spec.secret_env}
    secret = _secret_variables({**pod.secret_env, **ours})
    filling, variables = replica_facts(spec), _variables(spec)
    plain = _in_order(
        {"name": name, "value": filling.fill(escape_dollars(value, variables))}
        for name, value in spec.env.items()
    )
    raw = [dict(entry) for entry in pod.env_raw]
    names = {str(entry.get("name", "")) for entry in raw}
    return [
        *merge_by_name([own, *secret], raw),
        *(entry for entry in plain if entry["name"] not in names),
    ]


def _in_order(variables: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Sort by name, variables that may reference others last."""
    return sorted(variables, key=lambda one: ("$(" in one["value"].replace("$$", ""), one["name"]))


def _secret_variables(keys: Mapping[str, SecretKey]) -> list[dict[str, Any]]:
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}
        for name, key in sorted(keys.items())
    ]


def _resources(spec: WorkloadSpec) -> dict[str, Any]:
    gpus = {pod_of(spec).gpu_resource: str(spec.gpus)} if spec.gpus else {}
    rendered = _resource_requests(spec.cpus, spec.memory_bytes)
    if gpus:
        rendered = merge(rendered, {"requests": gpus, "limits": gpus})
    return merge(rendered, pod_of(spec).resources)


def _resource_requests(cpus: float, memory_bytes: int) -> dict[str, Any]:
    """Request CPU without a limit (throttling wastes idle CPU) and memory with one."""
    requests = {"cpu": cpu_quantity(cpus)} if cpus else {}
    if not memory_bytes:
        return {"requests": requests} if requests else {}
    size = {"memory": memory_quantity(memory_bytes)}
    return {"requests": {**requests, **size}, "limits": size}


def _probes(spec: WorkloadSpec) -> dict[str, Any]:
    """Return probes: readiness follows the probe; liveness fails after a minute of silence and then
    kills without a grace period. Kubernetes rejects that grace for readiness probes.
    """
    probe = {"httpGet": {"path": spec.probe.path, "port": spec.probe.port, "scheme": "HTTP"}}
    timeout = whole_seconds(spec.probe.timeout_s)
    attempts = math.ceil(max(1, pod_of(spec).startup_s) / STARTUP_PERIOD_S)
    rendered = {
        "startup": (STARTUP_PERIOD_S, attempts, timeout),
        "readiness": (5, 2, timeout),
        "liveness": (10, 6, max(5, timeout)),
    }
    return {
        f"{name}Probe": _override_probe(
            {
                **probe,
                "periodSeconds": period,
                "failureThreshold": failures,
                "timeoutSeconds": limit,
                "successThreshold": 1,
                **({} if name == "readiness" else {"terminationGracePeriodSeconds": HUNG_GRACE_S}),
            },
            _raw_probe(spec, name),
        )
        for name, (period, failures, limit) in rendered.items()
    }


def _raw_probe(spec: WorkloadSpec, name: str) -> Mapping[str, Any]:
    probes = pod_of(spec).probes
    raw = probes.get(name) or probes.get(f"{name}Probe") or {}
    return raw if isinstance(raw, Mapping) else {}


def _override_probe(probe: dict[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Override a probe; its handler is replaced, because a probe has exactly one."""
    if any(handler in raw for handler in _HANDLERS):
        probe = {key: value for key, value in probe.items() if key not in _HANDLERS}
    return merge(probe, raw)
