"""What a metrics source is asked when it is tried: what it scrapes, and with which labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.queries.metric_names import L2_CAPACITY, REQUESTS, RUNNING

# What is there when a family is there, by its name for people.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "vLLM workers": (RUNNING,),
    "Emberline routers": (REQUESTS,),
    "Emberline cache nodes": (L2_CAPACITY,),
    "LMCache in the worker": (
        "lmcache:num_lookup_tokens_total",
        "lmcache_num_lookup_tokens_total",
    ),
    "LMCache server": ("lmcache_mp_lookup_requested_tokens_total",),
    "GPUs (DCGM exporter)": ("DCGM_FI_DEV_GPU_UTIL",),
    "Kubernetes objects (kube-state-metrics)": ("kube_pod_info",),
}
LABELS = ("namespace", "endpoint_name", "pod")
# What vLLM's names become when it is scraped at /metrics/, with a slash.
COLONLESS = RUNNING.replace(":", "_", 1)


def jobs_known() -> str:
    return "count by (job) (up)"


def jobs_up() -> str:
    return "sum by (job) (up)"


def families() -> str:
    names = sorted({name for names in FAMILIES.values() for name in names} | {COLONLESS})
    return f'count by (__name__) ({{__name__=~"{"|".join(names)}"}})'


def endpoints() -> str:
    return f'count by (endpoint_name) ({RUNNING}{{endpoint_name!=""}})'


def without(label: str) -> str:
    """How many workers' series lack it."""
    return f'count ({RUNNING}{{{label}=""}})'
