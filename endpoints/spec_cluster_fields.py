"""The fields of an endpoint on a cluster, declared once (see `spec_fields`).

Promises the same as there. Must not know Django, other fields or a cluster.
"""

from __future__ import annotations

from typing import Any

from endpoints.spec_cluster import (
    ExposureSpec,
    LimitsSpec,
    MonitoringSpec,
    PdSpec,
    PlacementSpec,
    PodSpec,
    RolloutSpec,
    RouterSpec,
    ScalingSpec,
    SourceSpec,
)
from endpoints.spec_cluster_words import (
    env_problem,
    key_values_problem,
    label_name_problem,
    object_name_problem,
    objects_problem,
    path_problem,
)
from endpoints.spec_field import Effect, SpecField

SOURCES = ("", "huggingface", "s3", "fsx", "pvc")
EXPOSURES = ("none", "ingress", "gateway", "loadbalancer")
TLS = ("none", "secret", "cert-manager")
DAY_S = 86_400

DEFAULTS: dict[str, Any] = {
    "placement": PlacementSpec(),
    "source": SourceSpec(),
    "pod": PodSpec(),
    "rollout": RolloutSpec(),
    "scaling": ScalingSpec(),
    "exposure": ExposureSpec(),
    "router": RouterSpec(),
    "limits": LimitsSpec(),
    "monitoring": MonitoringSpec(),
    "pd": PdSpec(),
}
CLUSTER_SECTIONS = tuple(DEFAULTS)
_REMEDIES: dict[type, str] = {
    str: "Give a text, or leave it empty.",
    int: "Give a whole number.",
    bool: "Give true or false.",
    tuple: "Give a list of texts.",
    dict: "Give an object, {} for none.",
    list: "Give a list of objects, [] for none.",
}


def _of(
    path: str, kind: type, label: str, text: str, effect: Effect, remedy: str = "", **more: Any
) -> SpecField:
    section, _, name = path.partition(".")
    default = getattr(DEFAULTS[section], name) if name else {}
    if kind is int and not remedy:
        low, high = more["minimum"], more["maximum"]
        remedy = f"Give a whole number from {low} to {high}."
    if "choices" in more:
        remedy = "Choose one of: " + ", ".join(filter(None, more["choices"])) + "."
    if kind is list and "rule" not in more:
        more["rule"] = objects_problem
    return SpecField(path, kind, default, label, text, remedy or _REMEDIES[kind], effect, **more)


_FIXED, _RESTART, _LIVE = Effect.FIXED, Effect.RESTART, Effect.LIVE
_NAME: dict[str, Any] = {"rule": object_name_problem}
_SECONDS: dict[str, Any] = {"minimum": 0, "maximum": DAY_S}

_PLACEMENT = (
    _of(
        "placement.cluster",
        str,
        "Cluster",
        "Where it runs. Empty: this machine. It cannot be changed.",
        _FIXED,
        "Give the name of a cluster of the page Clusters, or leave it empty.",
        **_NAME,
    ),
    _of(
        "placement.namespace",
        str,
        "Namespace",
        "Of the cluster. Empty: the one given with the cluster. It cannot be changed.",
        _FIXED,
        "Give up to 63 lower-case letters, digits and dashes, or leave it empty.",
        rule=label_name_problem,
    ),
    _of(
        "placement.instance_types",
        tuple,
        "Instance types",
        "One a line, the preferred one first. Empty: any node that has what is asked for.",
        _RESTART,
    ),
    _of(
        "placement.node_selector",
        dict,
        "Node selector",
        "Labels which a node must have.",
        _RESTART,
        rule=key_values_problem,
    ),
    _of(
        "placement.node_affinity",
        dict,
        "Node affinity",
        "As Kubernetes writes nodeAffinity. Not together with instance types.",
        _RESTART,
    ),
    _of("placement.tolerations", list, "Tolerations", "As Kubernetes writes them.", _RESTART),
    _of(
        "placement.priority_class",
        str,
        "Priority class",
        "Empty: the cluster's default.",
        _RESTART,
        **_NAME,
    ),
    _of(
        "placement.scheduler", str, "Scheduler", "Empty: the cluster's default.", _RESTART, **_NAME
    ),
)

_SOURCE = (
    _of(
        "source.type",
        str,
        "Model source",
        "Where the weights come from. Empty: a Hugging Face name is downloaded by the worker, a "
        "path is one of its image.",
        _RESTART,
        choices=SOURCES,
    ),
    _of(
        "source.location",
        str,
        "Path within the source",
        "For s3, fsx and pvc: the folder of the model. For huggingface: organisation/name, empty "
        "for the field model.",
        _RESTART,
    ),
    _of(
        "source.prefetch",
        bool,
        "Prefetch",
        "Read the weights into memory before the worker starts.",
        _RESTART,
    ),
    _of(
        "source.revision",
        str,
        "Revision",
        "For huggingface: a branch, tag or commit. Empty: main.",
        _RESTART,
    ),
    _of(
        "source.token_secret",
        str,
        "Token secret",
        "For huggingface: a Secret in the namespace that holds the token.",
        _RESTART,
        **_NAME,
    ),
    _of("source.token_key", str, "Token key", "Which key of that Secret.", _RESTART),
    _of("source.bucket", str, "Bucket", "For s3.", _RESTART),
    _of("source.region", str, "Region", "For s3.", _RESTART),
    _of("source.file_system", str, "File system", "For fsx: its id, fs-...", _RESTART),
    _of("source.dns_name", str, "DNS name", "For fsx.", _RESTART),
    _of("source.mount_name", str, "Mount name", "For fsx.", _RESTART),
    _of(
        "source.claim",
        str,
        "Volume claim",
        "For pvc: a PersistentVolumeClaim in the namespace, which holds the model.",
        _RESTART,
        **_NAME,
    ),
    _of(
        "source.mount_path",
        str,
        "Mounted at",
        "Where the worker finds the model. Empty: /opt/ml/model.",
        _RESTART,
        "Give an absolute path, or leave it empty.",
        rule=path_problem,
    ),
    _of(
        "source.endpoint",
        str,
        "Address of the store",
        "For s3 that is not Amazon's, and for a mirror of Hugging Face.",
        _RESTART,
    ),
)

_POD = (
    _of("pod.image", str, "Image", "Empty: the installation's image of workers.", _RESTART),
    _of("pod.command", tuple, "Command", "Empty: Emberline's own.", _RESTART),
    _of(
        "pod.working_dir",
        str,
        "Working directory",
        "Empty: the folder of its files.",
        _RESTART,
        "Give an absolute path, or leave it empty.",
        rule=path_problem,
    ),
    _of("pod.env", dict, "Environment", "Names and values.", _RESTART, rule=env_problem),
    _of(
        "pod.env_from",
        list,
        "Environment from elsewhere",
        "Entries as Kubernetes writes env, with valueFrom.",
        _RESTART,
    ),
    _of("pod.port", int, "Port", "0: Emberline's own.", _RESTART, minimum=0, maximum=65535),
    _of(
        "pod.probes",
        dict,
        "Probes",
        "liveness, readiness and startup, as Kubernetes writes them.",
        _RESTART,
    ),
    _of(
        "pod.resources",
        dict,
        "Resources as written",
        "requests and limits, over what Resources above says.",
        _RESTART,
    ),
    _of("pod.volumes", list, "Volumes", "As Kubernetes writes them.", _RESTART),
    _of("pod.init_containers", list, "Init containers", "As Kubernetes writes them.", _RESTART),
    _of("pod.service_account", str, "Service account", "Empty: none.", _RESTART, **_NAME),
    _of("pod.pull_secrets", tuple, "Pull secrets", "Secrets for the image, one a line.", _RESTART),
)

_ROLLOUT = (
    _of(
        "rollout.deadline_s",
        int,
        "Deadline",
        "Seconds within which a change must serve.",
        _RESTART,
        minimum=30,
        maximum=DAY_S,
    ),
    _of(
        "rollout.auto_rollback",
        bool,
        "Automatic rollback",
        "Go back to the revision that served last when a change fails.",
        _LIVE,
    ),
    _of(
        "rollout.drain_s",
        int,
        "Drain",
        "Seconds a leaving worker goes on answering while the router turns away.",
        _RESTART,
        minimum=0,
        maximum=3600,
    ),
)

_SCALING = (
    _of("scaling.enabled", bool, "Autoscaling", "Scale the workers by triggers (KEDA).", _LIVE),
    _of("scaling.min", int, "At least", "Workers.", _LIVE, minimum=0, maximum=1024),
    _of("scaling.max", int, "At most", "Workers.", _LIVE, minimum=1, maximum=1024),
    _of("scaling.polling_s", int, "Asked every", "Seconds.", _LIVE, minimum=1, maximum=3600),
    _of("scaling.cooldown_s", int, "Cooldown", "Seconds before the last goes.", _LIVE, **_SECONDS),
    _of(
        "scaling.initial_cooldown_s",
        int,
        "First cooldown",
        "Seconds after the start.",
        _LIVE,
        **_SECONDS,
    ),
    _of("scaling.up_stabilization_s", int, "Wait before up", "Seconds.", _LIVE, **_SECONDS),
    _of("scaling.down_stabilization_s", int, "Wait before down", "Seconds.", _LIVE, **_SECONDS),
    _of(
        "scaling.triggers",
        list,
        "Triggers",
        "As KEDA writes them: type, metadata, metricType. None: by CPU.",
        _LIVE,
    ),
)

_EXPOSURE = (
    _of(
        "exposure.kind",
        str,
        "Exposed by",
        "How callers outside the cluster reach the router.",
        _LIVE,
        choices=EXPOSURES,
    ),
    _of("exposure.host", str, "Host name", "For ingress and gateway.", _LIVE),
    _of("exposure.class_name", str, "Class", "Of the ingress or load balancer.", _LIVE),
    _of("exposure.gateway", str, "Gateway", "For gateway: NAMESPACE/NAME.", _LIVE),
    _of("exposure.tls", str, "TLS", "Where the certificate comes from.", _LIVE, choices=TLS),
    _of(
        "exposure.tls_secret",
        str,
        "TLS secret",
        "Which holds the certificate, or will.",
        _LIVE,
        **_NAME,
    ),
    _of("exposure.issuer", str, "Issuer", "For cert-manager: Kind/name.", _LIVE),
    _of(
        "exposure.annotations",
        dict,
        "Annotations",
        "On what exposes it.",
        _LIVE,
        rule=key_values_problem,
    ),
)

_OTHERS = (
    _of(
        "router.replicas", int, "Routers", "At least two survive one.", _LIVE, minimum=1, maximum=64
    ),
    _of(
        "router.max_replicas",
        int,
        "Routers at most",
        "0: not scaled.",
        _LIVE,
        minimum=0,
        maximum=64,
    ),
    _of(
        "limits.max_concurrent",
        int,
        "Requests at once",
        "For each worker; 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=1_000_000,
    ),
    _of(
        "limits.max_queue",
        int,
        "Waiting requests",
        "For each worker; -1: no limit.",
        _LIVE,
        minimum=-1,
        maximum=1_000_000,
    ),
    _of(
        "limits.overflow_status",
        int,
        "Answer beyond",
        "The status of refused requests.",
        _LIVE,
        minimum=400,
        maximum=599,
    ),
    _of("monitoring.enabled", bool, "Metrics", "Let Prometheus find the pods.", _LIVE),
    _of("monitoring.interval_s", int, "Scraped every", "Seconds.", _LIVE, minimum=5, maximum=300),
    _of(
        "monitoring.path",
        str,
        "Metrics path",
        "Of the workers.",
        _LIVE,
        "Give a path, such as /metrics.",
        rule=path_problem,
    ),
    _of("pd.enabled", bool, "Prefill and decode apart", "Two groups of workers.", _RESTART),
    _of("pd.prefill", dict, "Prefill", "replicas, args, resources, nodeSelector.", _RESTART),
    _of("pd.decode", dict, "Decode", "replicas, args, resources, nodeSelector.", _RESTART),
    _of(
        "pd.threshold",
        int,
        "Split from",
        "Tokens of a prompt; 0: always.",
        _LIVE,
        minimum=0,
        maximum=10_000_000,
    ),
    _of("pd.topology", dict, "Topology", "sameAZ, availabilityZone, placementGroup.", _RESTART),
    _of(
        "tags",
        dict,
        "Tags",
        "Names and values, put on what is made.",
        _LIVE,
        rule=key_values_problem,
    ),
    _of("manifest", dict, "Manifest", "The InferenceEndpointConfig it came from, whole.", _LIVE),
)

CLUSTER_FIELDS: tuple[SpecField, ...] = (
    *_PLACEMENT,
    *_SOURCE,
    *_POD,
    *_ROLLOUT,
    *_SCALING,
    *_EXPOSURE,
    *_OTHERS,
)
ANYWHERE = frozenset({"tags", "manifest"})
"""Not only for clusters."""
