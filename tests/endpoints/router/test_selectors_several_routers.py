"""Endpoint with several routers: merged results, and silent ones named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from endpoints.models import Endpoint, EndpointStatus
from endpoints.pages.playground.answers import prepare
from endpoints.router import selectors
from routing.client import admin_client
from routing.prompts.conversation import from_json
from tests.endpoints.pages.routing.test_views import DECISION, WORKERS
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.http_stub import HANG, Stub, http_stub

pytestmark = pytest.mark.django_db


@pytest.fixture
def both() -> Iterator[list[Stub]]:
    with ExitStack() as stack:
        stubs = []
        for number in range(2):
            decision = {**DECISION, "id": f"r{number}-1", "time": 1_795_000_000.0 + number}
            answers: dict[str, Any] = {
                "/workers": (200, WORKERS),
                "/decisions": (200, {"decisions": [decision]}),
                f"/decisions/r{number}-1": (200, decision),
                "/explain": (200, {**DECISION, "chosen": f"demo-worker-{number}"}),
            }
            stubs.append(stack.enter_context(http_stub(answers)))
        yield stubs


@pytest.fixture
def demo_endpoint(both: list[Stub]) -> Endpoint:
    made = pretend_ready(make_endpoint(), admin_url=both[0].url)
    parts = {"router": {"admin_urls": [stub.url for stub in both]}}
    EndpointStatus.objects.filter(pk=made.pk).update(parts=parts)
    return Endpoint.objects.select_related("status").get(pk=made.pk)


def test_results_of_several_routers_are_merged(demo_endpoint: Endpoint) -> None:
    requested = selectors.workers(demo_endpoint)
    assert [(one.id, one.in_flight, one.served) for one in requested.found] == [
        ("demo-worker-0", 6, 34),
        ("demo-worker-1", 0, 0),
    ]
    assert [one.id for one in selectors.decisions(demo_endpoint).found] == ["r1-1", "r0-1"]
    assert len(selectors.decisions(demo_endpoint, 1).found) == 1


def test_decision_of_any_router_is_found(demo_endpoint: Endpoint) -> None:
    for number in ("r0-1", "r1-1"):
        found = selectors.decision(demo_endpoint, number).found
        assert found is not None
        assert found.id == number
    assert selectors.decision(demo_endpoint, "r9-1") == selectors.RouterReplies(None)


def test_silent_router_is_named_and_the_other_shown(
    demo_endpoint: Endpoint, both: list[Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "DEADLINE_S", 1.5)  # of the other's answer, too
    for path in ("/workers", "/decisions"):
        both[1].answers[path] = (HANG, "")
    page = browser("viewer").get("/routing/endpoints/demo/").text
    assert "1 of 2 routers did not respond" in page
    assert 'data-decision="r0-1"' in page
    both[0].answers["/workers"] = (500, "boom")
    page = browser("viewer").get("/routing/endpoints/demo/").text
    assert "2 of 2 routers did not respond" in page
    assert 'id="decisions"' not in page


def test_dry_run_shows_whether_routers_agree(demo_endpoint: Endpoint, both: list[Stub]) -> None:
    path = "/routing/endpoints/demo/explain/"
    text = browser("viewer").post(path, {"prompt": "x"}).text
    assert "They choose different workers" in text
    both[1].answers["/explain"] = both[0].answers["/explain"]
    assert "All choose the same worker." in browser("viewer").post(path, {"prompt": "x"}).text


def test_worst_state_of_several_routers_is_shown() -> None:
    up, down = (
        admin_client.RouterWorker("w", "u", state, 1, 2, 3, error)
        for state, error in (("up", ""), ("down", "refused"))
    )
    for reported in ([[up], [down]], [[down], [up]]):
        (worker,) = admin_client.merge_workers(reported)
        assert (worker.state, worker.last_error, worker.in_flight) == ("down", "refused", 2)


def test_open_circuit_and_slow_start_at_any_router_are_shown() -> None:
    calm = admin_client.RouterWorker("w", "u", "up", circuit="closed")
    trial = replace(calm, circuit="half_open")
    fresh = replace(calm, slow_start=True)
    for reported in ([[calm], [trial], [fresh]], [[fresh], [trial], [calm]]):
        (worker,) = admin_client.merge_workers(reported)
        assert (worker.circuit, worker.slow_start) == ("half_open", True)


def test_playground_dry_runs_at_the_router_that_responds(
    demo_endpoint: Endpoint, both: list[Stub]
) -> None:
    EndpointStatus.objects.filter(pk=demo_endpoint.pk).update(url=both[1].url)
    both[0].answers["/explain"] = (500, {})
    endpoint = Endpoint.objects.select_related("status").get(pk=demo_endpoint.pk)
    body = {"messages": [{"role": "user", "content": "x"}], "route": "roundrobin"}
    assert prepare(endpoint, from_json(body)).pin == "demo-worker-1"


def test_routers_are_queried_in_small_batches(demo_endpoint: Endpoint, both: list[Stub]) -> None:
    kept = [{**DECISION, "id": f"d{number}"} for number in range(120)]

    def part(path: str, _body: bytes) -> Any:
        query = parse_qs(urlsplit(path).query)
        skip, limit = (int(query.get(name, ["0"])[0]) for name in ("skip", "limit"))
        return 200, {"decisions": kept[skip : skip + limit]}

    both[0].answers["/decisions"] = part
    found = admin_client.decisions(both[0].url, 110)
    assert [one["id"] for one in found] == [one["id"] for one in kept[:110]]
    assert max(int(re.findall(r"limit=(\d+)", path)[0]) for _, path, _ in both[0].seen) == 50
    assert len(admin_client.decisions(both[0].url, 500)) == 120
    both[0].answers["/decisions"] = (200, {"decisions": kept[:50]})
    assert len(admin_client.decisions(both[0].url, 200)) == 50, "one that knows no skip"
