"""A cache tier's node as a workload: pure facts in, WorkloadSpec out.

Promises that the password is named by its file, never contained. Must not know Django.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from cachetier.tier_spec import TierSpec
from console.provisioners.base import FileSpec, Probe, WorkloadSpec

# Beyond the values themselves: the interpreter, keys, connections' buffers (measured: 60 MiB idle).
_OVERHEAD_BYTES = 192 * 1024**2
MEMORY_FILE = "memory"
"""In the node's own folder: how large it may be, read again while it runs."""
DISK_FOLDER = "values"
RESP_PORT = "resp"
ADMIN_PORT = "admin"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    tier: str
    spec: TierSpec
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
            f"@{MEMORY_FILE}",
            "--password-file",
            str(facts.password_file),
            "--admin",
            f"{{host}}:{{port:{ADMIN_PORT}}}",
            "--pool",
            facts.tier,
            "--policy",
            facts.spec.policy,
            "--shm",
            f"emberline-{_installation(facts)}-{facts.tier}-{{replica}}",
            *_disk(facts.spec),
        ),
        ports=(RESP_PORT, ADMIN_PORT),
        probe=Probe(path="/healthz", port=ADMIN_PORT),
        cpus=1.0,
        replicas=facts.spec.node_count,
        live_files=(FileSpec(MEMORY_FILE, f"{facts.spec.memory_bytes}\n"),),
        memory_bytes=facts.spec.memory_bytes + _OVERHEAD_BYTES,
        stop_grace_s=10,
    )


def _disk(spec: TierSpec) -> tuple[str, ...]:
    """In the node's own folder: it outlives a restart, and goes with the node."""
    return ("--disk", f"{{dir}}/{DISK_FOLDER}:{spec.disk_bytes}") if spec.disk_bytes else ()


def _installation(facts: NodeFacts) -> str:
    """Two consoles on one machine may have tiers of one name; shared memory has one name space."""
    return hashlib.sha256(str(facts.password_file).encode()).hexdigest()[:8]
