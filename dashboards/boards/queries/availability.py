"""Queries for one moment: scraped targets, exported metrics and firing alerts."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.cache import LMCACHE_LOOKUPS
from dashboards.boards.queries.metric_names import L2_CAPACITY, REQUESTS, RUNNING
from dashboards.boards.queries.promql import (
    JOBS,
    NAME,
    QUERIES,
    Braces,
    Query,
    Scope,
    Times,
    everywhere,
    first_present,
    register_query,
)


@register_query("targets_known")
def targets_known(scope: Scope, _times: Times) -> str:
    return f"count by (job) (up{_scraped(scope)})"


@register_query("targets_up")
def targets_up(scope: Scope, _times: Times) -> str:
    return f"sum by (job) (up{_scraped(scope)})"


def _scraped(scope: Scope) -> str:
    return scope.engines(job_re="|".join(JOBS))


def last_up(scope: Scope, jobs: tuple[str, ...]) -> str:
    """End of the latest whole minute in which these jobs' targets answered a scrape, within a day.
    Only for jobs that are down: over thousands of live targets it would be expensive.
    """
    if not set(jobs) <= set(JOBS):
        raise ValueError(f"{jobs} are not among {JOBS}")
    # Asked at whole minutes only: `up` itself would miss a target that answered in between.
    answered = f"timestamp(max_over_time(up{scope.engines(job_re='|'.join(jobs))}[1m]) == 1)"
    return f"max by (job) (max_over_time({answered}[1d:1m]))"


def scraped(scope: Scope) -> str:
    return f"count(up{_scraped(scope)})"


def scraped_every(scope: Scope) -> str:
    """Median scrape interval in seconds."""
    sampled = f"timestamp(up{_scraped(scope)})[2m:1s]"
    apart = f"(max_over_time({sampled}) - min_over_time({sampled})) / (changes({sampled}) > 0)"
    return f"quantile(0.5, {apart})"


def exported(metrics: tuple[str, ...], braces: str) -> str:
    for metric in metrics:
        if not NAME.fullmatch(metric):
            raise ValueError(f"{metric!r} is not the name of a metric")
    names = f'{{__name__=~"{"|".join(metrics)}"'
    inside = braces.strip("{}")
    return (
        f"count by (__name__) ({names},{inside}}})"
        if inside
        else f"count by (__name__) ({names}}})"
    )


def alerts(scope: Scope) -> str:
    """Firing alerts; rules set the label `endpoint` on every alert."""
    return f"ALERTS{scope.router(alertstate='firing')}"


def alerts_of(name: str, scope: Scope) -> str:
    return f"ALERTS{scope.router(alertstate='firing', alertname=name)}"


def alerts_active(scope: Scope) -> str:
    return f"ALERTS{scope.router()}"


def alerts_since(scope: Scope) -> str:
    """Start of each alert's condition in epoch seconds."""
    return f"ALERTS_FOR_STATE{scope.router()}"


# Metric family names for display, each with a metric that marks its presence.
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


def count_without_label(label: str) -> str:
    return f'count ({RUNNING}{{{label}=""}})'


def _growth_query(braces: Braces, *metrics: str) -> Query:
    """Growth of a counter by any of its names."""

    def query(scope: Scope, times: Times) -> str:
        grown = (f"increase({metric}{braces(scope)}[{times.rate_s}s])" for metric in metrics)
        return first_present(*(f"sum({vector})" for vector in grown))

    return query


QUERIES.update(
    {
        "happened_prompts": _growth_query(Scope.engines, n.PROMPT),
        "happened_requests": _growth_query(Scope.engines, n.FINISHED),
        "happened_tier_lookups": _growth_query(Scope.engines, n.CHUNK_QUERIES),
        "happened_lmcache_lookups": _growth_query(Scope.engines, *LMCACHE_LOOKUPS),
        "happened_routed": _growth_query(Scope.decisions, n.DECISIONS),
        "happened_answered": _growth_query(Scope.router, n.REQUESTS),
        "happened_l2_operations": _growth_query(everywhere, n.L2_OPERATIONS),
    }
)
