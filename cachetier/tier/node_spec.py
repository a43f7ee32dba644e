"""Workload spec of a cache tier's nodes. Pure.

The password is referenced by file, never included.
"""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from cachetier.tier.spec import MIB, NODE_OVERHEAD_BYTES, TierSpec
from console.provisioners.base import FileSpec, Probe, WorkloadSpec
from console.provisioners.kubernetes.rendering.values import resource_list
from console.provisioners.pods import Around, DiskClaim, Peer, Pod, Scrape

MEMORY_FILE = "memory"
"""File with the memory size in the node's folder, reread while the node runs."""
DISK_FOLDER = "values"
DISK_PATH = "/emberline/values"
"""Mount path of the disk in a pod."""
PASSWORD_FILE = "password"  # noqa: S105  (a file's name)
RESP_PORT = "resp"
ADMIN_PORT = "admin"
RESP_NUMBER = 6400
"""Port in pods, each of which has its own address."""
_WORKER = "worker"
_STARTUP_S = 600  # a large disk is scanned at every start
_FILE_SYSTEM_FACTOR = 1.1  # file system overhead


@dataclass(frozen=True, slots=True)
class NodeFacts:
    tier: str
    spec: TierSpec
    password_file: Path


def workload_name(tier: str) -> str:
    return f"cache-{tier}"


def node_spec(
    facts: NodeFacts, python: str = sys.executable, engine_path: str = ""
) -> WorkloadSpec:
    """Return the nodes as processes, run from `engine_path`, a folder with compiled engines."""
    return WorkloadSpec(
        owner=f"cache-tier/{facts.tier}",
        name=workload_name(facts.tier),
        role="cache-node",
        argv=(
            *(python, "-m", "cachetier.engine"),
            *("--listen", f"{{host}}:{{port:{RESP_PORT}}}"),
            *("--memory", f"@{MEMORY_FILE}"),
            *("--password-file", str(facts.password_file)),
            *("--admin", f"{{host}}:{{port:{ADMIN_PORT}}}"),
            *("--pool", facts.tier),
            *("--policy", facts.spec.policy),
            *("--shm", f"emberline-{_installation_id(facts)}-{facts.tier}-{{replica}}"),
            *_disk_flags(facts.spec),
        ),
        ports=(RESP_PORT, ADMIN_PORT),
        probe=Probe(path="/healthz", port=ADMIN_PORT),
        cpus=1.0,
        replicas=facts.spec.node_count,
        live_files=(FileSpec(MEMORY_FILE, f"{facts.spec.memory_bytes}\n"),),
        memory_bytes=facts.spec.memory_bytes + NODE_OVERHEAD_BYTES,
        stop_grace_s=10,
        env={"PYTHONPATH": engine_path} if engine_path else {},
    )


def to_pods(spec: WorkloadSpec, facts: NodeFacts, image: str) -> WorkloadSpec:
    """Return the nodes as pods with stable names and disks, without shared memory."""
    shm = spec.argv.index("--shm")
    argv = ["python3", *spec.argv[1:shm]]
    argv[argv.index("--password-file") + 1] = f"{{dir}}/{PASSWORD_FILE}"
    tier_spec = facts.spec
    if tier_spec.disk_bytes:
        argv += ["--disk", f"{DISK_PATH}/{DISK_FOLDER}:{tier_spec.disk_bytes}"]
    return replace(
        spec,
        argv=tuple(argv),
        image=image,
        secret_files={PASSWORD_FILE: str(facts.password_file)},
        cpus=tier_spec.cpu_millis / 1000,
        pod=Pod(
            stable=True,
            disks=_make_disks(tier_spec),
            startup_s=_STARTUP_S,
            drain_s=0,
            resources=resource_list(
                tier_spec.cpu_limit_millis / 1000, tier_spec.memory_limit_bytes
            ),
        ),
        around=Around(
            reach={
                # Nodes hand over hot values to each other before shutdown.
                RESP_PORT: (Peer(_WORKER), Peer(spec.role, spec.owner)),
                ADMIN_PORT: (Peer("console"), Peer("prometheus")),
            },
            scrape=(Scrape(ADMIN_PORT),),
        ),
    )


def nodes_url(facts: NodeFacts, namespace: str) -> str:
    """Return the URL for workers on the cluster: the DNS name of all nodes."""
    copies = "" if facts.spec.copies == 1 else f"&replicas={facts.spec.copies}"
    host = f"{workload_name(facts.tier)}-pods.{namespace}.svc"
    return f"redis://{host}:{RESP_NUMBER}?nodes=dns{copies}"


def _make_disks(spec: TierSpec) -> tuple[DiskClaim, ...]:
    if not spec.disk_bytes:
        return ()
    size = math.ceil(spec.disk_bytes * _FILE_SYSTEM_FACTOR / MIB) * MIB
    return (DiskClaim("values", DISK_PATH, size, spec.storage_class),)


def _disk_flags(spec: TierSpec) -> tuple[str, ...]:
    """Disk flags. The folder is the node's own: kept across restarts, deleted with the node."""
    return ("--disk", f"{{dir}}/{DISK_FOLDER}:{spec.disk_bytes}") if spec.disk_bytes else ()


def _installation_id(facts: NodeFacts) -> str:
    """Return an installation id: consoles on one machine share the names in /dev/shm."""
    return hashlib.sha256(str(facts.password_file).encode()).hexdigest()[:8]
