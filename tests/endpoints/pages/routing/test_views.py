"""Routing pages and REST over a responding, rejecting, hanging or malformed admin port."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.models import Endpoint
from endpoints.router import selectors
from routing.analysis.choices import read_decision
from routing.analysis.misses import explain_miss
from routing.client import admin_client
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import HANG, Stub, http_stub

pytestmark = pytest.mark.django_db

CANDIDATES = [
    {
        "worker": "demo-worker-0",
        "matched": {"prefix": 480},
        "in_flight": 1,
        "score": 52,
        "healthy": True,
    },
    {
        "worker": "demo-worker-1",
        "matched": {"prefix": 0},
        "in_flight": 0,
        "score": 500,
        "healthy": False,
    },
]
DECISION = {
    "id": "abc-1",
    "time": 1_795_000_000.0,
    "endpoint": "demo",
    "key_id": "console",
    "session": "",
    "prefix": ["aa", "bb"],
    "prompt_tokens": 500,
    "prompt_tokens_estimated": False,
    "strategy": "prefixaware",
    "candidates": CANDIDATES,
    "chosen": "demo-worker-0",
    "reason": "prefix_hit",
    "predicted_cached_tokens": 480,
    "cached_tokens": 448,
    "completion_tokens": 20,
    "ttft_s": 0.05,
    "duration_s": 1.5,
    "status": 200,
    "attempts": 1,
}
WORKERS = {
    "workers": [
        {
            "id": "demo-worker-0",
            "url": "http://127.0.0.1:1",
            "state": "up",
            "in_flight": 3,
            "served": 17,
            "failures": 0,
            "last_error": "",
        },
        {
            "id": "demo-worker-1",
            "url": "http://127.0.0.1:2",
            "state": "down",
            "in_flight": 0,
            "served": 0,
            "failures": 2,
            "last_error": "connection refused",
        },
    ]
}


@pytest.fixture
def router() -> Iterator[Stub]:
    answers: dict[str, Any] = {
        "/workers": (200, WORKERS),
        "/decisions": (200, {"decisions": [DECISION, {**DECISION, "id": "abc-0", "status": None}]}),
        "/decisions/abc-1": (200, DECISION),
        "/decisions/gone": (404, {"error": {"message": "no longer kept", "code": "not_found"}}),
        "/explain": (
            200,
            {
                k: DECISION[k]
                for k in (
                    "chosen",
                    "reason",
                    "candidates",
                    "prompt_tokens",
                    "predicted_cached_tokens",
                )
            },
        ),
    }
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), admin_url=router.url)


def test_page_shows_workers_and_decisions_with_reasons(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get("/routing/endpoints/demo/").text
    for shown in ("Prefix match", "demo-worker-0", "448", "(90 %)", "50 ms", "connection refused"):
        assert shown in text
    assert "/routing/endpoints/demo/decisions/abc-1/" in text
    assert 'data-computed="52" data-output="20"' in text
    assert "running" in text, "a decision whose request is still running"


def test_htmx_gets_only_the_part(demo_endpoint: Endpoint) -> None:
    part = browser("viewer").get("/routing/endpoints/demo/", headers={"HX-Request": "true"}).text
    assert "Workers (router view)" in part
    assert "<html" not in part


def test_equal_costs_are_called_a_tie(demo_endpoint: Endpoint, router: Stub) -> None:
    first, *rest = CANDIDATES
    tied = [{**one, "healthy": True, "score": 7.0} for one in (first, *rest)]
    for candidates, text in ((CANDIDATES, ""), (tied, f"Tie: {len(rest)} other worker")):
        router.answers["/decisions/abc-1"] = (200, {**DECISION, "candidates": candidates})
        page = browser("viewer").get("/routing/endpoints/demo/decisions/abc-1/").content.decode()
        assert text in page
        assert ("Tie:" in page) == bool(text)


def test_decision_is_a_table_of_candidates(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get("/routing/endpoints/demo/decisions/abc-1/").text
    assert text.count("chosen</span>") == 1
    for shown in ("480", "52", "500", "served a prompt with the same prefix"):
        assert shown in text
    assert "down or excluded" in text
    gone = browser("viewer").get("/routing/endpoints/demo/decisions/gone/").text
    assert "Decision expired" in gone


EVICTED = {"causes": {"evicted_l1": 448, "below_block": 20}}


def test_miss_is_explained_by_its_main_cause() -> None:
    miss = {**DECISION, "cached_tokens": 32, "misses": EVICTED}
    explanation = explain_miss(read_decision(miss))
    assert explanation == "Evicted from L1: 448 of 500 prompt tokens. Enlarge L1, or enable L2."
    new = explain_miss(read_decision({**miss, "misses": {"causes": {"first_seen": 468}}}))
    assert new.endswith("468 of 500 prompt tokens. No earlier prompt began like this.")
    for changes in ({"cached_tokens": 480}, {"cached_tokens": None}, {"prompt_tokens": None}):
        assert explain_miss(read_decision({**miss, **changes})) == ""
    assert explain_miss(read_decision({**miss, "misses": None})) == "", "a router of before"


def test_page_of_a_miss_begins_with_its_explanation(demo_endpoint: Endpoint, router: Stub) -> None:
    path = "/routing/endpoints/demo/decisions/abc-1/"
    assert 'id="miss"' not in browser("viewer").get(path).text, "a hit"
    router.answers["/decisions/abc-1"] = (200, {**DECISION, "cached_tokens": 32, "misses": EVICTED})
    text = browser("viewer").get(path).text
    assert "Cache miss: 32 of 500 prompt tokens cached" in text
    assert "Evicted from L1: 448 of 500" in text


def test_page_states_how_many_of_many_workers_were_compared(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    path = "/routing/endpoints/demo/decisions/abc-1/"
    assert "2 of" not in browser("viewer").get(path).text
    router.answers["/decisions/abc-1"] = (200, {**DECISION, "candidates_total": 1000})
    assert "2 of 1000 workers" in browser("viewer").get(path).text


def test_pin_does_not_mark_the_other_worker_down(demo_endpoint: Endpoint, router: Stub) -> None:
    router.answers["/decisions/abc-1"] = (200, {**DECISION, "reason": "pinned"})
    text = browser("viewer").get("/routing/endpoints/demo/decisions/abc-1/").text
    assert "another worker is pinned" in text
    assert "down or excluded" not in text


def dry_run(prompt: str, **more: str) -> Any:
    form = {"prompt": prompt, **more}
    part = {"HX-Request": "true"}
    return browser("viewer").post("/routing/endpoints/demo/explain/", form, headers=part)


def test_dry_run_queries_the_router_and_sends_nothing_else(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    page = dry_run("<b>Once</b> upon")
    assert "Worker: <strong>demo-worker-0</strong>" in page.text
    method, path, body = router.seen[-1]
    assert (method, path) == ("POST", "/explain?key=console")
    assert json.loads(body) == {"model": "demo", "prompt": "<b>Once</b> upon"}
    whole = browser("viewer").post("/routing/endpoints/demo/explain/", {"prompt": "<i>x"})
    assert "&lt;i&gt;x" in whole.text, "without a script the page comes back with what was typed"


def test_dry_run_accepts_messages_and_complete_requests(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    dry_run(json.dumps(messages))
    assert json.loads(router.seen[-1][2])["messages"] == messages
    dry_run(json.dumps({"messages": messages, "cache_salt": "a"}), session="me")
    assert json.loads(router.seen[-1][2])["cache_salt"] == "a"
    assert router.headers[-1]["x-session-id"] == "me"
    dry_run("x", strategy="roundrobin")
    assert router.seen[-1][1] == "/explain?strategy=roundrobin&key=console"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("  ", "prompt is empty"),
        ("[1, 2", "Invalid JSON"),
        ('{"a": 1}', "neither a prompt nor messages"),
        ("[" * 5000, "Invalid JSON"),
        ("x" * 400_001, "limit of 400000"),
        ('{"messages": 1}', "is not a list"),
    ],
)
def test_unrankable_requests_are_reported(
    demo_endpoint: Endpoint, router: Stub, prompt: str, message: str
) -> None:
    assert message in dry_run(prompt).text
    assert router.seen == []


def test_filters_limit_the_decisions(demo_endpoint: Endpoint, router: Stub) -> None:
    failed = {**DECISION, "id": "bad", "status": 502, "reason": "retry", "key_id": "k1"}
    missed = {**DECISION, "id": "miss", "cached_tokens": 8}
    router.answers["/decisions"] = (200, {"decisions": [failed, missed, DECISION]})

    def ids(query: str) -> list[str]:
        text = browser("viewer").get(f"/routing/endpoints/demo/?{query}").text
        return re.findall(r'data-decision="([^"]*)"', text)

    assert ids("") == ["bad", "miss", "abc-1"]
    assert ids("reason=retry") == ["bad"]
    assert ids("outcome=failed") == ["bad"]
    assert ids("outcome=ok") == ["miss", "abc-1"]
    assert ids("outcome=missed") == ["miss"]
    assert ids("key=k1&worker=demo-worker-0") == ["bad"]
    assert ids("worker=other") == []
    assert ids("outcome=nonsense&page=4") == ["bad", "miss", "abc-1"]


def test_decisions_have_pages_that_keep_the_filter(demo_endpoint: Endpoint, router: Stub) -> None:
    many = [{**DECISION, "id": f"d-{number}"} for number in range(50)]
    router.answers["/decisions"] = (200, {"decisions": many})

    def page(query: str, **headers: str) -> str:
        return str(browser("viewer").get(f"/routing/endpoints/demo/?{query}", headers=headers).text)

    def ids(text: str) -> list[str]:
        return re.findall(r'data-decision="([^"]*)"', text)

    first, last = page("reason=prefix_hit"), page("reason=prefix_hit&page=3")
    assert ids(first) == [f"d-{number}" for number in range(20)]
    assert ids(last) == [f"d-{number}" for number in range(40, 50)]
    assert "?reason=prefix_hit&amp;page=2" in first and "41–50 of 50" in last
    assert "data-stream=" in first and "data-stream=" not in last
    assert "Live updates on page 1 only" in last
    part = page("page=2", **{"HX-Request": "true"})
    assert len(ids(part)) == 20 and "<html" not in part, "the filter replaces workers and rows"
    polled = page("page=2", **{"HX-Request": "true", "HX-Target": "workers"})
    assert ids(polled) == [] and "Routing reasons: last 50 decisions" in polled


def test_counts_are_those_of_the_filtered_decisions(demo_endpoint: Endpoint, router: Stub) -> None:
    """Reasons and their total come from the same decisions as the table, and stay filtered when
    the part refreshes."""
    broken = {**DECISION, "id": "cut", "error": "broken_stream", "reason": "kv_hit"}
    refused = {**DECISION, "id": "bad", "status": 502, "reason": "retry"}
    fine = [{**DECISION, "id": f"fine-{number}"} for number in range(5)]
    router.answers["/decisions"] = (200, {"decisions": [broken, refused, *fine]})
    page = browser("viewer").get("/routing/endpoints/demo/?outcome=failed").text
    assert "Routing reasons: 2 of last 7 decisions" in page
    assert 'hx-get="/routing/endpoints/demo/?outcome=failed"' in page
    reasons = page.partition('id="reasons-title"')[2].partition("</section>")[0]
    assert re.findall(r'text-secondary">(\d+)<', reasons) == ["1", "1"]
    assert "Prefix match" not in reasons
    whole = browser("viewer").get("/routing/endpoints/demo/").text
    assert "Routing reasons: last 7 decisions" in whole


def test_index_lists_endpoints_without_querying_routers(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    text = browser("viewer").get("/routing/").text
    assert "/routing/endpoints/demo/" in text
    assert "prefixaware" in text
    assert router.seen == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((HANG, ""), "did not respond within"),
        ((200, "<html>not json"), "response is not valid"),
        ((200, [1, 2]), "response is not valid"),
        ((200, {"workers": [{"id": 1}]}), "response is not valid"),
        ((500, "boom"), "returned HTTP 500"),
    ],
)
def test_malformed_router_response_is_a_message(
    demo_endpoint: Endpoint,
    router: Stub,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    message: str,
) -> None:
    if answer[0] is HANG:
        monkeypatch.setattr(admin_client, "DEADLINE_S", 0.3)
    router.answers["/workers"] = answer
    page = browser("viewer").get("/routing/endpoints/demo/")
    assert page.status_code == 200
    assert message in page.text
    assert "Router data unavailable" in page.text


def test_missing_or_stopped_router_is_a_message() -> None:
    endpoint = make_endpoint()
    page = browser("viewer").get("/routing/endpoints/demo/")
    assert "has no router yet" in page.text
    pretend_ready(endpoint, admin_url="http://127.0.0.1:9")
    assert "nothing listens" in browser("viewer").get("/routing/endpoints/demo/").text


def test_rest_returns_records_and_plain_errors(demo_endpoint: Endpoint, router: Stub) -> None:
    client = program("viewer")
    answer = client.get("/api/v1/endpoints/demo/decisions/?limit=7")
    assert answer.json()["decisions"][0] == DECISION
    assert router.seen[-1][1] == "/decisions?limit=7"
    assert client.get("/api/v1/endpoints/demo/decisions/abc-1/").json() == DECISION
    assert client.get("/api/v1/endpoints/demo/decisions/gone/").status_code == 404
    assert client.get("/api/v1/endpoints/nope/decisions/").status_code == 404
    for limit in ("0", "-1", "x", "501", "9" * 5000):
        bad = client.get(f"/api/v1/endpoints/demo/decisions/?limit={limit}")
        assert (bad.status_code, bad.json()["field"]) == (400, "limit")
    router.answers["/decisions"] = (500, "boom")
    away = client.get("/api/v1/endpoints/demo/decisions/")
    assert (away.status_code, away.json()["code"]) == (503, "router_away")


def test_record_of_another_version_is_shown_as_far_as_possible() -> None:
    decision = read_decision({"id": "x", "reason": "brand_new", "candidates": [{}]})
    assert decision.label == "brand_new"
    assert decision.prompt_tokens is None
    assert decision.cached_percent is None
    assert decision.candidates[0].score is None


def test_targets_are_the_routers_with_an_address(demo_endpoint: Endpoint, router: Stub) -> None:
    make_endpoint("other")
    (target,) = selectors.targets()
    assert (target.endpoint, target.address) == ("demo", router.address)
