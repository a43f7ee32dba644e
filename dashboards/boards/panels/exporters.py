"""Exporters, and the attributes shared by all panels of an exporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from dashboards.boards.panels.declarations import Cause, Documented, Panel, PanelLine
from dashboards.boards.queries import metric_names


@dataclass(frozen=True, slots=True)
class Exporter:
    """Exporter outside the console's targets. `how` is the installation hint; a panel's `needs` is
    its name. The exporter is present if the metric `sign` exists; `more` explains how to enable
    metrics that are off by default.
    """

    name: str
    how: str
    sign: str
    more: str


DCGM = Exporter(
    "NVIDIA DCGM exporter",
    "Install dcgm-exporter on the GPU nodes (part of the NVIDIA GPU Operator) with Kubernetes "
    "mapping enabled, and add it to this Prometheus. CPU workers have no GPU metrics.",
    metric_names.GPU_UTIL,
    "Enable the exporter's profiling metrics (dcp-metrics-included.csv); requires a data center "
    "GPU.",
)
KUBE_STATE = Exporter(
    "kube-state-metrics",
    "Install kube-state-metrics in the cluster (part of kube-prometheus-stack) and add it to this "
    "Prometheus. Workers that run as local processes have no pods.",
    metric_names.POD_PHASE,
    "Add the metric to its --metric-allowlist.",
)
CADVISOR = Exporter(
    "cAdvisor",
    "Part of every kubelet: add the nodes' /metrics/cadvisor to this Prometheus, as "
    "kube-prometheus-stack does. Workers that run as local processes have no container.",
    metric_names.POD_MEMORY,
    "Keep the metric in Prometheus' relabel rules.",
)
LMCACHE = Exporter(
    "LMCache",
    "Exported only with LMCache as the cache. Share PROMETHEUS_MULTIPROC_DIR with the worker, or "
    "scrape the LMCache server with the labels namespace, endpoint_name and pod.",
    f"lmcache:{metric_names.LM_LOOKUP_TOKENS}",
    "Not in this version of LMCache, or not counted yet.",
)
EXPORTERS: Mapping[str, Exporter] = {
    exporter.name: exporter for exporter in (DCGM, KUBE_STATE, CADVISOR, LMCACHE)
}


PROMPTS = Cause(
    "happened_prompts",
    "No prompt tokens were processed in this range.",
    "Prompt tokens processed in this range",
)
REQUESTS = Cause(
    "happened_requests", "No requests finished in this range.", "Requests finished in this range"
)
ROUTED = Cause(
    "happened_routed", "No requests were routed in this range.", "Requests routed in this range"
)
ANSWERED = Cause(
    "happened_answered",
    "No requests were answered in this range.",
    "Requests answered in this range",
)
NOT_STREAMED = 'No response was streamed. Send a request with "stream": true.'
TIER_LOOKUPS = Cause(
    "happened_tier_lookups",
    "No L1 or L2 lookups in this range.",
    "Chunks looked up in L1 or L2 in this range",
)
L2_OPERATIONS = Cause(
    "happened_l2_operations",
    "No L2 operations in this range.",
    "L2 operations in this range",
    "Choose a longer range.",
)
LMCACHE_LOOKUPS = Cause(
    "happened_lmcache_lookups",
    "No LMCache lookups in this range.",
    "Tokens looked up in LMCache in this range",
)
_NO_GPU = "The exporter reports no GPU of these workers: they run on CPU."
_NOT_ON_CLUSTER = "It reports none of these workers: they do not run on its cluster."

of_workers = partial(Panel, job="vllm", since="vLLM 0.11", cause=REQUESTS)
of_router = partial(Panel, job="router", since="Emberline router", cause=ROUTED)
of_prompts = partial(of_workers, cause=PROMPTS)
# Gauges have values without any event.
gauge_of_workers = partial(of_workers, cause=None)
gauge_of_routers = partial(of_router, cause=None)
of_l2 = partial(Panel, job="l2", since="Emberline cache engine", cause=L2_OPERATIONS)
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
        "Tokens found in the worker's device cache, of all prompt tokens. L1 and L2 are not "
        "included: only the remaining tokens are looked up there.",
        "Cache hit rates by tier: Device",
    ),
    Documented(
        "lmcache:num_lookup_hits_total / lmcache:num_lookup_tokens_total",
        "Hit rate of the L2 cache.",
        "Tokens found in any LMCache tier (host memory included), of all tokens looked up.",
        "LMCache hit rate",
        "lmcache_mp_lookup_hit_tokens_total / lmcache_mp_lookup_requested_tokens_total",
    ),
    Documented(
        "lmcache:num_vllm_hit_tokens_total",
        "Tokens served from LMCache.",
        "Tokens already in the worker's device cache, not supplied by LMCache. Tokens supplied "
        "by LMCache: lmcache:num_hit_tokens_total.",
        "LMCache tokens/s",
        "lmcache_mp_lookup_hit_tokens_total",
    ),
    Documented(
        "lmcache:request_cache_hit_rate",
        "Hit rate of requests.",
        "Histogram of lookups with buckets of 0.1; a lookup without a hit counts in the first "
        "bucket.",
        "LMCache hit rate",
        "None.",
    ),
)
