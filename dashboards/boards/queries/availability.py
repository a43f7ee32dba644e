"""Queries for one moment: scraped targets, exported metrics and firing alerts."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.boards.queries import metric_names as n
from dashboards.boards.queries.lmcache import ASKED
from dashboards.boards.queries.metric_names import L2_CAPACITY, REQUESTS, RUNNING
from dashboards.boards.queries.promql import (
    JOBS,
    NAME,
    Query,
    Scope,
    Times,
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
    """Latest successful scrape of these jobs' targets within a day, with a resolution of a minute.
    Only for jobs that are down: over thousands of live targets it would be expensive.
    """
    if not set(jobs) <= set(JOBS):
        raise ValueError(f"{jobs} are not among {JOBS}")
    answered = f"timestamp(up{scope.engines(job_re='|'.join(jobs))} == 1)"
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


PREFIX = "happened_"


def _grown(*vectors: str) -> str:
    return first_present(*(f"sum({vector})" for vector in vectors))


def _increase(metric: str, braces: str, times: Times) -> str:
    return f"increase({metric}{braces}[{times.rate_s}s])"


def _of_workers(*metrics: str) -> Query:
    def query(scope: Scope, times: Times) -> str:
        return _grown(*(_increase(metric, scope.engines(), times) for metric in metrics))

    return query


register_query(f"{PREFIX}prompts")(_of_workers(n.PROMPT))
register_query(f"{PREFIX}requests")(_of_workers(n.FINISHED))
register_query(f"{PREFIX}tier_lookups")(_of_workers(n.CHUNK_QUERIES))
register_query(f"{PREFIX}lmcache_lookups")(_of_workers(*ASKED))


@register_query(f"{PREFIX}routed")
def _routed(scope: Scope, times: Times) -> str:
    return _grown(_increase(n.DECISIONS, scope.decisions(), times))


@register_query(f"{PREFIX}answered")
def _answered(scope: Scope, times: Times) -> str:
    return _grown(_increase(n.REQUESTS, scope.router(), times))


@register_query(f"{PREFIX}l2_operations")
def _l2_operations(_scope: Scope, times: Times) -> str:
    return _grown(_increase(n.L2_OPERATIONS, "", times))
