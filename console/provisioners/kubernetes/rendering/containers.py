"""The containers of a pod: the process itself, and the steps before it.

Promises restricted pod security for each, that a dollar in an argument stays one, and that what is
given in Kubernetes' own words (probes, resources, variables) goes over what is rendered. Must not
know volumes' sources, nor what else is in the pod.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.names import container_name, env_name, pod_of
from console.provisioners.kubernetes.rendering.ports import (
    FILES_DIR,
    REPLICA_VARIABLE,
    facts,
    numbers,
)
from console.provisioners.kubernetes.rendering.values import (
    by_name,
    cpu,
    literal,
    memory,
    merged,
    seconds,
)
from console.provisioners.pods import InitStep, SecretKey

STARTUP_PERIOD_S = 2
"""How often a starting process is asked: no start looks longer than it is by more than this."""
# Our own processes write nothing outside their volumes; a model server's image may.
_READ_ONLY_ROLES = ("router", "cache-node")
_HANDLERS = ("httpGet", "tcpSocket", "exec", "grpc")


def main_container(spec: WorkloadSpec, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    if not spec.image:
        raise PermanentError(
            "NoImage", f"Workload {spec.name!r} has no image, and a pod cannot run without one."
        )
    pod = pod_of(spec)
    raw = _raw_variables(spec)
    filling = facts(spec)
    argv = [filling.fill(literal(word, raw)) for word in spec.argv]
    known = numbers(spec)
    container: dict[str, Any] = {
        "name": container_name(spec.role),
        "image": spec.image,
        "args" if pod.image_entrypoint else "command": argv,
        "workingDir": pod.working_dir or FILES_DIR,
        "ports": [
            {"name": name, "containerPort": number, "protocol": "TCP"}
            for name, number in known.items()
        ],
        "env": _env(spec),
        "resources": _resources(spec),
        **_probes(spec),
        "volumeMounts": mounts,
        "securityContext": _security(spec),
        # What a process said last is its reason when it dies without one.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if pod.drain_s > 0:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": pod.drain_s}}}
    return container


def init_containers(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Our steps in their order, then those in Kubernetes' own words."""
    steps = [_step(spec, step) for step in pod_of(spec).init]
    raw = [
        merged({"securityContext": _security(spec)}, container)
        for container in pod_of(spec).init_containers
    ]
    return by_name(steps, raw)


def reads_only(spec: WorkloadSpec) -> bool:
    """Whether its root filesystem is read-only, so that it needs a /tmp."""
    return spec.role in _READ_ONLY_ROLES


def _step(spec: WorkloadSpec, step: InitStep) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    if step.cpus:
        resources["requests"] = {"cpu": cpu(step.cpus)}
    if step.memory_bytes:
        size = memory(step.memory_bytes)
        resources.setdefault("requests", {})["memory"] = size
        resources["limits"] = {"memory": size}
    return {
        "name": step.name,
        "image": step.image or spec.image,
        "command": [literal(word) for word in step.argv],
        "env": [
            *({"name": name, "value": literal(value)} for name, value in sorted(step.env.items())),
            *_secret_variables(step.secret_env),
        ],
        "resources": resources,
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
        "readOnlyRootFilesystem": reads_only(spec),
    }


def _raw_variables(spec: WorkloadSpec) -> frozenset[str]:
    return frozenset(str(entry.get("name", "")) for entry in pod_of(spec).env_raw)


def _env(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """The replica's name comes first: a variable can only refer to those before it."""
    pod = pod_of(spec)
    path = "metadata.labels['apps.kubernetes.io/pod-index']" if pod.stable else "metadata.name"
    field = {"apiVersion": "v1", "fieldPath": path}
    own = {"name": REPLICA_VARIABLE, "valueFrom": {"fieldRef": field}}
    raw = _raw_variables(spec)
    filling = facts(spec)
    plain = [
        {"name": name, "value": filling.fill(literal(value, raw))}
        for name, value in sorted(spec.env.items())
    ]
    ours = {name: SecretKey(env_name(spec.name), name) for name in spec.secret_env}
    secret = _secret_variables({**pod.secret_env, **ours})
    return by_name([own, *secret, *plain], pod.env_raw)


def _secret_variables(keys: Mapping[str, SecretKey]) -> list[dict[str, Any]]:
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}
        for name, key in sorted(keys.items())
    ]


def _resources(spec: WorkloadSpec) -> dict[str, Any]:
    """Memory is a limit, processors are not: one that waits for its share is slow for nothing."""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    if spec.cpus:
        requests["cpu"] = cpu(spec.cpus)
    if spec.memory_bytes:
        requests["memory"] = limits["memory"] = memory(spec.memory_bytes)
    if spec.gpus:
        requests[pod_of(spec).gpu_resource] = limits[pod_of(spec).gpu_resource] = str(spec.gpus)
    rendered = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return merged(rendered, pod_of(spec).resources)


def _probes(spec: WorkloadSpec) -> dict[str, Any]:
    """Ready as soon as the probe says so; restarted only when it is silent for a minute."""
    asked = {"httpGet": {"path": spec.probe.path, "port": spec.probe.port, "scheme": "HTTP"}}
    timeout = seconds(spec.probe.timeout_s)
    attempts = math.ceil(max(1, pod_of(spec).startup_s) / STARTUP_PERIOD_S)
    rendered = {
        "startup": (STARTUP_PERIOD_S, attempts, timeout),
        "readiness": (5, 2, timeout),
        "liveness": (10, 6, max(5, timeout)),
    }
    return {
        f"{name}Probe": _over(
            {
                **asked,
                "periodSeconds": period,
                "failureThreshold": failures,
                "timeoutSeconds": limit,
                "successThreshold": 1,
            },
            _raw_probe(spec, name),
        )
        for name, (period, failures, limit) in rendered.items()
    }


def _raw_probe(spec: WorkloadSpec, name: str) -> Mapping[str, Any]:
    given = pod_of(spec).probes
    raw = given.get(name) or given.get(f"{name}Probe") or {}
    return raw if isinstance(raw, Mapping) else {}


def _over(probe: dict[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """A probe asks in one way only."""
    if any(handler in raw for handler in _HANDLERS):
        probe = {key: value for key, value in probe.items() if key not in _HANDLERS}
    return merged(probe, raw)
