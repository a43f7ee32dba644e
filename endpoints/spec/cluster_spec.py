"""Frozen sections of an endpoint's spec for clusters.

Defaults mean "as on one machine". Values without a field of our own keep their Kubernetes form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]
"""A JSON object in an external format."""


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """`cluster` "": this machine; `namespace` "": the cluster's default. `instance_types` in order
    of preference.
    """

    cluster: str = ""
    namespace: str = ""
    instance_types: tuple[str, ...] = ()
    node_selector: Plain = field(default_factory=dict)
    node_affinity: Plain = field(default_factory=dict)
    tolerations: list[Plain] = field(default_factory=list)
    priority_class: str = ""
    scheduler: str = ""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Source of the weights. `type` "": as given by `model`, a folder in the image or a Hugging
    Face name that the worker downloads itself.
    """

    type: str = ""
    location: str = ""
    prefetch: bool = False
    revision: str = ""
    token_secret: str = ""
    token_key: str = ""
    bucket: str = ""
    region: str = ""
    file_system: str = ""
    dns_name: str = ""
    mount_name: str = ""
    claim: str = ""
    mount_path: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Pod of each worker. `port` 0: the default."""

    image: str = ""
    command: tuple[str, ...] = ()
    working_dir: str = ""
    env: Plain = field(default_factory=dict)
    env_from: list[Plain] = field(default_factory=list)
    port: int = 0
    probes: Plain = field(default_factory=dict)
    resources: Plain = field(default_factory=dict)
    volumes: list[Plain] = field(default_factory=list)
    init_containers: list[Plain] = field(default_factory=list)
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """`deadline_s`: limit for a rollout to serve; `drain_s`: limit for a terminating worker's
    requests.
    """

    deadline_s: int = 1800
    auto_rollback: bool = True
    drain_s: int = 10


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Worker autoscaling by KEDA triggers. If enabled, `replicas` is the initial count."""

    enabled: bool = False
    min: int = 1
    max: int = 5
    polling_s: int = 30
    cooldown_s: int = 300
    initial_cooldown_s: int = 300
    up_stabilization_s: int = 0
    down_stabilization_s: int = 300
    triggers: list[Plain] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExposureSpec:
    kind: str = "none"
    host: str = ""
    class_name: str = ""
    gateway: str = ""
    tls: str = "none"
    tls_secret: str = ""
    issuer: str = ""
    annotations: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """`max_replicas` above `replicas`: autoscaled by the router's load. `cpus` and `memory_gib` are
    requests per replica; `cpu_limit` 0: no limit, `memory_limit_gib` 0: equal to the request.
    """

    replicas: int = 2
    max_replicas: int = 0
    cpus: float = 0.25
    cpu_limit: float = 0.0
    memory_gib: float = 0.5
    memory_limit_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Per worker. `max_concurrent` 0 and `max_queue` -1: no limit."""

    max_concurrent: int = 0
    max_queue: int = -1
    overflow_status: int = 429


@dataclass(frozen=True, slots=True)
class MonitoringSpec:
    enabled: bool = True
    interval_s: int = 15
    path: str = "/metrics"


@dataclass(frozen=True, slots=True)
class PdSpec:
    """Disaggregated prefill and decode; prompts below `threshold` tokens are not split. `prefill`
    and `decode`: replicas, args, resources, nodeSelector.
    """

    enabled: bool = False
    prefill: Plain = field(default_factory=dict)
    decode: Plain = field(default_factory=dict)
    threshold: int = 4096
    topology: Plain = field(default_factory=dict)
