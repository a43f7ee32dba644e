"""Names, labels and metadata of a workload's objects.

Every object is labelled with `WORKLOAD`, and selectors use nothing else. Names that the cluster
would reject or truncate are rejected here with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api.kinds import ObjectKind
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
# A StatefulSet labels its pods with its name, a dash and a ten-digit hash.
_LONGEST_STABLE = _LONGEST_LABEL - 11
# Services are named after the workload plus a suffix of up to seven characters (-public).
_LONGEST = _LONGEST_LABEL - 7
_CONTAINERS = {"cache-node": "cache"}
FILES_DIR = "/emberline/files"
"""Value of `{dir}`: the read-only folder with a replica's files."""
REPLICA_VARIABLE = "EMBERLINE_REPLICA"
_PORTS = {
    "worker": {"http": 8000},
    "router": {"http": 8080, "admin": 9090},
    "cache-node": {"resp": 6400, "admin": 9091},
}
_CHANNELS = {"kv-events": 5557, "kv-replay": 5558}


def check_names(spec: WorkloadSpec) -> None:
    longest = _LONGEST_STABLE if pod_of(spec).stable else _LONGEST
    if len(spec.name) > longest or not spec.name[0].isalpha():
        raise PermanentError(
            "BadName",
            f"Workload {spec.name!r} has an invalid name for Kubernetes: begin with a letter and "
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
    """Return the name of the headless Service, which has one DNS name per pod."""
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
    """Return labels constant for the lifetime of the workload, usable in immutable fields."""
    return {
        NAME: MANAGER,
        "app.kubernetes.io/managed-by": MANAGER,
        COMPONENT: spec.role,
        INSTANCE: owner_name(spec.owner),
        WORKLOAD: spec.name,
        OWNER: owner_label(spec.owner),
    }


def make_object(
    spec: WorkloadSpec,
    namespace: str,
    kind: ObjectKind,
    body: Mapping[str, Any],
    *,
    name: str = "",
    notes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return an object of the workload, with its name if none is given."""
    around = around_of(spec)
    metadata: dict[str, Any] = {"name": name or spec.name}
    if kind.namespaced:
        metadata["namespace"] = namespace
    metadata["labels"] = {**around.labels, **base_labels(spec)}
    annotations = {**around.annotations, **(notes or {})}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body}


def port_numbers(spec: WorkloadSpec) -> dict[str, int]:
    """Return numbers by name: ports first, then channels."""
    numbers = {**_CHANNELS, **_PORTS.get(spec.role, {}), **pod_of(spec).ports}
    out = {}
    for name in (*spec.ports, *spec.channels):
        if name not in numbers:
            raise PermanentError(
                "UnknownPort",
                f"Port {name!r} of {spec.name!r} has no number: give it one in the pod's ports.",
            )
        out[name] = numbers[name]
    return out


def replica_facts(spec: WorkloadSpec) -> ReplicaFacts:
    """Return placeholder values. They are equal for all replicas except `{replica}`, which the
    kubelet substitutes in commands and variables.
    """
    numbers = port_numbers(spec)
    return ReplicaFacts(
        host="0.0.0.0",
        dir=FILES_DIR,
        replica=f"$({REPLICA_VARIABLE})",
        ports={name: numbers[name] for name in spec.ports},
        channels={name: f"tcp://*:{numbers[name]}" for name in spec.channels},
    )
