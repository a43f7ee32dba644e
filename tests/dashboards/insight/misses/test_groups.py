"""Computed prompt tokens of all endpoints by group, on page, REST and CLI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from dashboards.insight.misses import groups as miss_groups
from dashboards.models import Calibration
from dashboards.prometheus.http.client import Fault, FaultKind, QueryResult, Series
from endpoints.runs import RunState
from tests.support.console import browser, make_endpoint, program
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db
COUNTED = {
    ("demo", "first_seen"): 600.0,
    ("demo", "evicted_device"): 200.4,
    ("other", "evicted_device"): 1000.0,
    ("other", "in_flight"): 0.2,
    ("removed", "first_seen"): 50.0,
}


class Counted:
    """A Prometheus that has counted."""

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.queries: list[str] = []

    def ask(self, questions: Any) -> dict[str, QueryResult]:
        self.queries += [question.query for question in questions.values()]
        if self.fault:
            return dict.fromkeys(questions, QueryResult(fault=self.fault))
        series = tuple(
            Series((("endpoint", name), ("cause", cause)), (value,))
            for (name, cause), value in COUNTED.items()
        )
        return dict.fromkeys(questions, QueryResult(series))


@pytest.fixture
def two() -> None:
    demo = make_endpoint("demo", tags={"stage": "prod"})
    make_endpoint("other")
    pairs = [{"tokens": 100, "ttft_s": 0.1}, {"tokens": 1100, "ttft_s": 1.1}]
    Calibration.objects.create(
        endpoint=demo, state=RunState.DONE, seconds_per_token=0.001, samples=pairs * 2
    )


@pytest.mark.usefixtures("two")
def test_tokens_by_endpoint_and_cause() -> None:
    counted = Counted()
    found = miss_groups.report(counted, "7d", "endpoint", 1e9)
    assert [(one.name, one.tokens) for one in found.groups] == [("other", 1000), ("demo", 800)]
    assert [(one.name, one.tokens) for one in found.causes] == [
        ("evicted_device", 1200),
        ("first_seen", 600),
    ]
    assert found.tokens == 1800, "endpoints that do not exist are left out"
    assert "[604800s]" in counted.queries[-1]
    assert 'traffic!="console"' in counted.queries[-1]
    other, demo = found.groups
    assert (demo.known_seconds, demo.known_usd) == (pytest.approx(0.8), None)
    assert other.known_seconds is None, "not calibrated"
    assert found.causes[0].known_seconds == pytest.approx(0.2)
    assert found.causes[0].uncalibrated == 1000
    assert (demo.main_cause, demo.main_share) == ("first_seen", 0.75)


@pytest.mark.usefixtures("two")
def test_tokens_by_tag_and_team() -> None:
    found = miss_groups.report(Counted(), "24h", "tag:stage", 1e9)
    assert {one.name: one.tokens for one in found.groups} == {"prod": 800, "without": 1000}
    assert found.tags == ["stage"]
    assert [one.name for one in miss_groups.report(Counted(), "1h", "team", 1e9).groups] == [
        "no team"
    ]


@pytest.mark.usefixtures("two")
def test_prometheus_away_is_said() -> None:
    fault = Fault(FaultKind.UNREACHABLE, "Prometheus is unreachable.")
    found = miss_groups.report(Counted(fault), "24h", "endpoint", 1e9)
    assert not found.groups
    assert found.fault is not None


@pytest.fixture
def prometheus(settings: Any) -> Iterator[Stub]:
    result = [
        {"metric": {"endpoint": name, "cause": cause}, "value": [1, str(value)]}
        for (name, cause), value in COUNTED.items()
    ]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    with http_stub({"/api/v1/query": (200, answer)}) as stub:
        settings.EMBERLINE = replace(settings.EMBERLINE, prometheus_url=stub.url)
        yield stub


@pytest.mark.usefixtures("two", "prometheus")
def test_page_rest_and_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    page = browser("viewer").get("/costs/misses/?by=endpoint&range=7d").text
    assert page.index('data-group="other"') < page.index('data-group="demo"')
    assert 'href="/routing/endpoints/demo/misses/"' in page
    assert "Enlarge the tier" in page
    assert "1,000 tokens have no prefill time" in page
    assert 'href="/costs/">Set price</a>' in page, "800 tokens are calibrated, without a price"
    found = program("viewer").get("/api/v1/misses/?by=tag:stage").json()
    assert [(one["name"], one["tokens"]) for one in found["groups"]] == [
        ("without", 1000),
        ("prod", 800),
    ]
    assert found["computed_tokens"] == 1800
    for wrong in ("by=colour", "by=tag:", "range=7y"):
        refused = program("viewer").get(f"/api/v1/misses/?{wrong}")
        assert refused.status_code == 400, wrong
        assert wrong.partition("=")[0] in refused.text
    call_command("emberline", "misses", "--by", "team", "--range", "30d")
    shown = capsys.readouterr().out
    assert "1,800 prompt tokens computed in 30d" in shown
    assert "no team" in shown
    assert "evicted_device" in shown


def test_without_a_prometheus_the_number_is_unknown(
    settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, prometheus_url="")
    page = browser("viewer").get("/costs/misses/?by=tag:").text
    assert "No Prometheus configured" in page
    assert "No computed prompt tokens" not in page
    found = program("viewer").get("/api/v1/misses/").json()
    assert found["computed_tokens"] is None
    assert found["note"]
    call_command("emberline", "misses")
    assert "unknown prompt tokens computed in 24h" in capsys.readouterr().out
