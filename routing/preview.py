"""What each strategy would do with an endpoint's latest requests, from its routers' records."""

from __future__ import annotations

from dataclasses import dataclass

from endpoints.models import Endpoint
from routing import selectors
from routing.analysis import replay

REPLAYED = 200
"""Decisions, newest first: showing a record costs the router some work."""


@dataclass(frozen=True, slots=True)
class Preview:
    outcomes: tuple[replay.Outcome, ...]
    requests: int
    error: str
    note: str


def of(endpoint: Endpoint) -> Preview:
    asked = selectors.decisions(endpoint, REPLAYED)
    records = [decision.raw for decision in asked.found]
    # What was decided under an earlier strategy is no measure of the present one.
    strategy = endpoint.parsed.routing.effective_strategy
    same = [record for record in records if record.get("strategy") == strategy]
    outcomes = replay.compare(same, strategy)
    return Preview(tuple(outcomes), len(same), asked.error, asked.note)
