"""What only a cluster can carry: a pod beyond its process, and the objects around it.

Promises frozen facts which cross the waist inside a `WorkloadSpec`. `Pod` changes need new pods;
`Around` changes do not. What has no meaning of our own (a volume's source, an affinity) is held in
Kubernetes' own words. Must not know Kubernetes' client, an endpoint or a cache tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret which is in the cluster already, in the workload's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Volume:
    """`source` as Kubernetes writes it (`{"emptyDir": {}}`); mounted at `path`, if it has one. A
    source whose `csi` has a `volumeHandle` is that of a PersistentVolume (`mountOptions` and
    `capacity` may stand beside it): most drivers of shares mount nothing else, so the workload
    gets a volume and a claim of its own for it."""

    name: str
    source: Mapping[str, Any]
    path: str = ""
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True, slots=True)
class DiskClaim:
    """A disk of each replica's own, kept when the replica is replaced (stable replicas only)."""

    name: str
    path: str
    size_bytes: int
    storage_class: str = ""


@dataclass(frozen=True, slots=True)
class InitStep:
    """Runs to its end before the process starts. `mounts` maps volume names to paths."""

    name: str
    argv: tuple[str, ...]
    image: str = ""  # "": that of the process
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """Of each replica; a change needs new pods. `stable`: replicas keep name and disk (a
    StatefulSet), else new ones come before old ones go (a Deployment). `ports` fixes numbers by
    port name. `startup_s`: until then a start may take. `drain_s`: how long a replica that is to
    end goes on answering while callers turn away. `resources`, `probes`, `init_containers`,
    `volumes_raw`, `env_raw`, `node_affinity` and `tolerations` are Kubernetes' own shapes, merged
    over what is rendered. `instance_types` in order of preference."""

    stable: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    disks: tuple[DiskClaim, ...] = ()
    init: tuple[InitStep, ...] = ()
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    shm_bytes: int = 0
    working_dir: str = ""
    image_entrypoint: bool = False  # argv are arguments for what the image starts by itself
    startup_s: int = 600
    drain_s: int = 5
    gpu_resource: str = "nvidia.com/gpu"
    instance_types: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: Mapping[str, Any] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    scheduler: str = ""
    service_account: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    run_as_user: int = 0  # 0: as the image says, which then must not be root
    resources: Mapping[str, Any] = field(default_factory=dict)
    probes: Mapping[str, Any] = field(default_factory=dict)
    init_containers: tuple[Mapping[str, Any], ...] = ()
    volumes_raw: tuple[Mapping[str, Any], ...] = ()
    env_raw: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """Who may reach a port: pods of one role of one owner, or of the role anywhere (owner "")."""

    role: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Where Prometheus finds metrics."""

    port: str
    path: str = "/metrics"
    interval_s: int = 15


@dataclass(frozen=True, slots=True)
class Autoscale:
    """`triggers` as KEDA writes them; none: by CPU, with what every cluster has."""

    minimum: int
    maximum: int
    triggers: tuple[Mapping[str, Any], ...] = ()
    cpu_percent: int = 0
    polling_s: int = 30
    cooldown_s: int = 300
    initial_cooldown_s: int = 300
    up_stabilization_s: int = 0
    down_stabilization_s: int = 300


@dataclass(frozen=True, slots=True)
class Exposure:
    """How callers outside reach a port. `kind`: ingress, gateway or loadbalancer. TLS from a
    Secret of the cluster, or from cert-manager's `issuer` ("Kind/name") into that Secret."""

    kind: str
    port: str
    host: str = ""
    class_name: str = ""
    gateway: str = ""  # NAMESPACE/NAME
    tls_secret: str = ""
    issuer: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Around:
    """Beside the pods; none of it restarts one. `reach` maps port and channel names to who may
    connect (absent: nobody but what the cluster itself needs; an empty tuple: everybody).
    `watches_services` are Services whose EndpointSlices the process follows: it gets an account
    which may read exactly those. `rules` are Prometheus rule groups."""

    reach: Mapping[str, tuple[Peer, ...]] = field(default_factory=dict)
    watches_services: tuple[str, ...] = ()
    scrape: tuple[Scrape, ...] = ()
    autoscale: Autoscale | None = None
    exposure: Exposure | None = None
    spread: bool = True
    max_unavailable: int = 1  # by voluntary disruptions
    rules: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_object: Mapping[str, str] = field(default_factory=dict)
    """An ownerReference (apiVersion, kind, name, uid): all goes when that object goes."""
