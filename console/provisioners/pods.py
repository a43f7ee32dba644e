"""Cluster-only parts of a spec: pod settings and the objects around the pods.

Changes of `Pod` need new pods; changes of `Around` do not. Fields without a meaning for Emberline
(a volume's source, an affinity) keep Kubernetes' own format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of an existing Secret in the workload's namespace."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume, mounted at `path` if set; `source` is in Kubernetes format (`{"emptyDir": {}}`).

    A source whose `csi` has a `volumeHandle` is that of a PersistentVolume (`mountOptions` and
    `capacity` are optional siblings). Most drivers for shares support nothing else, so the workload
    gets its own PersistentVolume and claim.
    """

    name: str
    source: Mapping[str, Any]
    path: str = ""
    read_only: bool = False
    sub_path: str = ""


@dataclass(frozen=True, slots=True)
class DiskClaim:
    """A disk per replica, kept when the replica is replaced (stable replicas only)."""

    name: str
    path: str
    size_bytes: int
    storage_class: str = ""


@dataclass(frozen=True, slots=True)
class InitStep:
    """A step that completes before the process starts. `mounts` maps volume names to paths."""

    name: str
    argv: tuple[str, ...]
    image: str = ""  # "": the image of the process
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """Settings of each replica; a change needs new pods.

    `stable`: replicas keep name and disk (StatefulSet); otherwise new ones start before old ones
    end (Deployment). `ports` fixes numbers by port name. `startup_s` limits the start; `drain_s` is
    the time a terminating replica keeps serving while callers move away. `resources`, `probes`,
    `init_containers`, `volumes_raw`, `env_raw`, `node_affinity` and `tolerations` are in Kubernetes
    format and merged over rendered values. `instance_types` are in order of preference.
    """

    stable: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()
    disks: tuple[DiskClaim, ...] = ()
    init: tuple[InitStep, ...] = ()
    secret_env: Mapping[str, SecretKey] = field(default_factory=dict)
    shm_bytes: int = 0
    working_dir: str = ""
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
    run_as_user: int = 0  # 0: as set by the image, which must not be root
    resources: Mapping[str, Any] = field(default_factory=dict)
    probes: Mapping[str, Any] = field(default_factory=dict)
    init_containers: tuple[Mapping[str, Any], ...] = ()
    volumes_raw: tuple[Mapping[str, Any], ...] = ()
    env_raw: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Peer:
    """Pods allowed to reach a port: one role of one owner, or of any owner ("")."""

    role: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Metrics endpoint for Prometheus."""

    port: str
    path: str = "/metrics"
    interval_s: int = 15


@dataclass(frozen=True, slots=True)
class Autoscale:
    """Autoscaling of a workload. `triggers` in KEDA format; none: scale by CPU with the cluster's
    own autoscaler.
    """

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
    """External access to a port. `kind`: ingress, gateway or loadbalancer. TLS from a Secret of the
    cluster, or from cert-manager's `issuer` ("Kind/name") into that Secret.
    """

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
    """Settings of the objects around the pods; a change restarts nothing.

    `reach` maps port and channel names to allowed peers (absent: only cluster components; empty
    tuple: everybody). `watches_services` lists Services whose EndpointSlices the process watches;
    its account may read EndpointSlices.
    """

    reach: Mapping[str, tuple[Peer, ...]] = field(default_factory=dict)
    watches_services: tuple[str, ...] = ()
    scrape: tuple[Scrape, ...] = ()
    autoscale: Autoscale | None = None
    exposure: Exposure | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
