"""Sections of a spec for clusters: placement, weights, pods, scaling, exposure, routers, metrics.

Defaults mean "as on one machine". Values without a field of our own keep their Kubernetes form.
"""
# ruff: noqa: RUF009 (`declare` returns a dataclass field)

from __future__ import annotations

from dataclasses import dataclass

from endpoints.spec.field import DAY_S, NAMED, PAIRS, SECONDS, Effect, Plain, declare
from endpoints.spec.validators import env_problem, label_name_problem, path_problem

SOURCES = ("", "huggingface", "s3", "fsx", "pvc")
EXPOSURES = ("none", "ingress", "gateway", "loadbalancer")
TLS = ("none", "secret", "cert-manager")
_FIXED, _LIVE = Effect.FIXED, Effect.LIVE


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """`cluster` "": this machine; `namespace` "": the cluster's default. `instance_types` in order
    of preference.
    """

    cluster: str = declare(
        "",
        "Cluster",
        "Where it runs. Empty: this machine. It cannot be changed.",
        _FIXED,
        remedy="Give the name of a cluster of the page Clusters, or leave it empty.",
        **NAMED,
    )
    namespace: str = declare(
        "",
        "Namespace",
        "Of the cluster. Empty: the one given with the cluster. It cannot be changed.",
        _FIXED,
        remedy="Give up to 63 lower-case letters, digits and dashes, or leave it empty.",
        rule=label_name_problem,
    )
    instance_types: tuple[str, ...] = declare(
        (),
        "Instance types",
        "One a line, the preferred one first. Empty: any node that has what is asked for.",
    )
    node_selector: Plain = declare({}, "Node selector", "Labels which a node must have.", **PAIRS)
    node_affinity: Plain = declare(
        {}, "Node affinity", "As Kubernetes writes nodeAffinity. Not together with instance types."
    )
    tolerations: list[Plain] = declare([], "Tolerations", "As Kubernetes writes them.")
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
        "Where the weights come from. Empty: a Hugging Face name is downloaded by the "
        "worker, a path is one of its image.",
        choices=SOURCES,
    )
    location: str = declare(
        "",
        "Path within the source",
        "For s3, fsx and pvc: the folder of the model. For huggingface: organisation/name, "
        "empty for the field model.",
    )
    prefetch: bool = declare(
        False, "Prefetch", "Read the weights into memory before the worker starts."
    )
    revision: str = declare(
        "", "Revision", "For huggingface: a branch, tag or commit. Empty: main."
    )
    token_secret: str = declare(
        "",
        "Token secret",
        "For huggingface: a Secret in the namespace that holds the token.",
        **NAMED,
    )
    token_key: str = declare("", "Token key", "Which key of that Secret.")
    bucket: str = declare("", "Bucket", "For s3.")
    region: str = declare("", "Region", "For s3.")
    file_system: str = declare("", "File system", "For fsx: its id, fs-...")
    dns_name: str = declare("", "DNS name", "For fsx.")
    mount_name: str = declare("", "Mount name", "For fsx.")
    claim: str = declare(
        "",
        "Volume claim",
        "For pvc: a PersistentVolumeClaim in the namespace, which holds the model.",
        **NAMED,
    )
    mount_path: str = declare(
        "",
        "Mounted at",
        "Where the worker finds the model. Empty: /opt/ml/model.",
        remedy="Give an absolute path, or leave it empty.",
        rule=path_problem,
    )
    endpoint: str = declare(
        "", "Address of the store", "For s3 that is not Amazon's, and for a mirror of Hugging Face."
    )


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Pod of each worker. `port` 0: the default."""

    image: str = declare("", "Image", "Empty: the installation's image of workers.")
    command: tuple[str, ...] = declare((), "Command", "Empty: Emberline's own.")
    working_dir: str = declare(
        "",
        "Working directory",
        "Empty: the folder of its files.",
        remedy="Give an absolute path, or leave it empty.",
        rule=path_problem,
    )
    env: Plain = declare({}, "Environment", "Names and values.", rule=env_problem)
    env_from: list[Plain] = declare(
        [], "Environment from elsewhere", "Entries as Kubernetes writes env, with valueFrom."
    )
    port: int = declare(0, "Port", "0: Emberline's own.", minimum=0, maximum=65535)
    probes: Plain = declare(
        {}, "Probes", "liveness, readiness and startup, as Kubernetes writes them."
    )
    resources: Plain = declare(
        {}, "Resources as written", "requests and limits, over what Resources above says."
    )
    volumes: list[Plain] = declare([], "Volumes", "As Kubernetes writes them.")
    init_containers: list[Plain] = declare([], "Init containers", "As Kubernetes writes them.")
    service_account: str = declare("", "Service account", "Empty: none.", **NAMED)
    pull_secrets: tuple[str, ...] = declare(
        (), "Pull secrets", "Secrets for the image, one a line."
    )


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """`deadline_s`: limit for a rollout to serve; `drain_s`: limit for a terminating worker's
    requests.
    """

    deadline_s: int = declare(
        1800, "Deadline", "Seconds within which a change must serve.", minimum=30, maximum=DAY_S
    )
    auto_rollback: bool = declare(
        True,
        "Automatic rollback",
        "Go back to the revision that served last when a change fails.",
        _LIVE,
    )
    drain_s: int = declare(
        10,
        "Drain",
        "Seconds a leaving worker goes on answering while the router turns away.",
        minimum=0,
        maximum=3600,
    )


@dataclass(frozen=True, slots=True)
class ScalingSpec:
    """Worker autoscaling by KEDA triggers. If enabled, `replicas` is the initial count."""

    enabled: bool = declare(False, "Autoscaling", "Scale the workers by triggers (KEDA).", _LIVE)
    min: int = declare(1, "At least", "Workers.", _LIVE, minimum=0, maximum=1024)
    max: int = declare(5, "At most", "Workers.", _LIVE, minimum=1, maximum=1024)
    polling_s: int = declare(30, "Asked every", "Seconds.", _LIVE, minimum=1, maximum=3600)
    cooldown_s: int = declare(300, "Cooldown", "Seconds before the last goes.", _LIVE, **SECONDS)
    initial_cooldown_s: int = declare(
        300, "First cooldown", "Seconds after the start.", _LIVE, **SECONDS
    )
    up_stabilization_s: int = declare(0, "Wait before up", "Seconds.", _LIVE, **SECONDS)
    down_stabilization_s: int = declare(300, "Wait before down", "Seconds.", _LIVE, **SECONDS)
    triggers: list[Plain] = declare(
        [], "Triggers", "As KEDA writes them: type, metadata, metricType. None: by CPU.", _LIVE
    )


@dataclass(frozen=True, slots=True)
class ExposureSpec:
    kind: str = declare(
        "none",
        "Exposed by",
        "How callers outside the cluster reach the router.",
        _LIVE,
        choices=EXPOSURES,
    )
    host: str = declare("", "Host name", "For ingress and gateway.", _LIVE)
    class_name: str = declare("", "Class", "Of the ingress or load balancer.", _LIVE)
    gateway: str = declare("", "Gateway", "For gateway: NAMESPACE/NAME.", _LIVE)
    tls: str = declare("none", "TLS", "Where the certificate comes from.", _LIVE, choices=TLS)
    tls_secret: str = declare(
        "", "TLS secret", "Which holds the certificate, or will.", _LIVE, **NAMED
    )
    issuer: str = declare("", "Issuer", "For cert-manager: Kind/name.", _LIVE)
    annotations: Plain = declare({}, "Annotations", "On what exposes it.", _LIVE, **PAIRS)


@dataclass(frozen=True, slots=True)
class RouterSpec:
    """`max_replicas` above `replicas`: autoscaled by the router's load. `cpus` and `memory_gib` are
    requests per replica; `cpu_limit` 0: no limit, `memory_limit_gib` 0: equal to the request.
    """

    replicas: int = declare(2, "Routers", "At least two survive one.", _LIVE, minimum=1, maximum=64)
    max_replicas: int = declare(
        0, "Routers at most", "0: not scaled.", _LIVE, minimum=0, maximum=64
    )
    cpus: float = declare(
        0.25,
        "CPU request of each router",
        "Cores. A router is one process and uses one core at most.",
        _LIVE,
        minimum=0.01,
        maximum=64,
    )
    cpu_limit: float = declare(
        0.0, "CPU limit of each router", "Cores. 0: no limit.", _LIVE, minimum=0, maximum=64
    )
    memory_gib: float = declare(
        0.5, "Memory request of each router", "GiB.", _LIVE, minimum=0.125, maximum=1024
    )
    memory_limit_gib: float = declare(
        0.0,
        "Memory limit of each router",
        "GiB. 0: as much as is requested.",
        _LIVE,
        minimum=0,
        maximum=1024,
    )


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Per worker. `max_concurrent` 0 and `max_queue` -1: no limit."""

    max_concurrent: int = declare(
        0, "Requests at once", "For each worker; 0: no limit.", _LIVE, minimum=0, maximum=1_000_000
    )
    max_queue: int = declare(
        -1,
        "Waiting requests",
        "For each worker; -1: no limit.",
        _LIVE,
        minimum=-1,
        maximum=1_000_000,
    )
    overflow_status: int = declare(
        429, "Answer beyond", "The status of refused requests.", _LIVE, minimum=400, maximum=599
    )


@dataclass(frozen=True, slots=True)
class MonitoringSpec:
    enabled: bool = declare(True, "Metrics", "Let Prometheus find the pods.", _LIVE)
    interval_s: int = declare(15, "Scraped every", "Seconds.", _LIVE, minimum=5, maximum=300)
    path: str = declare(
        "/metrics",
        "Metrics path",
        "Of the workers.",
        _LIVE,
        remedy="Give a path, such as /metrics.",
        rule=path_problem,
    )


@dataclass(frozen=True, slots=True)
class PdSpec:
    """Disaggregated prefill and decode; prompts below `threshold` tokens are not split. `prefill`
    and `decode`: replicas, args, resources, nodeSelector.
    """

    enabled: bool = declare(False, "Prefill and decode apart", "Two groups of workers.")
    prefill: Plain = declare({}, "Prefill", "replicas, args, resources, nodeSelector.")
    decode: Plain = declare({}, "Decode", "replicas, args, resources, nodeSelector.")
    threshold: int = declare(
        4096, "Split from", "Tokens of a prompt; 0: always.", _LIVE, minimum=0, maximum=10_000_000
    )
    topology: Plain = declare({}, "Topology", "sameAZ, availabilityZone, placementGroup.")
