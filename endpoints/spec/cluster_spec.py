"""Sections of a spec for clusters: placement, weights, pods, scaling, exposure, routers, metrics.

Defaults mean "as on one machine". Values without a field of our own keep their Kubernetes form.
"""
# ruff: noqa: RUF009 (`declare` returns a dataclass field)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from endpoints.spec.field import DAY_S, NAMED, PAIRS, SECONDS, Effect, Plain, declare
from endpoints.spec.validators import (
    env_problem,
    label_name_problem,
    password_file_problem,
    path_problem,
    store_url_problem,
    store_user_problem,
    weights_version_problem,
)

SOURCES = ("", "huggingface", "s3", "fsx", "pvc")
EXPOSURES = ("none", "ingress", "gateway", "loadbalancer")
TLS = ("none", "secret", "cert-manager")
_FIXED, _LIVE = Effect.FIXED, Effect.LIVE


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """Placement of an endpoint. `cluster` "": this machine; `namespace` "": the cluster's default.
    `instance_types` in order of preference.
    """

    cluster: str = declare(
        "",
        "Cluster",
        "Empty: this machine. Cannot be changed later.",
        _FIXED,
        remedy="Give the name of a cluster from the page Clusters, or leave it empty.",
        **NAMED,
    )
    namespace: str = declare(
        "",
        "Namespace",
        "Empty: the default namespace of the cluster. Cannot be changed later.",
        _FIXED,
        remedy="Give up to 63 lower-case letters, digits and dashes, or leave it empty.",
        rule=label_name_problem,
    )
    instance_types: tuple[str, ...] = declare(
        (),
        "Instance types",
        "One per line, in order of preference. Empty: any node with the requested resources.",
    )
    node_selector: Plain = declare({}, "Node selector", "Required node labels.", **PAIRS)
    node_affinity: Plain = declare(
        {}, "Node affinity", "Kubernetes nodeAffinity (YAML). Excludes instance types."
    )
    tolerations: list[Plain] = declare([], "Tolerations", "Kubernetes tolerations (YAML).")
    priority_class: str = declare("", "Priority class", "Empty: the cluster's default.", **NAMED)
    scheduler: str = declare("", "Scheduler", "Empty: the cluster's default.", **NAMED)


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Source of the weights. `type` "": as given by `model`, a folder in the image or a Hugging
    Face name that the worker downloads itself.
    """

    type: str = declare(
        "",
        "Model source",
        "Source of the weights. Empty: the worker downloads a Hugging Face name; a path is in its "
        "image.",
        choices=SOURCES,
    )
    location: str = declare(
        "",
        "Path within the source",
        "s3, fsx and pvc: the folder of the model. huggingface: organisation/name; empty: the "
        "field model.",
    )
    prefetch: bool = declare(False, "Prefetch", "Load the weights before the worker starts.")
    revision: str = declare(
        "", "Revision", "huggingface only: a branch, tag or commit. Empty: main."
    )
    token_secret: str = declare(
        "",
        "Token secret",
        "huggingface only: a Secret in the namespace that contains the token.",
        **NAMED,
    )
    token_key: str = declare("", "Token key", "Key in the token secret. Empty: token.")
    bucket: str = declare("", "Bucket", "s3 only.")
    region: str = declare("", "Region", "s3 and fsx only.")
    file_system: str = declare("", "File system ID", "fsx only: fs-...")
    dns_name: str = declare("", "DNS name", "fsx only.")
    mount_name: str = declare("", "Mount name", "fsx only.")
    claim: str = declare(
        "",
        "Volume claim",
        "pvc only: a PersistentVolumeClaim in the namespace that contains the model.",
        **NAMED,
    )
    mount_path: str = declare(
        "",
        "Mount path",
        "Path of the model in the worker. Empty: /opt/ml/model.",
        remedy="Give an absolute path, or leave it empty.",
        rule=path_problem,
    )
    endpoint: str = declare(
        "", "Store endpoint", "URL of an S3-compatible store or of a Hugging Face mirror."
    )
    weights_version: str = declare(
        "",
        "Weights version",
        "Any text. Change it after the weights were replaced in place on a read-only volume with "
        "equal sizes and times: workers restart and read no earlier KV cache entry. Other "
        "replacements are recognised by content.",
        remedy="Give up to 128 characters, such as a date.",
        rule=weights_version_problem,
    )


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Pod of each worker. `port` 0: the default."""

    image: str = declare("", "Image", "Empty: the worker image of this installation.")
    command: tuple[str, ...] = declare((), "Command", "One word per line. Empty: the vLLM server.")
    working_dir: str = declare(
        "",
        "Working directory",
        "Empty: the image's own.",
        remedy="Give an absolute path, or leave it empty.",
        rule=path_problem,
    )
    env: Plain = declare({}, "Environment", "Variables as NAME: value (YAML).", rule=env_problem)
    env_from: list[Plain] = declare(
        [], "Environment from references", "Kubernetes env entries with valueFrom (YAML)."
    )
    port: int = declare(0, "Port", "0: the default port.", minimum=0, maximum=65535)
    probes: Plain = declare(
        {}, "Probes", "Kubernetes liveness, readiness and startup probes (YAML)."
    )
    resources: Plain = declare(
        {}, "Kubernetes resources", "requests and limits (YAML); override CPUs, memory and GPUs."
    )
    volumes: list[Plain] = declare([], "Volumes", "Kubernetes volumes (YAML).")
    init_containers: list[Plain] = declare([], "Init containers", "Kubernetes containers (YAML).")
    service_account: str = declare("", "Service account", "Empty: none.", **NAMED)
    pull_secrets: tuple[str, ...] = declare(
        (), "Pull secrets", "Secrets for pulling the image, one per line."
    )


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """Rollout of an endpoint. `deadline_s`: limit for a rollout to serve; `drain_s`: limit for a
    terminating worker's requests.
    """

    deadline_s: int = declare(
        1800,
        "Rollout deadline (s)",
        "Limit for a new revision to become ready.",
        minimum=30,
        maximum=DAY_S,
    )
    auto_rollback: bool = declare(
        True,
        "Automatic rollback",
        "Roll back to the last serving revision if a rollout fails.",
        _LIVE,
    )
    drain_s: int = declare(
        10,
        "Drain time (s)",
        "Limit for the running requests of a terminating worker.",
        minimum=0,
        maximum=3600,
    )


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Worker autoscaling by KEDA triggers. If enabled, `replicas` is the initial count."""

    enabled: bool = declare(False, "Autoscaling", "Scale the workers by KEDA triggers.", _LIVE)
    min: int = declare(1, "Min workers", "Lower limit.", _LIVE, minimum=0, maximum=1024)
    max: int = declare(5, "Max workers", "Upper limit.", _LIVE, minimum=1, maximum=1024)
    polling_s: int = declare(
        30, "Polling interval (s)", "Interval of trigger queries.", _LIVE, minimum=1, maximum=3600
    )
    cooldown_s: int = declare(
        300, "Cooldown (s)", "Idle time before scaling to 0.", _LIVE, **SECONDS
    )
    initial_cooldown_s: int = declare(
        300, "Initial cooldown (s)", "After creation.", _LIVE, **SECONDS
    )
    up_stabilization_s: int = declare(0, "Scale-up stabilization (s)", "Window.", _LIVE, **SECONDS)
    down_stabilization_s: int = declare(
        300, "Scale-down stabilization (s)", "Window.", _LIVE, **SECONDS
    )
    triggers: list[Plain] = declare(
        [], "Triggers", "KEDA triggers (YAML): type, metadata, metricType. Empty: by CPU.", _LIVE
    )


@dataclass(frozen=True, slots=True)
class ExposureSpec:
    kind: str = declare(
        "none",
        "Exposure",
        "Access to the routers from outside the cluster.",
        _LIVE,
        choices=EXPOSURES,
    )
    host: str = declare("", "Host name", "ingress and gateway only.", _LIVE)
    class_name: str = declare("", "Class", "Ingress class or load balancer class.", _LIVE)
    gateway: str = declare("", "Gateway", "gateway only: NAMESPACE/NAME.", _LIVE)
    tls: str = declare("none", "TLS", "Source of the certificate.", _LIVE, choices=TLS)
    tls_secret: str = declare("", "TLS secret", "Secret of the certificate.", _LIVE, **NAMED)
    issuer: str = declare(
        "", "Issuer", "cert-manager only: Issuer/NAME or ClusterIssuer/NAME.", _LIVE
    )
    annotations: Plain = declare(
        {}, "Annotations", "Of the ingress, route or service.", _LIVE, **PAIRS
    )


_FILE: dict[str, Any] = {
    "remedy": "Give the absolute path of a file in EMBERLINE_L2_SECRETS, or leave it empty.",
    "rule": password_file_problem,
}


@dataclass(frozen=True, slots=True)
class StateStoreSpec:
    """Valkey or Redis through which several routers share load, placements and limits."""

    url: str = declare(
        "",
        "State store URL",
        "Valkey, or Redis 6 and newer, through which several routers share load, placements and "
        "limits, such as redis://10.0.0.5:6379/0; rediss:// for TLS. Empty: the redis L2 cache, "
        "else the installation's.",
        _LIVE,
        remedy="Write redis://HOST:PORT/DATABASE, or rediss:// for TLS.",
        rule=store_url_problem,
    )
    username: str = declare(
        "",
        "State store user",
        "ACL user with the rights that the documentation of several routers lists. Empty: the "
        "default user.",
        _LIVE,
        remedy="Give an ACL user of the store, or leave it empty.",
        rule=store_user_problem,
    )
    password_file: str = declare(
        "",
        "State store password file",
        "A file in the console's folder EMBERLINE_L2_SECRETS that contains the password.",
        _LIVE,
        **_FILE,
    )
    ca_file: str = declare(
        "",
        "State store CA file",
        "rediss:// only: a file in EMBERLINE_L2_SECRETS that contains the CA certificates (PEM). "
        "Empty: the system's CAs.",
        _LIVE,
        **_FILE,
    )


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """Routers of an endpoint. `replicas` 0: the location's default. `max_replicas` above
    `replicas`: autoscaled by the router's load. `cpus` and `memory_gib` are requests per replica;
    `cpu_limit` 0: no limit, `memory_limit_gib` 0: equal to the request.
    """

    replicas: int = declare(
        0,
        "Routers",
        "Two or more tolerate a failure. Without a state store they divide all limits. 0: 2 on a "
        "cluster, 1 on this machine.",
        _LIVE,
        minimum=0,
        maximum=64,
    )
    max_replicas: int = declare(
        0, "Max routers", "0: no autoscaling.", _LIVE, minimum=0, maximum=64
    )
    cpus: float = declare(
        0.25,
        "Router CPU request (cores)",
        "Per router; a router uses at most one core.",
        _LIVE,
        minimum=0.01,
        maximum=64,
    )
    cpu_limit: float = declare(
        0.0, "Router CPU limit (cores)", "Per router. 0: no limit.", _LIVE, minimum=0, maximum=64
    )
    memory_gib: float = declare(
        0.5, "Router memory request (GiB)", "Per router.", _LIVE, minimum=0.125, maximum=1024
    )
    memory_limit_gib: float = declare(
        0.0,
        "Router memory limit (GiB)",
        "Per router. 0: equal to the request.",
        _LIVE,
        minimum=0,
        maximum=1024,
    )
    state_store: StateStoreSpec = field(default_factory=StateStoreSpec)


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Per worker. `max_concurrent` 0 and `max_queue` -1: no limit."""

    max_concurrent: int = declare(
        0,
        "Max concurrent requests",
        "Per worker. 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=1_000_000,
    )
    max_queue: int = declare(
        -1, "Max queued requests", "Per worker. -1: no limit.", _LIVE, minimum=-1, maximum=1_000_000
    )
    overflow_status: int = declare(
        429,
        "Rejection status",
        "HTTP status of rejected requests.",
        _LIVE,
        minimum=400,
        maximum=599,
    )


@dataclass(frozen=True, slots=True)
class MonitoringSpec:
    enabled: bool = declare(
        True,
        "Metrics",
        "Prometheus scrapes the pods. Without it, boards, alerts and costs lack the endpoint.",
        _LIVE,
    )
    interval_s: int = declare(
        15, "Scrape interval (s)", "Of Prometheus.", _LIVE, minimum=5, maximum=300
    )
    path: str = declare(
        "/metrics",
        "Metrics path",
        "Path on the workers.",
        _LIVE,
        remedy="Give a path, such as /metrics.",
        rule=path_problem,
    )


@dataclass(frozen=True, slots=True)
class PdSpec:
    """Disaggregated prefill and decode; prompts below `threshold` tokens are not split. `prefill`
    and `decode`: replicas, args, resources, nodeSelector.
    """

    enabled: bool = declare(False, "Disaggregated prefill", "Separate prefill and decode workers.")
    prefill: Plain = declare({}, "Prefill", "replicas, args, resources, nodeSelector.")
    decode: Plain = declare({}, "Decode", "replicas, args, resources, nodeSelector.")
    threshold: int = declare(
        4096,
        "Split threshold (tokens)",
        "Shorter prompts are not split. 0: always split.",
        _LIVE,
        minimum=0,
        maximum=10_000_000,
    )
    topology: Plain = declare({}, "Topology", "sameAZ, availabilityZone, placementGroup.")
