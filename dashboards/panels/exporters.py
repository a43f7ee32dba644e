"""Exporters which are not ours: what they are called, and how one gets them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboards.boards.queries import metric_names


@dataclass(frozen=True, slots=True)
class Exporter:
    """`how` is what a person does to have it; a panel's `needs` is its name. Where `sign` is
    exported it is there, and `more` says how to make it export what it does not by itself."""

    name: str
    how: str
    sign: str
    more: str


DCGM = Exporter(
    "NVIDIA's DCGM exporter",
    "Install it on the GPU nodes (Helm chart dcgm-exporter, part of the GPU operator) with its "
    "Kubernetes mapping on, and let this Prometheus scrape it. Workers on processors have no GPU "
    "to show.",
    metric_names.GPU_UTIL,
    "Give the exporter the profiling set of metrics (dcp-metrics-included.csv); the GPU must be of "
    "a data centre's kind.",
)
KUBE_STATE = Exporter(
    "kube-state-metrics",
    "Install it in the cluster (Helm chart kube-state-metrics, part of kube-prometheus-stack) and "
    "let this Prometheus scrape it. Workers which run as processes on this machine have no pods "
    "to show.",
    metric_names.POD_PHASE,
    "Let it export this one too: its --metric-allowlist leaves it out.",
)
CADVISOR = Exporter(
    "cAdvisor",
    "It is part of every kubelet: let this Prometheus scrape the nodes at /metrics/cadvisor, as "
    "kube-prometheus-stack does. Workers which run as processes on this machine are in no "
    "container.",
    metric_names.POD_MEMORY,
    "Let Prometheus keep this one too: a relabel rule drops it.",
)
LMCACHE = Exporter(
    "LMCache",
    "Only endpoints whose cache is LMCache have these. Then share PROMETHEUS_MULTIPROC_DIR with "
    "the worker, or scrape LMCache's server, with the labels namespace, endpoint_name and pod.",
    f"lmcache:{metric_names.LM_LOOKUP_TOKENS}",
    "This version of LMCache has it not, or nothing of the kind happened yet.",
)
EXPORTERS: Mapping[str, Exporter] = {
    exporter.name: exporter for exporter in (DCGM, KUBE_STATE, CADVISOR, LMCACHE)
}
