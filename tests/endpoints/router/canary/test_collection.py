"""Collection from routers: sums, automatic stop, proposal, silence and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from console.audit.models import AuditEvent
from endpoints.models import Endpoint
from endpoints.router.canary import collection, selectors
from endpoints.router.canary.collection import collect_canaries
from endpoints.router.models import Canary
from tests.routing.analysis.test_canary import report
from tests.support.console import make_endpoint, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db

HOME = "/api/v1/endpoints/demo/canary/"


@pytest.fixture
def router() -> Iterator[Stub]:
    with http_stub({}) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), url=router.url, admin_url=router.url)


@pytest.fixture
def canary(demo_endpoint: Endpoint) -> Canary:
    program("operator").post(HOME, {"strategy": "session", "share": 0.5})
    return Canary.objects.get()


def reply(canary: Canary, instance: str = "one", **facts: Any) -> tuple[int, Any]:
    reported = {"id": str(canary.pk), "arms": report(**facts)}
    return 200, {"instance": instance, "canary": reported}


def test_no_difference_goes_on(router: Stub, canary: Canary) -> None:
    router.answers["/canary"] = reply(canary)
    assert collect_canaries() == 1
    collect_canaries()
    canary.refresh_from_db()
    assert (canary.state, canary.verdict, canary.error) == ("running", "no_difference", "")
    assert canary.message.startswith("No TTFT difference larger than")
    assert len(canary.history) == 1, "nothing new, no point"
    shown = program("viewer").get(HOME).json()["canary"]
    assert shown["arms"]["control"]["requests"] == 1000
    assert shown["intervals"]["ttft"]["low"] < 0 < shown["intervals"]["ttft"]["high"]


@pytest.mark.parametrize("facts", [{"slower": 1.5}, {"failing": 0.3}])
def test_a_worse_candidate_is_stopped(
    router: Stub, canary: Canary, facts: dict[str, float]
) -> None:
    router.answers["/canary"] = reply(canary, **facts)
    collect_canaries()
    canary.refresh_from_db()
    assert (canary.state, canary.verdict) == ("stopped", "worse")
    assert canary.ended_reason.startswith("Stopped automatically.")
    assert AuditEvent.objects.get(verb="canary.stop").actor_name == "system"
    assert collect_canaries() == 0


def test_a_better_candidate_is_proposed_once(router: Stub, canary: Canary) -> None:
    router.answers["/canary"] = reply(canary, slower=0.5)
    collect_canaries()
    collect_canaries()
    canary.refresh_from_db()
    assert (canary.state, canary.verdict) == ("running", "better")
    assert AuditEvent.objects.filter(verb="canary.propose").count() == 1


def test_a_restarted_router_adds_to_what_its_predecessor_reported(
    router: Stub, canary: Canary
) -> None:
    router.answers["/canary"] = reply(canary, "one")
    collect_canaries()
    router.answers["/canary"] = reply(canary, "two", sessions=100)
    collect_canaries()
    router.answers["/canary"] = reply(canary, "one", sessions=10)  # an older reply
    collect_canaries()
    canary.refresh_from_db()
    arms = selectors.result(canary).arms
    assert arms["control"].requests + arms["candidate"].requests == 2200
    assert canary.routers == 1
    assert len(canary.history) == 2


def test_an_older_reply_without_fewer_requests_loses_no_ended_session(
    router: Stub, canary: Canary
) -> None:
    newer = reply(canary)
    older = deepcopy(newer)
    older[1]["canary"]["arms"]["control"]["sessions"] -= 1
    for answer in (newer, older):
        router.answers["/canary"] = answer
        collect_canaries()
    canary.refresh_from_db()
    assert canary.reports["one"] == newer[1]["canary"]["arms"]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((500, "boom"), "HTTP 500"),
        ((404, "nothing"), "HTTP 404"),
        ((200, {"instance": "x", "canary": None}), "1 of 1 routers do not run the canary yet"),
        ((200, {"instance": "x", "canary": {"id": "other", "arms": {}}}), "do not run"),
        ((200, {"canary": 3}), "not valid"),
    ],
)
def test_routers_without_a_result_are_reported(
    router: Stub, canary: Canary, answer: Any, text: str
) -> None:
    router.answers["/canary"] = answer
    collect_canaries()
    canary.refresh_from_db()
    assert text in canary.error
    assert (canary.state, canary.verdict, canary.reports) == ("running", "collecting", {})


def test_invalid_statistics_are_left_out(router: Stub, canary: Canary) -> None:
    reported = {"id": str(canary.pk), "arms": {"control": {}}}
    router.answers["/canary"] = (200, {"instance": "x", "canary": reported})
    collect_canaries()
    canary.refresh_from_db()
    assert canary.reports == {}


def test_a_changed_strategy_ends_the_canary(router: Stub, canary: Canary) -> None:
    program("operator").patch(HOME.removesuffix("canary/"), {"routing": {"strategy": "roundrobin"}})
    collect_canaries()
    canary.refresh_from_db()
    assert canary.state == "stopped"
    assert "changed to roundrobin" in canary.ended_reason


def test_a_long_history_becomes_coarser(
    router: Stub, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MAX_POINTS", 10)
    for sessions in range(2, 60, 2):
        router.answers["/canary"] = reply(canary, sessions=sessions)
        collect_canaries()
    canary.refresh_from_db()
    found = [point["requests"] for point in canary.history]
    assert len(found) <= 10
    assert found == sorted(found)
    assert (found[0], found[-1]) == (4, 116)
