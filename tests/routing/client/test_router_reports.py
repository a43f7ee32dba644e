"""Reports of several routers: what they exchange, and where they disagree."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from console.core.state_store import StateStore
from endpoints import actions
from endpoints.models import Endpoint, EndpointStatus
from endpoints.router import selectors
from routing.client.admin_client import RouterWorker
from routing.client.router_reports import RouterReport, disagreements, read_exchange, unheard
from tests.endpoints.pages.routing.index_answer import answer
from tests.routing.doctor.facts import index, source
from tests.routing.doctor.stubs import router_of
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

DEMO = "/routing/endpoints/demo/"


def make_report(router: str, *peers: str, **changes: Any) -> dict[str, Any]:
    exchange: dict[str, Any] = {
        "router": router,
        "store": "redis://store:6379/0",
        "connected": True,
        "error": "",
        "reason": "",
        "remedy": "",
        "away_since": None,
        "lag_s": 0.0012,
        "failures": 1,
        "messages": {"applied": 50, "not_authentic": 0},
        "budget_checks_alone": 0,
        "waiting_placements": 0,
        "dropped_placements": 2,
        "ignored_placements": 3,
        "peers": [{"router": peer, "silent_s": 0.1, "in_flight": 0} for peer in peers],
    }
    return {"exchange": exchange | changes}


def report(name: str, **changes: Any) -> RouterReport:
    workers = (RouterWorker("w0", "", "up"), RouterWorker("w1", "", "up"))
    return replace(RouterReport(name, "", "kvaware", workers, index()), **changes)


def test_equal_reports_do_not_disagree_and_silent_routers_are_no_part_of_it():
    silent = RouterReport("c", error="refused")
    near = index(sources=(source(0, blocks=150), source(1)))
    assert disagreements([report("a"), report("b", kv=near), silent]) == ()
    assert disagreements([report("a")]) == ()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"strategy": "session"}, "strategy: kvaware at a, session at b"),
        ({"workers": (RouterWorker("w0", "", "up"),)}, "w1: up at a, unknown at b"),
        (
            {"kv": index(sources=(source(0, state="disconnected"), source(1)))},
            "KV events of w0: followed at a, not followed at b",
        ),
        (
            {"kv": index(sources=(source(0, blocks=9_000), source(1)))},
            "indexed blocks of w0: 100 at a, 9000 at b",
        ),
    ],
)
def test_each_difference_is_a_line_with_the_routers(changes, line):
    assert disagreements([report("a"), report("b", **changes)]) == (line,)


def test_connected_routers_that_do_not_hear_each_other_are_named():
    one = report("a", exchange=read_exchange(make_report("aa", "bb")))
    two = report("b", exchange=read_exchange(make_report("bb", not_relevant=1)))
    away = report("c", exchange=read_exchange(make_report("cc", connected=False)))
    assert unheard([one, two, away]) == ("b does not hear a",)


def test_exchange_of_a_router_is_read_with_its_losses():
    assert read_exchange({"exchange": None}) is None
    found = read_exchange(
        make_report("aa", messages={"applied": 5, "invalid": 4}, away_since=1.8e9)
    )
    assert found is not None
    assert (found.lost, found.rejected, found.failures) == (5, {"invalid": 4}, 1)
    assert found.away_since is not None


@pytest.fixture
def both() -> Iterator[list[Stub]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                http_stub(router_of(**{"/index": (200, answer()), "/peers": (200, reply)}))
            )
            for reply in (make_report("aa", "bb"), make_report("bb", "aa"))
        ]


@pytest.fixture
def demo_endpoint(both: list[Stub]) -> Endpoint:
    made = pretend_ready(make_endpoint(), admin_url=both[0].url)
    parts = {"router": {"admin_urls": [stub.url for stub in both]}}
    EndpointStatus.objects.filter(pk=made.pk).update(parts=parts)
    return Endpoint.objects.select_related("status").get(pk=made.pk)


def cli(verb: str) -> list[str]:
    out = io.StringIO()
    call_command("emberline", "endpoint", verb, "demo", stdout=out)
    return out.getvalue().splitlines()


@pytest.mark.django_db
def test_page_rest_and_cli_show_the_exchange_of_each(
    demo_endpoint: Endpoint, both: list[Stub]
) -> None:
    page = browser("viewer").get(f"{DEMO}routers/").text
    assert page.count('data-exchange="connected"') == 2
    assert "alert-" not in page.partition('id="routers"')[2].partition("<section")[0]
    found = program("viewer").get("/api/v1/endpoints/demo/routers/").json()
    assert found["differences"] == []
    assert [one["exchange"]["peers"] for one in found["routers"]] == [["bb"], ["aa"]]
    assert found["routers"][0]["exchange"]["lost_placements"] == 5
    assert cli("routers")[1].split()[1:7] == ["kvaware", "connected", "1.2", "ms", "1", "0"]
    gone = make_report(
        "bb", connected=False, error="OSError: refused", away_since=1.79e9, lag_s=None
    )
    both[1].answers["/peers"] = (200, gone)
    page = browser("viewer").get(f"{DEMO}routers/").text
    assert "State store away at 1 of 2 routers." in page
    assert "OSError: refused" in page
    assert "away" in cli("routers")[2]
    both[1].answers["/workers"] = (500, "boom")
    page = browser("viewer").get(f"{DEMO}routers/").text
    assert 'data-exchange="unknown"' in page


@pytest.mark.django_db
def test_routers_without_a_store_have_a_warning(demo_endpoint: Endpoint, both: list[Stub]) -> None:
    for stub in both:
        stub.answers["/peers"] = (200, {"exchange": None})
    assert "Routers share no state." in browser("viewer").get(f"{DEMO}routers/").text
    codes = {one.code for one in selectors.examine(demo_endpoint).findings}
    assert "RoutersSeparate" in codes


@pytest.mark.django_db
def test_page_rest_and_cli_show_the_store_and_its_origin(
    demo_endpoint: Endpoint, settings: Any
) -> None:
    def shown() -> Any:
        return program("viewer").get("/api/v1/endpoints/demo/routers/").json()["state_store"]

    assert shown() is None
    actions.patch(actions.SYSTEM, "demo", {"router": {"replicas": 2}})
    installed = StateStore("redis://store.installed:6379/0")
    settings.EMBERLINE = replace(settings.EMBERLINE, state_store=installed)
    assert shown() == {"url": installed.url, "origin": "installation"}
    own = {"state_store": {"url": "redis://store.own:6379/1"}}
    actions.patch(actions.SYSTEM, "demo", {"router": own})
    assert shown() == {"url": "redis://store.own:6379/1", "origin": "endpoint"}
    page = browser("viewer").get(f"{DEMO}routers/").text
    assert 'data-store="endpoint"' in page
    assert "redis://store.own:6379/1</code>" in page
    assert "state store: redis://store.own:6379/1 (endpoint)" in cli("routers")


@pytest.mark.django_db
def test_index_of_all_routers_is_compared(demo_endpoint: Endpoint, both: list[Stub]) -> None:
    page = browser("viewer").get(f"{DEMO}kv/").text
    assert "All routers that responded have the same index." in page
    other = answer()
    other["kv"]["sources"][0]["state"] = "disconnected"
    both[1].answers["/index"] = (200, other)
    name = other["kv"]["sources"][0]["worker"]
    assert f"KV events of {name}: followed at" in browser("viewer").get(f"{DEMO}kv/").text
    found = program("viewer").get("/api/v1/endpoints/demo/kv-index/").json()
    assert len(found["routers"]) == 2
    assert found["differences"] == list(selectors.kv_index(demo_endpoint).differences) != []
    assert any("differs: KV events of" in line for line in cli("kv-index"))
    both[0].answers["/index"] = (500, "boom")
    seen = selectors.kv_index(demo_endpoint)
    assert (seen.error, bool(seen.index)) == ("", True), "the other one answers"
    assert "1 of 2 routers did not respond" in seen.note


@pytest.mark.django_db
def test_doctor_names_the_router_that_differs(demo_endpoint: Endpoint, both: list[Stub]) -> None:
    both[1].answers["/config"] = (
        200,
        {"config": {"strategy": "kvaware"}, "refused": "listen: bad"},
    )
    away = make_report("bb", connected=False, error="refused", remedy="Check host and port.")
    both[1].answers["/peers"] = (200, away)
    found = {one.code: one for one in selectors.examine(demo_endpoint).findings}
    name = both[1].url.removeprefix("http://")
    assert found["RouterKeepsOldFile"].evidence == (f"Router {name}: listen: bad",)
    assert found["StateStoreAway"].evidence == (
        f"{name}: redis://store:6379/0: refused. Check host and port.",
    )
    assert found["NoWorkerRegistered"].evidence == (), "the same at both"
    assert "RoutersSeparate" not in found
