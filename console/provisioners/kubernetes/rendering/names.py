"""Names, labels and the outer shape of all objects of one workload.

Promises that every object can be found by `WORKLOAD`, that selectors use nothing else, and that a
name which the cluster would refuse (or cut) is refused here with its reason. Must not know what
the objects are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.pods import Around, Pod
from console.provisioners.specs import ReplicaFacts

DOMAIN = "emberline.dev"
MANAGER = "emberline"
"""Our field manager, and the value of `app.kubernetes.io/{name,managed-by}`."""
WORKLOAD = f"{DOMAIN}/workload"
OWNER = f"{DOMAIN}/owner"
SPEC_HASH = f"{DOMAIN}/spec-hash"
FILES_HASH = f"{DOMAIN}/files"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"

_LONGEST_LABEL = 63
# A StatefulSet labels its pods with its name, a dash and a hash of ten digits.
_LONGEST_STABLE = _LONGEST_LABEL - 11
# Services are named after the workload, with up to seven characters more (-public).
_LONGEST = _LONGEST_LABEL - 7
_CONTAINERS = {"cache-node": "cache"}


def check_names(spec: WorkloadSpec) -> None:
    longest = _LONGEST_STABLE if pod_of(spec).stable else _LONGEST
    if len(spec.name) > longest or not spec.name[0].isalpha():
        raise PermanentError(
            "BadName",
            f"Workload {spec.name!r} cannot be named so on Kubernetes: begin with a letter and "
            f"use at most {longest} characters (it has {len(spec.name)}).",
        )
    for what, value in (("owner", owner_label(spec.owner)), ("role", spec.role)):
        if len(value) > _LONGEST_LABEL:
            raise PermanentError(
                "BadName", f"The {what} {value!r} is too long for a label: 63 characters at most."
            )


def pod_of(spec: WorkloadSpec) -> Pod:
    return spec.pod or Pod()


def around_of(spec: WorkloadSpec) -> Around:
    return spec.around or Around()


def files_name(workload: str) -> str:
    return f"{workload}-files"


def env_name(workload: str) -> str:
    return f"{workload}-env"


def pods_name(workload: str) -> str:
    """The headless Service: one DNS name and one EndpointSlice entry for each pod."""
    return f"{workload}-pods"


def public_name(workload: str) -> str:
    return f"{workload}-public"


def container_name(role: str) -> str:
    return _CONTAINERS.get(role, role)


def owner_label(owner: str) -> str:
    return owner.replace("/", ".")


def owner_name(owner: str) -> str:
    return owner.rpartition("/")[2]


def selector(workload: str) -> dict[str, str]:
    return {WORKLOAD: workload}


def base_labels(spec: WorkloadSpec) -> dict[str, str]:
    """The same for as long as the workload lives: also good where nothing may change."""
    return {
        NAME: MANAGER,
        "app.kubernetes.io/managed-by": MANAGER,
        COMPONENT: spec.role,
        INSTANCE: owner_name(spec.owner),
        WORKLOAD: spec.name,
        OWNER: owner_label(spec.owner),
    }


def made(
    spec: WorkloadSpec,
    namespace: str,
    api_version: str,
    kind: str,
    name: str,
    body: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """An object of the workload. `namespace` is "" for what belongs to the whole cluster."""
    around = around_of(spec)
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = {**around.labels, **base_labels(spec)}
    notes = {**around.annotations, **(annotations or {})}
    if notes:
        metadata["annotations"] = notes
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


FILES_DIR = "/emberline/files"
"""What `{dir}` stands for: the folder with a replica's files, which it can only read."""
REPLICA_VARIABLE = "EMBERLINE_REPLICA"

_PORTS = {
    "worker": {"http": 8000},
    "router": {"http": 8080, "admin": 9090},
    "cache-node": {"resp": 6400, "admin": 9091},
}
_CHANNELS = {"kv-events": 5557, "kv-replay": 5558}


def numbers(spec: WorkloadSpec) -> dict[str, int]:
    """By name: ports first, then channels."""
    known = {**_CHANNELS, **_PORTS.get(spec.role, {}), **pod_of(spec).ports}
    out = {}
    for name in (*spec.ports, *spec.channels):
        if name not in known:
            raise PermanentError(
                "UnknownPort",
                f"Port {name!r} of {spec.name!r} has no number: give it one in the pod's ports.",
            )
        out[name] = known[name]
    return out


def facts(spec: WorkloadSpec) -> ReplicaFacts:
    """What placeholders stand for. They are the same for all replicas but for `{replica}`, which
    is left to the kubelet: it resolves the variable in commands and in other variables."""
    known = numbers(spec)
    return ReplicaFacts(
        host="0.0.0.0",
        dir=FILES_DIR,
        replica=f"$({REPLICA_VARIABLE})",
        ports={name: known[name] for name in spec.ports},
        channels={name: f"tcp://*:{known[name]}" for name in spec.channels},
    )
