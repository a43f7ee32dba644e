"""PromQL expressions of the console, by name. User input is escaped into label values."""

from __future__ import annotations

from dashboards.boards.queries import (
    cache,
    callers,
    cluster,
    cost,
    engines,
    growth,
    metric_names,
    routing,
)
from dashboards.boards.queries.growth import (
    render_declared,
    render_for_chart,
    render_plain,
    render_total,
)
from dashboards.boards.queries.promql import (
    QUERIES,
    SCRAPE_S,
    TOP,
    Scope,
    Times,
    alerts,
    alerts_active,
    alerts_since,
    stored,
)

__all__ = [
    "QUERIES",
    "SCRAPE_S",
    "TOP",
    "Scope",
    "Times",
    "alerts",
    "alerts_active",
    "alerts_since",
    "cache",
    "callers",
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
    "stored",
]
