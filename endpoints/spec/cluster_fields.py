"""Fields of an endpoint on a cluster (see `fields`)."""

from __future__ import annotations

from endpoints.spec.field import Effect, SpecField
from endpoints.spec.pod_fields import PLACEMENT, POD, ROLLOUT, SOURCE
from endpoints.spec.section import NAMED, PAIRS, SECONDS, of
from endpoints.spec.validators import path_problem

EXPOSURES = ("none", "ingress", "gateway", "loadbalancer")
TLS = ("none", "secret", "cert-manager")
_RESTART, _LIVE = Effect.RESTART, Effect.LIVE

_SCALING = (
    of("scaling.enabled", bool, "Autoscaling", "Scale the workers by triggers (KEDA).", _LIVE),
    of("scaling.min", int, "At least", "Workers.", _LIVE, minimum=0, maximum=1024),
    of("scaling.max", int, "At most", "Workers.", _LIVE, minimum=1, maximum=1024),
    of("scaling.polling_s", int, "Asked every", "Seconds.", _LIVE, minimum=1, maximum=3600),
    of("scaling.cooldown_s", int, "Cooldown", "Seconds before the last goes.", _LIVE, **SECONDS),
    of(
        "scaling.initial_cooldown_s",
        int,
        "First cooldown",
        "Seconds after the start.",
        _LIVE,
        **SECONDS,
    ),
    of("scaling.up_stabilization_s", int, "Wait before up", "Seconds.", _LIVE, **SECONDS),
    of("scaling.down_stabilization_s", int, "Wait before down", "Seconds.", _LIVE, **SECONDS),
    of(
        "scaling.triggers",
        list,
        "Triggers",
        "As KEDA writes them: type, metadata, metricType. None: by CPU.",
        _LIVE,
    ),
)

_EXPOSURE = (
    of(
        "exposure.kind",
        str,
        "Exposed by",
        "How callers outside the cluster reach the router.",
        _LIVE,
        choices=EXPOSURES,
    ),
    of("exposure.host", str, "Host name", "For ingress and gateway.", _LIVE),
    of("exposure.class_name", str, "Class", "Of the ingress or load balancer.", _LIVE),
    of("exposure.gateway", str, "Gateway", "For gateway: NAMESPACE/NAME.", _LIVE),
    of("exposure.tls", str, "TLS", "Where the certificate comes from.", _LIVE, choices=TLS),
    of(
        "exposure.tls_secret",
        str,
        "TLS secret",
        "Which holds the certificate, or will.",
        _LIVE,
        **NAMED,
    ),
    of("exposure.issuer", str, "Issuer", "For cert-manager: Kind/name.", _LIVE),
    of(
        "exposure.annotations",
        dict,
        "Annotations",
        "On what exposes it.",
        _LIVE,
        **PAIRS,
    ),
)

_OTHERS = (
    of(
        "router.replicas", int, "Routers", "At least two survive one.", _LIVE, minimum=1, maximum=64
    ),
    of(
        "router.max_replicas",
        int,
        "Routers at most",
        "0: not scaled.",
        _LIVE,
        minimum=0,
        maximum=64,
    ),
    of(
        "router.cpus",
        float,
        "CPU request of each router",
        "Cores. A router is one process and uses one core at most.",
        _LIVE,
        minimum=0.01,
        maximum=64,
    ),
    of(
        "router.cpu_limit",
        float,
        "CPU limit of each router",
        "Cores. 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=64,
    ),
    of(
        "router.memory_gib",
        float,
        "Memory request of each router",
        "GiB.",
        _LIVE,
        minimum=0.125,
        maximum=1024,
    ),
    of(
        "router.memory_limit_gib",
        float,
        "Memory limit of each router",
        "GiB. 0: as much as is requested.",
        _LIVE,
        minimum=0,
        maximum=1024,
    ),
    of(
        "limits.max_concurrent",
        int,
        "Requests at once",
        "For each worker; 0: no limit.",
        _LIVE,
        minimum=0,
        maximum=1_000_000,
    ),
    of(
        "limits.max_queue",
        int,
        "Waiting requests",
        "For each worker; -1: no limit.",
        _LIVE,
        minimum=-1,
        maximum=1_000_000,
    ),
    of(
        "limits.overflow_status",
        int,
        "Answer beyond",
        "The status of refused requests.",
        _LIVE,
        minimum=400,
        maximum=599,
    ),
    of("monitoring.enabled", bool, "Metrics", "Let Prometheus find the pods.", _LIVE),
    of("monitoring.interval_s", int, "Scraped every", "Seconds.", _LIVE, minimum=5, maximum=300),
    of(
        "monitoring.path",
        str,
        "Metrics path",
        "Of the workers.",
        _LIVE,
        "Give a path, such as /metrics.",
        rule=path_problem,
    ),
    of("pd.enabled", bool, "Prefill and decode apart", "Two groups of workers.", _RESTART),
    of("pd.prefill", dict, "Prefill", "replicas, args, resources, nodeSelector.", _RESTART),
    of("pd.decode", dict, "Decode", "replicas, args, resources, nodeSelector.", _RESTART),
    of(
        "pd.threshold",
        int,
        "Split from",
        "Tokens of a prompt; 0: always.",
        _LIVE,
        minimum=0,
        maximum=10_000_000,
    ),
    of("pd.topology", dict, "Topology", "sameAZ, availabilityZone, placementGroup.", _RESTART),
    of(
        "tags",
        dict,
        "Tags",
        "Names and values, put on what is made.",
        _LIVE,
        **PAIRS,
    ),
    of("manifest", dict, "Manifest", "The InferenceEndpointConfig it came from, whole.", _LIVE),
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
