"""Numbers of ports and channels: the same in every pod, for each has an address of its own.

Promises that a name without a number is refused by name. Must not know containers or Services.
"""

from __future__ import annotations

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.names import pod_of
from console.provisioners.placeholders import ReplicaFacts

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
