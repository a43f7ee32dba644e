"""KV index and doctor pages: a text for every state, also without a router."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.models import Endpoint
from routing.analysis import kv_rows
from routing.analysis.kv_index import read_index
from routing.client import admin_client
from routing.doctor.checks import CHECKS
from tests.endpoints.pages.routing.index_answer import answer, source
from tests.routing.doctor.stubs import WORKER, router_of
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import HANG, Stub, http_stub

pytestmark = pytest.mark.django_db

KV = "/routing/endpoints/demo/kv/"
DOCTOR = "/routing/endpoints/demo/doctor/"


@pytest.fixture
def worker() -> Iterator[Stub]:
    with http_stub(dict(WORKER)) as stub:
        yield stub


@pytest.fixture
def router(worker: Stub) -> Iterator[Stub]:
    with http_stub(router_of(worker.url, **{"/index": (200, answer())})) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub, worker: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), admin_url=router.url, workers={"w0": worker.url})


def rows(**changes: Any) -> dict[str, kv_rows.WorkerRow]:
    data = answer("")
    data["kv"] |= changes
    index = read_index(data)
    assert index is not None
    return {row.name: row for row in kv_rows.worker_rows(index)}


def test_row_shows_state_and_reason() -> None:
    found = rows()
    assert [row.level for row in found.values()] == ["good", "good", "bad", "bad"]
    assert found["0"].why == "KV events are received; the index is current."
    assert "partly unknown" in found["1"].why
    assert (found["2"].state, found["2"].lost, found["2"].restarts) == ("not trusted", 1, 1)
    assert "start it with --kv-events-config" in found["3"].why
    assert found["3"].lag_s is None
    assert [tier.blocks for tier in found["1"].tiers] == [1100, 1300, 200]
    assert sum(tier.percent for tier in found["1"].tiers) == pytest.approx(100, abs=0.5)
    assert found["0"].tiers[0].percent == pytest.approx(100 * 900 / 2600, abs=0.1)
    assert found["1"].probe_skipped == "skipped: the worker is busy"


def test_worst_of_several_ranks_is_shown_and_counts_are_summed() -> None:
    both = [source("w", blocks=5), source("w", rank=1, blocks=7, state="disconnected", lag_s=9)]
    row = rows(sources=both, tiers={})["w"]
    assert (row.state, row.level, row.blocks, row.lag_s) == ("disconnected", "bad", 12, 9)
    assert row.tiers[0].blocks == 12, "a router that tells no tiers"


def test_worker_without_a_query_yet_is_not_called_broken() -> None:
    requested = {"worker": "w", "state": "none", "reason": "undiscovered", "message": ""}
    row = rows(sources=[requested])["w"]
    assert (row.state, row.level) == ("discovering", "busy")
    assert row.why == "Its KV event endpoint has not been discovered yet."


def test_probe_has_a_time_and_a_remedy() -> None:
    found = rows()
    assert found["0"].probe is not None
    assert found["0"].probe.hit
    assert found["0"].probe_at is not None
    assert found["2"].probe is not None
    assert not found["2"].probe.hit
    assert "did not have" in found["2"].probe.remedy
    assert found["1"].probe is None
    assert found["1"].probe_at is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("tcp://10.0.0.7:5557", "tcp://10.0.0.7:5557"),
        ("ipc:///srv/emberline/var/endpoints/demo/w0/kv.sock", "ipc: w0/kv.sock"),
        ("ipc:///kv.sock", "ipc: /kv.sock"),
    ],
)
def test_path_of_a_socket_is_shown_from_its_folder_on(address: str, shown: str) -> None:
    row = rows(sources=[source("w", endpoint=address)], tiers={})["w"]
    assert row.endpoint == shown


def test_reasons_are_sorted_by_count() -> None:
    ordered = kv_rows.fallback_reasons({"timeout": 3, "multimodal": 17, "no_events": 3})
    assert [one.reason for one in ordered] == ["multimodal", "no_events", "timeout"]


def test_state_of_another_version_is_shown_unchanged() -> None:
    row = rows(sources=[source("w", state="brand_new")])["w"]
    assert (row.state, row.level) == ("brand_new", "bad")
    assert kv_rows.fallback_reasons({"brand_new": 1})[0].words == "brand_new"


def test_page_shows_each_worker_and_its_fallback_reason(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get(KV).text
    for shown in (
        *("demo-worker-0", "1300", "not trusted", "71 % missing", "1 lost"),
        *("no events", "--kv-events-config", "not_cached", "multimodal", "Images or audio"),
        *("2 of 4", "0.3 s", "Router tokenizer, verified"),
    ):
        assert shown in text, shown
    part = browser("viewer").get(KV, headers={"HX-Request": "true"}).text
    assert "demo-worker-0" in part
    assert "<html" not in part


def test_last_state_of_a_silent_router_stays_and_is_marked_stale(
    demo_endpoint: Endpoint, router: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Stale" not in browser("viewer").get(KV).text
    router.answers["/index"] = (HANG, "")
    with monkeypatch.context() as hasty:
        hasty.setattr(admin_client, "DEADLINE_S", 0.3)
        page = browser("viewer").get(KV)
    assert page.status_code == 200
    assert "Stale data" in page.text
    assert "did not respond within" in page.text
    assert "demo-worker-1" in page.text
    router.answers["/index"] = (200, answer())
    assert "Stale" not in browser("viewer").get(KV).text


def test_rest_returns_the_router_record_and_marks_it_stale(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    path = "/api/v1/endpoints/demo/kv-index/"
    router.answers["/index"] = (500, "boom")
    away = program("viewer").get(path)
    assert (away.status_code, away.json()["code"]) == (503, "router_away")
    reported = answer()
    router.answers["/index"] = (200, reported)
    fresh = program("viewer").get(path).json()
    assert (fresh["strategy"], fresh["stale"], fresh["kv"]) == ("kvaware", "", reported["kv"])
    router.answers["/index"] = (500, "boom")
    old = program("viewer").get(path).json()
    assert "returned HTTP 500" in old["stale"]
    assert (old["at"], old["kv"]) == (fresh["at"], reported["kv"])
    router.answers["/index"] = (200, {"strategy": "prefixaware"})
    assert program("viewer").get(path).json()["kv"] is None
    assert program("viewer").get("/api/v1/endpoints/nope/kv-index/").status_code == 404


@pytest.mark.parametrize("bad", [(500, "boom"), (200, "<html>"), (200, {"kv": {"sources": [1]}})])
def test_malformed_response_is_no_failure(demo_endpoint: Endpoint, router: Stub, bad: Any) -> None:
    router.answers["/index"] = bad
    assert browser("viewer").get(KV).status_code == 200


def test_strategies_without_an_index_are_explained(demo_endpoint: Endpoint, router: Stub) -> None:
    router.answers["/index"] = (200, {"strategy": "prefixaware"})
    assert "No KV index" in browser("viewer").get(KV).text
    gone = pretend_ready(make_endpoint("gone"), admin_url="http://127.0.0.1:9")
    text = browser("viewer").get(f"/routing/endpoints/{gone.name}/kv/").text
    assert "KV index unavailable" in text
    assert "nothing listens" in text


def test_doctor_page_is_rendered_before_any_query(
    demo_endpoint: Endpoint, router: Stub, worker: Stub
) -> None:
    text = browser("viewer").get(DOCTOR).text
    assert f"{len(CHECKS)} checks" in text
    assert f'hx-get="{DOCTOR}?run=1"' in text
    assert router.seen == worker.seen == []


def test_findings_have_evidence_and_a_fix(demo_endpoint: Endpoint, worker: Stub) -> None:
    part = browser("viewer").get(f"{DOCTOR}?run=1", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert 'data-finding="IndexNotBelieved"' in part
    assert 'data-verdict="error"' in part
    assert "demo-worker-2: 71% of predicted tokens missing" in part
    for check in CHECKS:
        assert f'data-check="{check.code}"' in part
    whole = browser("viewer").get(f"{DOCTOR}?run=1").text
    assert "<html" in whole, "without script the button leads here"
    assert 'data-finding="IndexNotBelieved"' in whole
    worker.answers["/version"] = (200, {"version": "<script>alert(1)</script>"})
    assert "<script>alert" not in browser("viewer").get(f"{DOCTOR}?run=1").text


def test_number_of_passed_checks_is_shown_without_findings(
    demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from endpoints.router import selectors
    from routing.doctor.examination import run_checks
    from tests.routing.doctor.facts import fleet

    monkeypatch.setattr(selectors, "examine_router", lambda *_: run_checks(fleet()))
    text = browser("viewer").get(f"{DOCTOR}?run=1").text
    assert f"All {len(CHECKS)} checks passed" in text
    assert text.count('data-state="passed"') == len(CHECKS)


def test_doctor_without_a_router_finds_only_that() -> None:
    pretend_ready(make_endpoint(), admin_url="http://127.0.0.1:9")
    text = browser("viewer").get(f"{DOCTOR}?run=1").text
    assert 'data-finding="RouterSilent"' in text
    assert "skipped" in text
    assert browser("viewer").get("/routing/endpoints/nope/doctor/").status_code == 404


def test_pages_of_a_group_link_to_each_other_and_all_pages_to_the_doctor(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    for here, links in (
        ("/endpoints/demo/", ("/routing/endpoints/demo/", DOCTOR)),
        ("/routing/endpoints/demo/", ("/routing/endpoints/demo/explain/", DOCTOR)),
        (KV, ("/routing/endpoints/demo/", "/routing/endpoints/demo/routers/", DOCTOR)),
        (DOCTOR, (KV, "/endpoints/demo/logs/")),
    ):
        text = browser("viewer").get(here).text
        for there in links:
            assert f'href="{there}"' in text, (here, there)
        assert text.count('aria-current="page"') >= 1
