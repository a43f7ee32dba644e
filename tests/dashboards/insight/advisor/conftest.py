"""An endpoint with a recording and finished advice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.insight.advisor import actions, facts
from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif import inputs
from dashboards.insight.whatif.models import WhatIf
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.insight.advisor.surveyed import PRESENT, candidates, surveyed
from tests.support.console import make_endpoint, person, pretend_ready

HOUR = datetime(2026, 11, 23, 10, tzinfo=UTC)
MISSES: dict[str, Any] = {
    "error": "",
    "hours": 10.0,
    "requests": 4000,
    "computed": 900_000,
    "usd_token": 1e-5,
    "seconds_token": 4e-5,
    "price_error": 0.1,
    "price_why": "",
    "salted": {"alpha": 90_000, "beta": 20_000},
    "salted_tokens": 110_000,
    "templates": [
        {
            "code": "ab12",
            "cause": "Changed timestamp",
            "decision": "d1",
            "offset": 40,
            "part": "system",
            "requests": 500,
            "stable": 800,
            "computed": 400_000,
            "saved": 300_000,
            "remedy": "",
        }
    ],
}


@pytest.fixture
def endpoint(db: Any, monkeypatch: pytest.MonkeyPatch) -> Endpoint:
    monkeypatch.setattr(inputs, "default_period", lambda _endpoint: (HOUR, HOUR + inputs.HOUR))
    monkeypatch.setattr(facts, "_miss_facts", lambda _endpoint: MISSES)
    cache = {"l1": {"enabled": False}}
    return pretend_ready(make_endpoint("demo", replicas=3, cache=cache))


@pytest.fixture
def queued(endpoint: Endpoint) -> Advice:
    return actions.start(person("operator"), endpoint.name, {"price_usd_hour": "4"})


@pytest.fixture
def finished(queued: Advice) -> Advice:
    """Advice whose survey ended as on the recorded traffic."""
    WhatIf.objects.filter(pk=queued.run_id).update(
        state=RunState.DONE,
        share=1.0,
        stage="",
        result=surveyed(),
        present={**PRESENT, "strategy": "prefixaware"},
        candidate={**PRESENT, "strategy": "prefixaware"},
        candidates=candidates(),
        begin=HOUR,
        end=HOUR + inputs.HOUR,
    )
    return Advice.objects.get(pk=queued.pk)
