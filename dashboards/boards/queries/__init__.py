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
    metric_names,
    recording_rules,
    routing,
)
from dashboards.boards.queries.availability import (
    alerts,
    alerts_active,
    alerts_of,
    alerts_since,
)
from dashboards.boards.queries.promql import (
    QUERIES,
    SCRAPE_S,
    TOP,
    Scope,
    Times,
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
    "QUERIES",
    "SCRAPE_S",
    "TOP",
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
    "growth",
    "metric_names",
    "render_declared",
    "render_for_chart",
    "render_plain",
    "render_total",
    "routing",
]
