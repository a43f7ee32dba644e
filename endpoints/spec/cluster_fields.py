"""Fields of an endpoint on a cluster (see `fields`)."""

from __future__ import annotations

from endpoints.spec.field import Effect, SpecField
from endpoints.spec.pod_fields import PLACEMENT, POD, ROLLOUT, SOURCE
from endpoints.spec.section import NAMED, PAIRS, SECONDS, section_fields
from endpoints.spec.validators import path_problem

EXPOSURES = ("none", "ingress", "gateway", "loadbalancer")
TLS = ("none", "secret", "cert-manager")
_RESTART, _LIVE = Effect.RESTART, Effect.LIVE

_SCALING = (
    section_fields(
        "scaling.enabled", bool, "Autoscaling", "Scale the workers by triggers (KEDA).", _LIVE
    ),
    section_fields("scaling.min", int, "At least", "Workers.", _LIVE, minimum=0, maximum=1024),
    section_fields("scaling.max", int, "At most", "Workers.", _LIVE, minimum=1, maximum=1024),
    section_fields(
        "scaling.polling_s", int, "Asked every", "Seconds.", _LIVE, minimum=1, maximum=3600
    ),
    section_fields(
        "scaling.cooldown_s", int, "Cooldown", "Seconds before the last goes.", _LIVE, **SECONDS
    ),
    section_fields(
        "scaling.initial_cooldown_s",
        int,
        "First cooldown",
        "Seconds after the start.",
        _LIVE,
        **SECONDS,
    ),
    section_fields(
        "scaling.up_stabilization_s", int, "Wait before up", "Seconds.", _LIVE, **SECONDS
    ),
    section_fields(
        "scaling.down_stabilization_s", int, "Wait before down", "Seconds.", _LIVE, **SECONDS
    ),
    section_fields(
        "scaling.triggers",
        list,
        "Triggers",
        "As KEDA writes them: type, metadata, metricType. None: by CPU.",
        _LIVE,
    ),
)

_EXPOSURE = (
    section_fields(
        "exposure.kind",
        str,
        "Exposed by",
        "How callers outside the cluster reach the router.",
        _LIVE,
        choices=EXPOSURES,
    ),
    section_fields("exposure.host", str, "Host name", "For ingress and gateway.", _LIVE),
    section_fields("exposure.class_name", str, "Class", "Of the ingress or load balancer.", _LIVE),
    section_fields("exposure.gateway", str, "Gateway", "For gateway: NAMESPACE/NAME.", _LIVE),
    section_fields(
        "exposure.tls", str, "TLS", "Where the certificate comes from.", _LIVE, choices=TLS
    ),
    section_fields(
        "exposure.tls_secret",
        str,
        "TLS secret",
        "Which holds the certificate, or will.",
        _LIVE,
        **NAMED,
    ),
    section_fields("exposure.issuer", str, "Issuer", "For cert-manager: Kind/name.", _LIVE),
    section_fields(
        "exposure.annotations",
        dict,
        "Annotations",
        "On what exposes it.",
        _LIVE,
        **PAIRS,
    ),
)

_OTHERS = (
    section_fields(
        "router.replicas", int, "Routers", "At least two survive one.", _LIVE, minimum=1, maximum=64
    ),
    section_fields(
        "router.max_replicas",
        int,
        "Routers at most",
        "0: not scaled.",
        _LIVE,
        minimum=0,
        maximum=64,
    ),
    section_fields(
        "router.cpus",
        float,
        "CPU request of each router",
        "Cores. A router is one process and uses one core at most.",
        _LIVE,
        minimum=0.01,
        maximum=64,
    ),
    section_fields(
        "router.cpu_limit",
        float,
        "CPU limit of each router",
        "Cores. 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=64,
    ),
    section_fields(
        "router.memory_gib",
        float,
        "Memory request of each router",
        "GiB.",
        _LIVE,
        minimum=0.125,
        maximum=1024,
    ),
    section_fields(
        "router.memory_limit_gib",
        float,
        "Memory limit of each router",
        "GiB. 0: as much as is requested.",
        _LIVE,
        minimum=0,
        maximum=1024,
    ),
    section_fields(
        "limits.max_concurrent",
        int,
        "Requests at once",
        "For each worker; 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=1_000_000,
    ),
    section_fields(
        "limits.max_queue",
        int,
        "Waiting requests",
        "For each worker; -1: no limit.",
        _LIVE,
        minimum=-1,
        maximum=1_000_000,
    ),
    section_fields(
        "limits.overflow_status",
        int,
        "Answer beyond",
        "The status of refused requests.",
        _LIVE,
        minimum=400,
        maximum=599,
    ),
    section_fields("monitoring.enabled", bool, "Metrics", "Let Prometheus find the pods.", _LIVE),
    section_fields(
        "monitoring.interval_s", int, "Scraped every", "Seconds.", _LIVE, minimum=5, maximum=300
    ),
    section_fields(
        "monitoring.path",
        str,
        "Metrics path",
        "Of the workers.",
        _LIVE,
        "Give a path, such as /metrics.",
        rule=path_problem,
    ),
    section_fields(
        "pd.enabled", bool, "Prefill and decode apart", "Two groups of workers.", _RESTART
    ),
    section_fields(
        "pd.prefill", dict, "Prefill", "replicas, args, resources, nodeSelector.", _RESTART
    ),
    section_fields(
        "pd.decode", dict, "Decode", "replicas, args, resources, nodeSelector.", _RESTART
    ),
    section_fields(
        "pd.threshold",
        int,
        "Split from",
        "Tokens of a prompt; 0: always.",
        _LIVE,
        minimum=0,
        maximum=10_000_000,
    ),
    section_fields(
        "pd.topology", dict, "Topology", "sameAZ, availabilityZone, placementGroup.", _RESTART
    ),
    section_fields(
        "tags",
        dict,
        "Tags",
        "Names and values, put on what is made.",
        _LIVE,
        **PAIRS,
    ),
    section_fields(
        "manifest", dict, "Manifest", "The InferenceEndpointConfig it came from, whole.", _LIVE
    ),
)

CLUSTER_FIELDS: tuple[SpecField, ...] = (
    *PLACEMENT,
    *SOURCE,
    *POD,
    *ROLLOUT,
    *_SCALING,
    *_EXPOSURE,
    *_OTHERS,
)
ANYWHERE = frozenset({"tags", "manifest"})
"""Fields of cluster sections that also apply to this machine."""
