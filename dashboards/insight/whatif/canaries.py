"""Strategy canaries that ran in the recorded period of an analysis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dashboards.insight.traces.trace import Trace
from endpoints.models import Endpoint
from endpoints.router.canary import selectors

_MAX_NAMED = 3
_TIME = "%Y-%m-%d %H:%M UTC"


def describe(endpoint: Endpoint, begin: datetime, end: datetime, recorded: Trace) -> str:
    """Return what ran in the period and how its requests are replayed; "" for no canary."""
    canaries = list(selectors.ran_between(endpoint, begin, end))
    if not canaries:
        return ""
    named = "; ".join(map(_name, canaries[:_MAX_NAMED]))
    more = f"; {len(canaries) - _MAX_NAMED} more" if len(canaries) > _MAX_NAMED else ""
    text = f"A strategy canary ran in this period ({named}{more})."
    if all(request.strategy for request in recorded.requests):
        return f"{text} The backtest replays each request with the strategy that placed it."
    return (
        f"{text} The recording of an earlier version does not name the strategy of each request; "
        "the replay has one."
    )


def add_to(document: dict[str, Any], text: str) -> None:
    """Add the description to an analysis, and to its refusal with the remedy."""
    document["canary"] = text
    refusal = document["backtest"]["refusal"]
    if text and refusal:
        remedy = "Choose a period without the canary."
        document["backtest"]["refusal"] = f"{refusal} {text} {remedy}"


def _name(canary: Any) -> str:
    begin = canary.started_at.astimezone(UTC).strftime(_TIME)
    until = "still running"
    if canary.ended_at is not None:
        until = f"to {canary.ended_at.astimezone(UTC).strftime(_TIME)}"
    return (
        f"{canary.strategy} for {canary.share:.0%} of the sessions instead of {canary.control}, "
        f"{begin} {until}"
    )
