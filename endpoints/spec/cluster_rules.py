"""Rules of a spec on a cluster: consistency, and capabilities of the cluster.

Missing capabilities are rejected with cause and fix; before the first observation of a cluster
nothing is rejected for its capabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from console.core.errors import Problem
from console.provisioners.kubernetes.api import capabilities as known
from endpoints.spec.cluster_spec import SOURCES
from endpoints.spec.endpoint_spec import EndpointSpec, gpu_resource
from endpoints.spec.fields import CLUSTER_FIELDS


@dataclass(frozen=True)
class ClusterFacts:
    """Facts of a cluster that a spec is checked against. `capabilities` None: not observed yet.
    `why_not`: cause and fix of a missing capability. `worker_image`, `engine_image`: whether the
    installation sets one.
    """

    name: str
    capabilities: frozenset[str] | None = None
    why_not: Callable[[str], str] = field(default=lambda _name: "")
    worker_image: bool = True
    engine_image: bool = True
    priority_classes: tuple[str, ...] | None = None

    def lacks(self, capability: str) -> bool:
        return self.capabilities is not None and capability not in self.capabilities


Rule = Callable[[EndpointSpec, ClusterFacts], Iterator[Problem]]


def violations(spec: EndpointSpec, cluster: ClusterFacts) -> list[Problem]:
    return [error for rule in _RULES for error in rule(spec, cluster)]


def _error(spec: EndpointSpec, path: str, message: str, remedy: str, code: str) -> Problem:
    value: Any = spec.flat()[path]
    return Problem(path, value, message, remedy, code)


def _missing_capability(
    spec: EndpointSpec, cluster: ClusterFacts, path: str, capability: str, wanted: str
) -> Iterator[Problem]:
    if cluster.lacks(capability):
        requirement = known.CAPABILITIES[capability]
        message = f"{wanted} needs {requirement.label}, which cluster {cluster.name} lacks."
        remedy = cluster.why_not(capability) or requirement.remedy
        yield _error(spec, path, message, remedy, "missing_capability")


def _images(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    if not cluster.engine_image:
        message = "No router image is configured."
        remedy = "Set EMBERLINE_ENGINE_IMAGE in the console's settings."
        yield _error(spec, "placement.cluster", message, remedy, "no_image")
    if not (spec.pod.image or spec.simulated or cluster.worker_image):
        message = "No worker image is configured."
        remedy = "Set pod.image, or EMBERLINE_WORKER_IMAGE in the console's settings."
        yield _error(spec, "pod.image", message, remedy, "no_image")


# Ranges in Kubernetes; fields not listed accept any number from 0 on.
_GRACE, _SUCCESS = "terminationGracePeriodSeconds", "successThreshold"


def _probes(spec: EndpointSpec, _cluster: ClusterFacts) -> Iterator[Problem]:
    for name, probe in spec.pod.probes.items():
        kind = name.removesuffix("Probe")
        probe_fields = probe if isinstance(probe, dict) else {}
        if kind == "readiness" and _GRACE in probe_fields:
            message = f"A readiness probe has no {_GRACE}."
            remedy = "Move it to the liveness or startup probe, or remove it."
            yield _error(spec, "pod.probes", message, remedy, "not_used")
        elif not _positive(probe_fields.get(_GRACE, 1)):
            message = f"{_GRACE} of the {kind} probe is {probe_fields[_GRACE]!r}."
            remedy = "Give a whole number of seconds, 1 or more, or remove it."
            yield _error(spec, "pod.probes", message, remedy, "out_of_range")
        if kind in ("liveness", "startup") and probe_fields.get(_SUCCESS, 1) != 1:
            message = f"{_SUCCESS} of the {kind} probe is {probe_fields[_SUCCESS]!r}."
            yield _error(spec, "pod.probes", message, "Give 1, or remove it.", "out_of_range")


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _placement(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    placement = spec.placement
    if placement.instance_types and placement.node_affinity:
        message = "Instance types and node affinity exclude each other."
        remedy = "Keep one of them."
        yield _error(spec, "placement.node_affinity", message, remedy, "conflict")
    classes = cluster.priority_classes
    if placement.priority_class and classes is not None and placement.priority_class not in classes:
        message = f"Cluster {cluster.name} has no such priority class."
        remedy = f"Choose one of: {', '.join(sorted(classes)) or 'none, leave it empty'}."
        yield _error(spec, "placement.priority_class", message, remedy, "unknown")
    resource, count = gpu_resource(spec)
    capability = known.GPU_DOMAINS.get(resource.partition("/")[0])
    if count and capability:
        yield from _missing_capability(
            spec, cluster, "resources.gpus", capability, "A worker with GPUs"
        )


# Required and optional fields per source; `type` and `weights_version` apply to each.
SOURCE_NEEDS = {
    "": (),
    "huggingface": (),
    "s3": ("bucket",),
    "fsx": ("file_system", "mount_name"),
    "pvc": ("claim",),
}
SOURCE_TAKES = {
    "": ("revision", "token_secret", "token_key", "endpoint"),
    "huggingface": (
        *("location", "prefetch", "revision", "token_secret", "token_key"),
        *("mount_path", "endpoint"),
    ),
    "s3": ("location", "prefetch", "region", "mount_path", "endpoint"),
    "fsx": ("location", "prefetch", "region", "dns_name", "mount_path"),
    "pvc": ("location", "prefetch", "mount_path"),
}


def _source(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    kind = spec.source.type
    flat = spec.flat()
    for name in SOURCE_NEEDS[kind]:
        if not flat[f"source.{name}"]:
            message = f"The source {kind} requires this field."
            yield _error(spec, f"source.{name}", message, "Enter it.", "required")
    for spec_field in CLUSTER_FIELDS:
        section, _, name = spec_field.path.partition(".")
        used = name in (*SOURCE_NEEDS[kind], *SOURCE_TAKES[kind], "type", "weights_version")
        if section == "source" and not used and flat[spec_field.path] != spec_field.default:
            others = ", ".join(
                other
                for other in SOURCES
                if name in (*SOURCE_NEEDS[other], *SOURCE_TAKES[other]) and other
            )
            message = f"{spec_field.label} applies to the source {others} only."
            yield _error(spec, spec_field.path, message, "Leave it empty.", "not_used")
    yield from _weights(spec)
    for source, capability in (("s3", known.S3_CSI), ("fsx", known.FSX_CSI)):
        if kind == source:
            yield from _missing_capability(
                spec, cluster, "source.type", capability, f"The source {kind}"
            )


def _weights(spec: EndpointSpec) -> Iterator[Problem]:
    source = spec.source
    on_hub = "/" in spec.model and not spec.model.startswith("/")
    if source.type == "fsx" and not (source.dns_name or source.region):
        message = "The DNS name of the file system is unknown without its region."
        yield _error(
            spec, "source.dns_name", message, "Give the DNS name or the region.", "required"
        )
    if source.type == "huggingface" and not (source.location or on_hub):
        message = "Neither the model nor the path within the source is a Hugging Face name."
        remedy = "Write organisation/name as the model."
        yield _error(spec, "model", message, remedy, "unknown_model")
    if not source.type and not spec.simulated and "/" not in spec.model:
        message = f"The source of the weights of {spec.model or 'the model'} is not set."
        remedy = "Choose a source, or give the model as organisation/name."
        yield _error(spec, "source.type", message, remedy, "required")


def _scaling(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    scaling, router = spec.scaling, spec.router
    if scaling.enabled:
        if scaling.min > scaling.max:
            message = f"Min workers ({scaling.min}) exceeds max workers ({scaling.max})."
            yield _error(
                spec, "scaling.max", message, f"Give {scaling.min} or more.", "out_of_range"
            )
        if not scaling.triggers and scaling.min < 1:
            message = "Scaling to 0 requires a trigger: without workers there is no CPU metric."
            yield _error(spec, "scaling.min", message, "Give 1, or a trigger.", "out_of_range")
        needed = known.KEDA if scaling.triggers else known.METRICS_SERVER
        by = "triggers" if scaling.triggers else "CPU"
        yield from _missing_capability(
            spec, cluster, "scaling.enabled", needed, f"Autoscaling by {by}"
        )
    if router.max_replicas and router.max_replicas < spec.routers:
        message = f"Routers ({spec.routers}) exceed max routers ({router.max_replicas})."
        remedy = f"Give {spec.routers} or more, or 0."
        yield _error(spec, "router.max_replicas", message, remedy, "out_of_range")
    if router.max_replicas > spec.routers:
        purpose = "Autoscaling of routers"
        yield from _missing_capability(
            spec, cluster, "router.max_replicas", known.METRICS_SERVER, purpose
        )


def _router_resources(spec: EndpointSpec, _cluster: ClusterFacts) -> Iterator[Problem]:
    router = spec.router
    for limit, request, path, unit in (
        (router.cpu_limit, router.cpus, "router.cpu_limit", "cores"),
        (router.memory_limit_gib, router.memory_gib, "router.memory_limit_gib", "GiB"),
    ):
        if limit and limit < request:
            message = f"The limit ({limit:g} {unit}) is below the request ({request:g} {unit})."
            yield _error(spec, path, message, f"Give {request:g} or more, or 0.", "out_of_range")


_EXPOSED_BY = {
    "ingress": known.INGRESS,
    "gateway": known.GATEWAY_API,
    "loadbalancer": known.LOAD_BALANCER,
}


def _exposure(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    exposure = spec.exposure
    if exposure.kind in _EXPOSED_BY:
        purpose = f"Exposing by {exposure.kind}"
        yield from _missing_capability(
            spec, cluster, "exposure.kind", _EXPOSED_BY[exposure.kind], purpose
        )
    if exposure.kind == "gateway" and not (exposure.gateway or exposure.class_name):
        message = "The exposure gateway requires a Gateway."
        remedy = "Give NAMESPACE/NAME, or a Gateway class to create one."
        yield _error(spec, "exposure.gateway", message, remedy, "required")
    if exposure.gateway and (exposure.kind != "gateway" or exposure.gateway.count("/") != 1):
        message = "A Gateway is given as NAMESPACE/NAME, with the exposure gateway only."
        remedy = "Write NAMESPACE/NAME and choose gateway, or clear the field."
        yield _error(spec, "exposure.gateway", message, remedy, "not_used")
    yield from _tls(spec, cluster)


def _tls(spec: EndpointSpec, cluster: ClusterFacts) -> Iterator[Problem]:
    exposure = spec.exposure
    if exposure.tls == "none":
        return
    if exposure.kind in ("none", "loadbalancer") or exposure.gateway:
        message = "This exposure does not terminate TLS."
        remedy = "Choose ingress or a Gateway class, or the TLS source none."
        yield _error(spec, "exposure.tls", message, remedy, "not_used")
    if exposure.tls == "secret" and not exposure.tls_secret:
        message = "The TLS source secret requires a Secret."
        yield _error(spec, "exposure.tls_secret", message, "Enter its name.", "required")
    if exposure.tls == "cert-manager":
        if not exposure.issuer:
            message = "A certificate requires an issuer."
            remedy = "Write Issuer/NAME or ClusterIssuer/NAME."
            yield _error(spec, "exposure.issuer", message, remedy, "required")
        if not exposure.host:
            message = "A certificate requires a host name."
            yield _error(spec, "exposure.host", message, "Enter one.", "required")
        purpose = "A certificate"
        yield from _missing_capability(spec, cluster, "exposure.tls", known.CERT_MANAGER, purpose)


def _unsupported(spec: EndpointSpec, _cluster: ClusterFacts) -> Iterator[Problem]:
    if spec.pd.enabled:
        message = "The router does not support disaggregated prefill yet."
        remedy = "Turn it off: workers then run both phases."
        yield _error(spec, "pd.enabled", message, remedy, "not_supported")
    if spec.limits.overflow_status != 429:
        message = "The router supports status 429 only."
        yield _error(spec, "limits.overflow_status", message, "Leave it at 429.", "not_supported")


_RULES: tuple[Rule, ...] = (
    _images,
    _probes,
    _placement,
    _source,
    _scaling,
    _router_resources,
    _exposure,
    _unsupported,
)
