"""A row of the cost report as plain values: for REST and CSV alike."""

from __future__ import annotations

from typing import Any

from dashboards.cost.counting import TIERS
from dashboards.cost.report import Row

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
    "saved_usd",
    "seconds_per_token",
    "calibrated_at",
    "calibration_stale",
    "simulated",
    "why",
)


def line(row: Row) -> dict[str, Any]:
    """By `COLUMNS`, without the range; None for what is not known."""
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
        "saved_usd": saving.usd if saving else None,
        "seconds_per_token": made.seconds_per_token if made else None,
        "calibrated_at": made.created_at.isoformat() if made else None,
        "calibration_stale": row.stale,
        "simulated": row.needs.simulated,
        "why": found.rate.why,
    }
