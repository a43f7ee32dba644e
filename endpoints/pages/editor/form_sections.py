"""Layout of the endpoint form, and cluster capabilities required by its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from console.provisioners.kubernetes.api import capabilities as known
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import FIELDS


@dataclass(frozen=True, slots=True)
class FormSection:
    """Part of the form; `switch`: the checkbox that enables its other fields."""

    title: str
    text: str
    paths: tuple[str, ...]
    switch: str = ""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Sections that open and close together; the first group stays open."""

    key: str
    title: str
    text: str
    sections: tuple[FormSection, ...]


def _all_of(*sections: str) -> tuple[str, ...]:
    """Return the paths of all fields of the sections, in their own order."""
    return tuple(f.path for f in FIELDS if f.path.rpartition(".")[0] in sections)


MODEL = FormSection(
    "Model", "Model, engine and number of workers.", ("name", "replicas", "model", "engine")
)
PLACE = FormSection(
    "Location", "This machine or a connected cluster.", ("placement.cluster", "placement.namespace")
)
L1 = FormSection(
    "L1 cache", "KV cache in the memory of each worker.", _all_of("cache.l1"), "cache.l1.enabled"
)
L2 = FormSection(
    "L2 cache",
    "KV cache shared by all workers; filled through L1.",
    _all_of("cache.l2"),
    "cache.l2.enabled",
)
ROUTING = FormSection(
    "Routing", "Selection of a worker per request.", _all_of("routing"), "routing.enabled"
)
RESOURCES = FormSection("Worker resources", "Requests per worker.", _all_of("resources"))
ARGUMENTS = FormSection(
    "Arguments",
    "Model names, vLLM options and media access of the workers.",
    ("aliases", "worker_args", "media_domains"),
)
TAGS = FormSection("Tags", "Labels of all created objects.", ("tags",))

ROUTERS = FormSection(
    "Routers", "Number, resources and admission limits.", _all_of("router", "limits")
)
LOCAL_ROUTERS = FormSection(
    "Routers",
    "Router processes on this machine, all on the endpoint's address.",
    ("router.replicas",),
)
STORE = FormSection(
    "State store",
    "Valkey or Redis through which several routers share load, placements and limits.",
    _all_of("router.state_store"),
)
EXPOSURE = FormSection(
    "Exposure", "Access to the routers from outside the cluster.", _all_of("exposure")
)
AUTOSCALING = FormSection(
    "Autoscaling",
    "Number of workers by load.",
    (
        "scaling.enabled",
        "scaling.min",
        "scaling.max",
        "scaling.triggers",
        "scaling.polling_s",
        "scaling.cooldown_s",
        "scaling.initial_cooldown_s",
        "scaling.up_stabilization_s",
        "scaling.down_stabilization_s",
    ),
    "scaling.enabled",
)
SOURCE = FormSection("Model source", "Source of the weights for the pods.", _all_of("source"))
NODES = FormSection(
    "Nodes",
    "Node selection for workers. Priority classes, schedulers and most tolerations need a team "
    "grant.",
    tuple(path for path in _all_of("placement") if path not in PLACE.paths),
)
PODS = FormSection(
    "Pods",
    "Pod template of the workers. Leave empty for the default. Anything beyond a restricted pod "
    "needs a team grant.",
    (
        "pod.image",
        "pod.command",
        "pod.env",
        "pod.env_from",
        "pod.port",
        "pod.working_dir",
        "pod.resources",
        "pod.probes",
        "pod.volumes",
        "pod.init_containers",
        "pod.service_account",
        "pod.pull_secrets",
    ),
)
ROLLOUT = FormSection(
    "Rollout",
    "Replacement of workers after a change.",
    ("rollout.deadline_s", "rollout.drain_s", "rollout.auto_rollback"),
)
SPLIT = FormSection(
    "Disaggregated prefill", "Separate prefill and decode workers.", _all_of("pd"), "pd.enabled"
)
METRICS = FormSection("Metrics", "Scrape configuration for Prometheus.", _all_of("monitoring"))

# Cluster capabilities required by an option.
_REQUIRED_CAPABILITIES = {
    ("source.type", "s3"): known.S3_CSI,
    ("source.type", "fsx"): known.FSX_CSI,
    ("exposure.kind", "ingress"): known.INGRESS,
    ("exposure.kind", "gateway"): known.GATEWAY_API,
    ("exposure.kind", "loadbalancer"): known.LOAD_BALANCER,
    ("exposure.tls", "cert-manager"): known.CERT_MANAGER,
    ("scaling.triggers", ""): known.KEDA,
    ("router.max_replicas", ""): known.METRICS_SERVER,
}


def groups(*, place: bool, cluster: ClusterFacts | None) -> tuple[FieldGroup, ...]:
    """`place`: show the placement choice; `cluster`: the selected cluster."""

    def on(*more: FormSection) -> tuple[FormSection, ...]:
        return more if cluster is not None else ()

    cache = "Reuse of computed prompt prefixes."
    routing = "Selection of a worker per request."
    routers = (LOCAL_ROUTERS, STORE) if cluster is None else (ROUTERS, STORE, EXPOSURE)
    field_groups = (
        FieldGroup("model", "Model", MODEL.text, (MODEL, *((PLACE,) if place else ()))),
        FieldGroup("cache", "Cache", cache, (L1, L2)),
        FieldGroup("routing", "Routing", routing, (ROUTING, *routers)),
        FieldGroup("scaling", "Scaling", AUTOSCALING.text, on(AUTOSCALING)),
        FieldGroup("source", "Model source", SOURCE.text, on(SOURCE)),
        FieldGroup(
            "placement", "Placement", "Worker resources and nodes.", (RESOURCES, *on(NODES))
        ),
        FieldGroup(
            "advanced",
            "Advanced",
            "Arguments, pods, rollout and tags.",
            (ARGUMENTS, *on(PODS, ROLLOUT, SPLIT, METRICS), TAGS),
        ),
    )
    return tuple(group for group in field_groups if group.sections)


def summarize_group(key: str, spec: EndpointSpec) -> str:
    return _SUMMARIES.get(key, lambda _spec: "")(spec)


def _cache(spec: EndpointSpec) -> str:
    l1, l2 = spec.cache.l1, spec.cache.l2
    first = f"L1 {l1.size_gib:g} GiB/worker, {l1.policy}" if l1.enabled else "L1 off"
    where = f"tier {l2.tier}" if l2.backend == "tieredstorage" else l2.backend
    return f"{first} · L2 {where if l2.enabled else 'off'}"


def _routing(spec: EndpointSpec) -> str:
    words = [spec.routing.strategy if spec.routing.enabled else "round robin"]
    count = spec.routers
    if spec.on_cluster or count > 1:
        words.append(f"{count} router{'s' if count != 1 else ''}")
    if spec.on_cluster:
        words.append("cluster only" if spec.exposure.kind == "none" else spec.exposure.kind)
    return " · ".join(words)


def _scaling(spec: EndpointSpec) -> str:
    scaling = spec.scaling
    if not scaling.enabled:
        return f"off: {spec.replicas} worker{'s' if spec.replicas != 1 else ''}"
    return f"{scaling.min}–{scaling.max} workers"


def _source(spec: EndpointSpec) -> str:
    return spec.source.type or "by model name"


def _placement(spec: EndpointSpec) -> str:
    each = spec.resources
    words = f"{each.cpus:g} CPU, {each.memory_gib:g} GiB"
    words += f", {spec.gpus} GPU" if spec.gpus else ""
    return " · ".join([f"{words} per worker", *spec.placement.instance_types[:2]])


def _advanced(spec: EndpointSpec) -> str:
    count = len(spec.worker_args)
    return f"{count} argument{'s' if count != 1 else ''}" if count else ""


_SUMMARIES: dict[str, Callable[[EndpointSpec], str]] = {
    "cache": _cache,
    "routing": _routing,
    "scaling": _scaling,
    "source": _source,
    "placement": _placement,
    "advanced": _advanced,
}


def unsupported_choices(path: str, cluster: ClusterFacts | None) -> dict[str, str]:
    """Return the options that the cluster does not support, with cause and fix; key "" is the
    field.
    """
    if cluster is None:
        return {}
    return {
        choice: cluster.why_not(capability) or known.CAPABILITIES[capability].remedy
        for (field, choice), capability in _REQUIRED_CAPABILITIES.items()
        if field == path and cluster.lacks(capability)
    }
