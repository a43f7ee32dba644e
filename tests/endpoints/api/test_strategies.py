"""Routing REST: status, dry run, and a response with its measurements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.pages.routing import decision_stream
from routing.analysis.choices import DecisionFilter
from tests.endpoints.pages.playground.test_views import GOOD, SECRET
from tests.endpoints.pages.routing.test_views import DECISION, WORKERS
from tests.support.console import make_endpoint, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db

HOME = "/api/v1/endpoints/demo/"
CHAT = {"messages": [{"role": "user", "content": "Tell me"}]}


@pytest.fixture
def router() -> Iterator[Stub]:
    answers: dict[str, Any] = {
        "/workers": (200, WORKERS),
        "/decisions": (200, {"decisions": [{**DECISION, "id": f"d{n}"} for n in range(6)]}),
        "/explain": (200, {**DECISION}),
        "/v1/chat/completions": (200, GOOD),
    }
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    made = make_endpoint()
    storage.write_console_key("demo", SECRET)
    return pretend_ready(made, url=router.url, admin_url=router.url)


def test_routing_status_is_returned(demo_endpoint: Endpoint, router: Stub) -> None:
    document = program("viewer").get(f"{HOME}routing/").json()
    assert (document["strategy"], document["routers"], document["note"]) == ("prefixaware", 1, "")
    assert [one["state"] for one in document["workers"]] == ["up", "down"]
    found = program("viewer").get(f"{HOME}strategies/").json()
    assert found["requests"] == 6
    assert [one["strategy"] for one in found["strategies"] if one["current"]] == ["prefixaware"]
    for path in ("/workers", "/decisions"):
        router.answers[path] = (500, "boom")
    for path in ("routing", "strategies"):
        away = program("viewer").get(f"{HOME}{path}/")
        assert (away.status_code, away.json()["code"]) == (503, "router_away")


def test_viewers_can_dry_run_a_request(demo_endpoint: Endpoint, router: Stub) -> None:
    body = {"request": CHAT, "strategy": "session", "session": "me"}
    (word,) = program("viewer").post(f"{HOME}explain/", body).json()["routers"]
    assert (word["error"], word["ranking"]["chosen"]) == ("", "demo-worker-0")
    assert router.seen[-1][1] == "/explain?strategy=session&key=console"
    assert router.headers[-1]["x-session-id"] == "me"
    for bad in ({}, {"request": {}}, {"request": CHAT, "strategy": "x"}, {"request": 1}):
        assert program("viewer").post(f"{HOME}explain/", bad).status_code == 400


def test_operators_get_a_response_with_its_measurements(demo_endpoint: Endpoint) -> None:
    document = program("operator").post(f"{HOME}chat/", CHAT).json()
    assert document["text"] == "Once <b>upon a time"
    assert document["tokens"]["computed"] == 8
    assert SECRET not in str(document)
    assert program("viewer").post(f"{HOME}chat/", CHAT).status_code == 403
    refused = program("operator").post(f"{HOME}chat/", {"messages": []})
    assert (refused.status_code, refused.json()["field"]) == (400, "messages")


def test_endpoint_without_an_address_is_a_conflict() -> None:
    make_endpoint()
    refused = program("operator").post(f"{HOME}chat/", CHAT)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_address")
    assert "router is running" in refused.text


def test_decisions_are_filtered_and_watched(demo_endpoint: Endpoint, router: Stub) -> None:
    client = program("viewer")
    assert len(client.get(f"{HOME}decisions/?outcome=ok").json()["decisions"]) == 6
    assert client.get(f"{HOME}decisions/?outcome=failed").json()["decisions"] == []
    assert client.get(f"{HOME}decisions/?outcome=odd").status_code == 400
    event = decision_stream.DecisionStream(
        "demo", DecisionFilter(), 2, decision_stream.render_records
    ).poll()
    assert event is not None
    assert [one["id"] for one in event.data["decisions"]] == ["d0", "d1"]
