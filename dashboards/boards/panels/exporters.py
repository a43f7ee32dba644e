"""Exporters, and the attributes shared by all panels of an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dashboards.boards.panels.declarations import Cause, Documented, Panel, PanelLine
from dashboards.boards.queries import metric_names


@dataclass(frozen=True, slots=True)
class Exporter:
    """`how` is the installation hint; a panel's `needs` is its name. The exporter is present if the
    metric `sign` exists; `more` tells how to enable metrics that are off by default.
    """

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


PROMPTS = Cause(
    "happened_prompts",
    "No prompt token was processed by a worker in this range.",
    "prompt tokens were processed by workers in this range.",
)
REQUESTS = Cause(
    "happened_requests",
    "No request finished on a worker in this range.",
    "requests finished on workers in this range.",
)
ROUTED = Cause(
    "happened_routed",
    "No request was routed in this range.",
    "requests were routed in this range.",
)
ANSWERED = Cause(
    "happened_answered",
    "No request was answered through a router in this range.",
    "requests were answered through routers in this range.",
)
TIER_LOOKUPS = Cause(
    "happened_tier_lookups",
    "No tier below the device was queried in this range.",
    "chunks were queried below the device in this range.",
)
L2_OPERATIONS = Cause(
    "happened_l2_operations",
    "No L2 cache node served an operation in this range.",
    "operations were served by L2 cache nodes in this range.",
    "Choose a longer range.",
)
LMCACHE_LOOKUPS = Cause(
    "happened_lmcache_lookups",
    "LMCache was not queried in this range.",
    "tokens were looked up in LMCache in this range.",
)
_NO_GPU = "The exporter runs, but knows no GPU of these workers: they run on processors."
_NOT_ON_CLUSTER = "It runs, but knows none of these workers: they do not run on its cluster."

of_workers = partial(Panel, job="vllm", since="vLLM 0.11", cause=REQUESTS)
of_router = partial(Panel, job="router", since="Emberline's router of this version", cause=ROUTED)
of_prompts = partial(of_workers, cause=PROMPTS)
# Gauges have values without any event.
gauge_of_workers = partial(of_workers, cause=None)
gauge_of_routers = partial(of_router, cause=None)
of_l2 = partial(
    Panel, job="l2", since="Emberline's cache engine of this version", cause=L2_OPERATIONS
)
of_gpus = partial(Panel, job="", needs=DCGM.name, since="", empty=_NO_GPU)
of_pods = partial(Panel, job="", needs=KUBE_STATE.name, since="", empty=_NOT_ON_CLUSTER)
of_containers = partial(of_pods, needs=CADVISOR.name)
of_lmcache = partial(Panel, job="", needs=LMCACHE.name, since="", cause=LMCACHE_LOOKUPS)


def by_worker(query: str) -> tuple[PanelLine, ...]:
    return (PanelLine(f"{query}_by_worker", by="pod"),)


def by_endpoint(query: str, label: str = "endpoint_name") -> tuple[PanelLine, ...]:
    return (PanelLine(f"{query}_by_endpoint", by=label),)


def percents(query: str, *names: str) -> tuple[PanelLine, ...]:
    """`percents("ttft", "p50")` queries `ttft_p50` and names the line `p50`."""
    return tuple(PanelLine(f"{query}_{name}", name=name) for name in names)


DOCUMENTED: tuple[Documented, ...] = (
    Documented(
        "vllm:prefix_cache_hits_total / vllm:prefix_cache_queries_total",
        "Hit rate of the L1 cache.",
        "Tokens found in the worker's own device cache, of all prompt tokens. L1 and L2 are not "
        "in it: they are asked only for what is left.",
        "Hit rates: Device",
    ),
    Documented(
        "lmcache:num_lookup_hits_total / lmcache:num_lookup_tokens_total",
        "Hit rate of the L2 cache.",
        "Tokens LMCache found in any of its tiers (host memory, too), of those it was asked for.",
        "LMCache: tokens found of those looked up",
        "lmcache_mp_lookup_hit_tokens_total / lmcache_mp_lookup_requested_tokens_total",
    ),
    Documented(
        "lmcache:num_vllm_hit_tokens_total",
        "Tokens served from LMCache.",
        "Tokens the worker had in its device cache already, so that LMCache had nothing to do. "
        "What LMCache supplied is lmcache:num_hit_tokens_total.",
        "LMCache: tokens supplied",
        "lmcache_mp_lookup_hit_tokens_total",
    ),
    Documented(
        "lmcache:request_cache_hit_rate",
        "Hit rate of requests.",
        "A histogram, one entry a lookup, in steps of a tenth; a lookup which found nothing is "
        "counted as up to a tenth.",
        "LMCache: tokens found of those looked up",
        "None: the server has no such metric.",
    ),
)
