"""PromQL expressions of the console, by name. User input is escaped into label values."""

from __future__ import annotations

from collections.abc import Collection

from dashboards.boards.queries import (
    availability,
    cache,
    cluster,
    cost,
    engines,
    growth,
    lmcache,
    metric_names,
    recording_rules,
    routing,
)
from dashboards.boards.queries.availability import (
    alerts,
    alerts_active,
    alerts_of,
    alerts_since,
    exported,
    last_up,
    scraped,
    scraped_every,
)
from dashboards.boards.queries.metric_names import (
    BLOCKS_DROPPED,
    BY_SOURCE,
    CACHED,
    CASCADES_FAILED,
    CONFIG_RELOADS,
    DECISIONS,
    ENDPOINT_TRANSITION,
    INDEX_LAG,
    ITL,
    KV_BELIEVED,
    KV_EVENTS_UP,
    KV_FALLBACKS,
    KV_PROBE,
    KV_RECOVERIES,
    KV_USAGE,
    KV_USAGE_OLD,
    L2_CAPACITY,
    L2_DURATION,
    L2_EVICTED,
    L2_HITS,
    L2_INTEGRITY,
    L2_LOOKUPS,
    L2_OPERATIONS,
    L2_USED,
    PREEMPTIONS,
    PROMOTIONS_FAILED,
    PROMPT,
    QUEUE_DEPTH,
    QUEUE_LIMIT,
    REJECTED,
    REQUESTS,
    ROUTER_CACHED,
    ROUTER_PREDICTED,
    ROUTER_TTFT,
    RUNNING,
    TTFT,
    WAITING,
    WORKER_STARTING,
    WORKER_UP,
    WRITTEN,
)
from dashboards.boards.queries.promql import (
    JOBS,
    QUERIES,
    SCRAPE_S,
    TOP,
    Query,
    Scope,
    Times,
    escape_label,
    register_query,
    selector,
)


def render_for_chart(
    name: str, scope: Scope, times: Times, appeared: Collection[str] | None = None
) -> str:
    """`appeared`: counters of which a series may have appeared; None means any."""
    return growth.rewrite_for_chart(render_declared(name, scope, times), times, appeared)


def render_total(name: str, scope: Scope, range_s: int, kept_by: tuple[int, ...] = ()) -> str:
    """Render for one value over a range whose end is a multiple of the growth window: ratios of
    sums, quantiles of all observations, gauges at the end of the range.
    """
    text = render_declared(name, scope, Times(range_s, range_s, kept=kept_by))
    return growth.rewrite_for_total(text, growth.get_part_s(range_s))


def render_plain(name: str, scope: Scope, times: Times) -> str:
    return QUERIES[name](scope, times)


def render_declared(name: str, scope: Scope, times: Times) -> str:
    text = render_plain(name, scope, times)
    return recording_rules.rewrite_recorded(text, times) if times.kept else text


__all__ = [
    "BLOCKS_DROPPED",
    "BY_SOURCE",
    "CACHED",
    "CASCADES_FAILED",
    "CONFIG_RELOADS",
    "DECISIONS",
    "ENDPOINT_TRANSITION",
    "INDEX_LAG",
    "ITL",
    "JOBS",
    "KV_BELIEVED",
    "KV_EVENTS_UP",
    "KV_FALLBACKS",
    "KV_PROBE",
    "KV_RECOVERIES",
    "KV_USAGE",
    "KV_USAGE_OLD",
    "L2_CAPACITY",
    "L2_DURATION",
    "L2_EVICTED",
    "L2_HITS",
    "L2_INTEGRITY",
    "L2_LOOKUPS",
    "L2_OPERATIONS",
    "L2_USED",
    "PREEMPTIONS",
    "PROMOTIONS_FAILED",
    "PROMPT",
    "QUERIES",
    "QUEUE_DEPTH",
    "QUEUE_LIMIT",
    "REJECTED",
    "REQUESTS",
    "ROUTER_CACHED",
    "ROUTER_PREDICTED",
    "ROUTER_TTFT",
    "RUNNING",
    "SCRAPE_S",
    "TOP",
    "TTFT",
    "WAITING",
    "WORKER_STARTING",
    "WORKER_UP",
    "WRITTEN",
    "Query",
    "Scope",
    "Times",
    "alerts",
    "alerts_active",
    "alerts_of",
    "alerts_since",
    "availability",
    "cache",
    "cluster",
    "cost",
    "engines",
    "escape_label",
    "exported",
    "growth",
    "last_up",
    "lmcache",
    "metric_names",
    "register_query",
    "render_declared",
    "render_for_chart",
    "render_plain",
    "render_total",
    "routing",
    "scraped",
    "scraped_every",
    "selector",
]
