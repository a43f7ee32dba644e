"""The parts of an endpoint's form: which fields stand together, what a choice asks of a cluster.

Must not know Django.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.provisioners.kubernetes import capabilities as known
from endpoints.spec_cluster_rules import ClusterFacts


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the form; `switch` names the checkbox which turns its other fields on."""

    title: str
    text: str
    paths: tuple[str, ...]
    switch: str = ""


SECTIONS = (
    Section(
        "Model",
        "What is served, and by how many workers.",
        ("name", "model", "engine", "replicas"),
    ),
    Section(
        "L1 cache",
        "In each worker's memory: what one request computed is found by the next one there.",
        ("cache.l1.enabled", "cache.l1.size_gib", "cache.l1.policy", "cache.l1.chunk_tokens"),
        "cache.l1.enabled",
    ),
    Section(
        "L2 cache",
        "Shared by all workers: what one computed is found by the others. Filled through L1.",
        (
            "cache.l2.enabled",
            "cache.l2.backend",
            "cache.l2.tier",
            "cache.l2.url",
            "cache.l2.password_file",
            "cache.l2.ttl_s",
        ),
        "cache.l2.enabled",
    ),
    Section(
        "Routing",
        "How the router picks a worker for a request.",
        ("routing.enabled", "routing.strategy", "routing.session_key"),
        "routing.enabled",
    ),
    Section(
        "Resources and arguments",
        "What each worker may take, and what else it is told.",
        ("resources.cpus", "resources.memory_gib", "resources.gpus", "worker_args"),
    ),
)

PLACE = Section(
    "Where it runs",
    "This machine, or one of the clusters the console knows.",
    ("placement.cluster", "placement.namespace"),
)

ON_A_CLUSTER = (
    Section(
        "Model source",
        "Where the pods find the weights.",
        (
            "source.type",
            "source.location",
            "source.prefetch",
            "source.revision",
            "source.token_secret",
            "source.token_key",
            "source.bucket",
            "source.region",
            "source.file_system",
            "source.dns_name",
            "source.mount_name",
            "source.claim",
            "source.mount_path",
            "source.endpoint",
        ),
    ),
    Section(
        "Nodes",
        "Which nodes of the cluster may carry a worker.",
        (
            "placement.instance_types",
            "placement.node_selector",
            "placement.node_affinity",
            "placement.tolerations",
            "placement.priority_class",
            "placement.scheduler",
        ),
    ),
    Section(
        "Pods",
        "What is in a worker's pod. What is left empty is Emberline's own.",
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
    ),
    Section(
        "Rollout",
        "How a change reaches the workers.",
        ("rollout.deadline_s", "rollout.drain_s", "rollout.auto_rollback"),
    ),
    Section(
        "Autoscaling",
        "How many workers there are, by what they have to do.",
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
    ),
    Section(
        "Routers",
        "How many there are, what they let in, and how callers outside reach them.",
        (
            "router.replicas",
            "router.max_replicas",
            "limits.max_concurrent",
            "limits.max_queue",
            "exposure.kind",
            "exposure.host",
            "exposure.class_name",
            "exposure.gateway",
            "exposure.tls",
            "exposure.tls_secret",
            "exposure.issuer",
            "exposure.annotations",
        ),
    ),
    Section(
        "Metrics and tags",
        "What Prometheus finds, and what is written on everything that is made.",
        ("monitoring.enabled", "monitoring.interval_s", "monitoring.path", "tags"),
    ),
)

# What a choice needs of the cluster.
_NEEDED = {
    ("source.type", "s3"): known.S3_CSI,
    ("source.type", "fsx"): known.FSX_CSI,
    ("exposure.kind", "ingress"): known.INGRESS,
    ("exposure.kind", "gateway"): known.GATEWAY_API,
    ("exposure.kind", "loadbalancer"): known.LOAD_BALANCER,
    ("exposure.tls", "cert-manager"): known.CERT_MANAGER,
    ("scaling.triggers", ""): known.KEDA,
    ("router.max_replicas", ""): known.METRICS_SERVER,
}


def sections(*, place: bool, cluster: ClusterFacts | None) -> tuple[Section, ...]:
    """`place`: whether there is a choice of where; `cluster`: the one that is chosen."""
    first, *others = SECTIONS
    where = (PLACE,) if place else ()
    return (first, *where, *others, *(ON_A_CLUSTER if cluster is not None else ()))


def declined(path: str, cluster: ClusterFacts | None) -> dict[str, str]:
    """Of a field's choices those which the cluster cannot carry, each with why and what helps; the
    key "" is the field itself."""
    if cluster is None:
        return {}
    return {
        choice: cluster.why_not(capability) or known.CAPABILITIES[capability].remedy
        for (field, choice), capability in _NEEDED.items()
        if field == path and cluster.lacks(capability)
    }
