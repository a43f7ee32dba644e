"""Rows of the cost report as plain values for REST and CSV."""

from __future__ import annotations

from typing import Any

from dashboards.costs.formulas.counts import TIERS
from dashboards.costs.reports.endpoints import EndpointCostRow

COLUMNS = (
    "endpoint",
    "range",
    "usd_hour_now",
    "worker_seconds",
    "cost_usd",
    "idle_usd",
    "prompt_tokens",
    "generated_tokens",
    "requests",
    "usd_per_million_input",
    "usd_per_million_output",
    "usd_per_million_tokens",
    "usd_per_thousand_requests",
    *(f"cached_tokens_{tier}" for tier in TIERS),
    *(f"saved_seconds_{tier}" for tier in TIERS),
    "load_seconds",
    "l1_usd",
    "l2_usd",
    "saved_before_cache_usd",
    "saved_usd",
    "seconds_per_token",
    "calibrated_at",
    "calibration_stale",
    "calibration_lent",
    "simulated",
    "team",
    "tags",
    "why",
    "why_saved",
    "routers_usd_hour",
)


def row_values(row: EndpointCostRow) -> dict[str, Any]:
    """Return the values by `COLUMNS`, without the range; None if unknown."""
    counts, found, made = row.counts, row.costs, row.calibration
    saving = found.saving
    return {
        "endpoint": row.endpoint.name,
        "usd_hour_now": row.usd_hour,
        "worker_seconds": counts.worker_s if counts else None,
        "cost_usd": found.total,
        "idle_usd": found.idle,
        "prompt_tokens": counts.prompt if counts else None,
        "generated_tokens": counts.generated if counts else None,
        "requests": counts.requests if counts else None,
        "usd_per_million_input": found.per_million_input,
        "usd_per_million_output": found.per_million_output,
        "usd_per_million_tokens": found.per_million_tokens,
        "usd_per_thousand_requests": found.per_thousand_requests,
        **{f"cached_tokens_{t}": counts.cached.get(t) if counts else None for t in TIERS},
        **{f"saved_seconds_{t}": saving.seconds.get(t) if saving else None for t in TIERS},
        "load_seconds": saving.load_s if saving else None,
        "l1_usd": found.l1,
        "l2_usd": found.l2.usd,
        "saved_before_cache_usd": saving.before if saving else None,
        "saved_usd": saving.usd if saving else None,
        "seconds_per_token": made.seconds_per_token if made else None,
        "calibrated_at": made.created_at.isoformat() if made else None,
        "calibration_stale": row.stale,
        "calibration_lent": bool(row.known and row.known.lent),
        "simulated": row.needs.simulated,
        "team": row.endpoint.team.slug if row.endpoint.team else "",
        "tags": dict(row.needs.tags),
        "why": found.rate.why,
        "why_saved": _why_saved(row),
        "routers_usd_hour": found.rate.routers_usd_hour,
    }


def _why_saved(row: EndpointCostRow) -> str:
    """Return why the saving is unknown, or ""."""
    saving = row.costs.saving
    if saving is None:
        return "The time of a prompt token was not measured at an endpoint like this one."
    return saving.why if saving.usd is None else ""
