"""Stub Prometheus, and an endpoint with a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Question, Series
from endpoints.models import Endpoint
from tests.dashboards.costs.prices.test_factors import endpoint
from tests.support.people import Cast, cast
from tests.support.teams import Teams, teams, their_endpoints

HOUR_S = 3600.0
NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
PRICE = {"vcpus": 10, "memory_gib": 500, "price_usd_hour": 2.0, "price_date": "2026-11-01"}
# Of one endpoint in an hour: a word of the query, and its result.
USED = {
    "up{job": 2 * HOUR_S,
    "num_requests_running": HOUR_S,
    "router_computed_prompt_tokens_total": 20_000.0,
    "router_cached_prompt_tokens_total": 16_000.0,
    "router_completion_tokens_total": 7_200.0,
    "router_requests_total": 60.0,
    'source=~"device"': 10_000.0,
    'source=~"host"': 5_000.0,
    'source=~"disk': 1_000.0,
    "load_time": 4.0,
}


@dataclass
class StubPrometheus:
    """`used` by endpoint; `away`: no response; `in_parts`: one of two sources fails.
    `queried_at`: times of the queries.
    """

    used: dict[str, Mapping[str, float]] = field(default_factory=lambda: {"one": USED})
    covered_s: float = HOUR_S
    away: bool = False
    in_parts: bool = False
    queried_at: list[int] = field(default_factory=list)

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.queried_at += [question.at for question in questions.values()]
        fault = Fault(FaultKind.UNREACHABLE, "Prometheus is unreachable.")
        if self.away:
            return dict.fromkeys(questions, QueryResult(fault=fault))
        missing = (fault,) if self.in_parts else ()
        return {
            name: QueryResult(self._series(requested.query), missing=missing)
            for name, requested in questions.items()
        }

    def _series(self, query: str) -> tuple[Series, ...]:
        if "count(up)" in query:
            return (Series((), (self.covered_s,)),) if self.covered_s else ()
        return tuple(
            Series((("endpoint_name", name),), (value,))
            for name, used in self.used.items()
            for word, value in used.items()
            if word in query
        )


@pytest.fixture
def stub_prometheus() -> StubPrometheus:
    return StubPrometheus()


@pytest.fixture
def people(db: None) -> Cast:
    return cast()


@pytest.fixture
def two_teams(people: Cast) -> Teams:
    found = teams()
    their_endpoints(found)
    return found


@pytest.fixture
def one(people: Cast) -> Endpoint:
    """Requests 1 of 10 CPUs: 0.2 USD/h for a worker."""
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, PRICE)
    return made("one")


def made(name: str, **more: Any) -> Endpoint:
    """Created long before `NOON`."""
    found = endpoint(name, **more)
    old = datetime(2026, 11, 10, 8, 30, tzinfo=UTC)
    Endpoint.objects.filter(pk=found.pk).update(created_at=old, changed_at=old)
    return Endpoint.objects.get(pk=found.pk)
