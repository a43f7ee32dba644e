"""Strategy page: preview, permissions and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from endpoints.models import Endpoint
from endpoints.pages.routing.decision_stream import DecisionStream
from routing.analysis.choices import DecisionFilter
from routing.engine.strategies import STRATEGIES
from tests.endpoints.pages.routing.test_views import DECISION
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db

PAGE = "/routing/endpoints/demo/strategy/"


@pytest.fixture
def router() -> Iterator[Stub]:
    records = [{**DECISION, "id": f"d{number}"} for number in range(6)]
    with http_stub({"/decisions": (200, {"decisions": records})}) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), admin_url=router.url)


def form(**more: str) -> dict[str, str]:
    return {
        "strategy": "roundrobin",
        "session_key": "header:x-session-id",
        "enabled": "1",
        "generation": "1",
        **more,
    }


def test_each_strategy_is_offered_or_has_a_reason(demo_endpoint: Endpoint, router: Stub) -> None:
    text = browser("viewer").get(PAGE).text
    assert text.count("data-strategy=") == len(STRATEGIES)
    assert "last 6 requests" in text
    assert "record no sessions" in text
    assert router.seen[-1][1] == "/decisions?limit=50", "a few at a time"
    router.answers["/decisions"] = (500, "boom")
    away = browser("viewer").get(PAGE)
    assert away.status_code == 200
    assert "No requests can be replayed" in away.text


def test_operator_switches_the_strategy_with_a_note(demo_endpoint: Endpoint) -> None:
    answer = browser("operator").post(PAGE, form(note="Measure the difference"), follow=True)
    assert "Strategy roundrobin is being applied" in answer.text
    demo_endpoint.refresh_from_db()
    assert demo_endpoint.spec["routing"]["strategy"] == "roundrobin"
    assert demo_endpoint.revisions.latest("number").note == "Measure the difference"
    again = browser("operator").post(PAGE, form(generation="2"), follow=True)
    assert "Nothing changed" in again.text


def test_viewer_cannot_switch_the_strategy(demo_endpoint: Endpoint) -> None:
    assert browser("viewer").post(PAGE, form()).status_code == 403
    demo_endpoint.refresh_from_db()
    assert demo_endpoint.generation == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": "sideways"}, "routing.strategy"),
        ({"session_key": "nowhere"}, "routing.session_key"),
        ({"generation": "7"}, ""),
    ],
)
def test_rejected_form_keeps_its_input(
    demo_endpoint: Endpoint, change: dict[str, str], message: str
) -> None:
    answer = browser("operator").post(PAGE, form(note="because", **change))
    assert answer.status_code in (400, 409, 412)
    assert message in answer.text
    assert 'value="because"' in answer.text
    demo_endpoint.refresh_from_db()
    assert demo_endpoint.generation == 1


def test_watch_sends_added_and_changed_decisions(demo_endpoint: Endpoint, router: Stub) -> None:
    running = {**DECISION, "status": None, "id": "x"}
    router.answers["/decisions"] = (200, {"decisions": [running]})
    watching = DecisionStream("demo", DecisionFilter(), 50)
    first = watching.poll()
    assert first is not None
    assert [row["id"] for row in first.data["rows"]] == ["x"]
    assert "running" in first.data["rows"][0]["html"]
    assert watching.poll() is first, "no news"
    router.answers["/decisions"] = (200, {"decisions": [{**DECISION, "id": "y"}, running]})
    second = watching.poll()
    assert second is not None
    assert second.id != first.id
    assert [row["id"] for row in second.data["rows"]] == ["y"]
    router.answers["/decisions"] = (500, "boom")
    away = watching.poll()
    assert away is not None
    assert "returned HTTP 500" in away.data["error"]
    router.answers["/decisions"] = (200, {"decisions": [{**DECISION, "id": "y"}, running]})
    back = watching.poll()
    assert back is not None
    assert back.data == {"rows": []}, "so that the page takes the message away"
    Endpoint.objects.all().delete()
    assert watching.poll() is None


def test_filter_applies_to_a_watch(demo_endpoint: Endpoint, router: Stub) -> None:
    event = DecisionStream("demo", DecisionFilter(reason="retry"), 50).poll()
    assert event is not None
    assert event.data == ""
