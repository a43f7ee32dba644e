"""A cache tier's node as a workload: pure facts in, WorkloadSpec out.

Promises that the password is named by its file, never contained. Must not know Django.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from console.provisioners.base import Probe, WorkloadSpec

# Beyond the values themselves: the interpreter, keys, connections' buffers (measured: 60 MiB idle).
_OVERHEAD_BYTES = 192 * 1024**2
RESP_PORT = "resp"
ADMIN_PORT = "admin"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    tier: str
    capacity_bytes: int
    password_file: Path


def workload_name(tier: str) -> str:
    return f"cache-{tier}"


def node_spec(facts: NodeFacts, python: str = sys.executable) -> WorkloadSpec:
    return WorkloadSpec(
        owner=f"cache-tier/{facts.tier}",
        name=workload_name(facts.tier),
        role="cache-node",
        argv=(
            python,
            "-m",
            "cachetier.engine",
            "--listen",
            f"{{host}}:{{port:{RESP_PORT}}}",
            "--memory",
            str(facts.capacity_bytes),
            "--password-file",
            str(facts.password_file),
            "--admin",
            f"{{host}}:{{port:{ADMIN_PORT}}}",
        ),
        ports=(RESP_PORT, ADMIN_PORT),
        probe=Probe(path="/healthz", port=ADMIN_PORT),
        cpus=1.0,
        memory_bytes=facts.capacity_bytes + _OVERHEAD_BYTES,
        stop_grace_s=10,
    )
