"""Playground pages over a scripted router."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from django.http import StreamingHttpResponse
from django.test import Client

from console.web.server import sse
from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.pages.playground import answers as playground_answers
from endpoints.prompt.client import PromptRequest
from endpoints.prompt.token_sources import CACHED
from routing.prompts.conversation import from_json
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.fake_worker import Conversation, FakeWorker, event
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db

HOME = "/playground/endpoints/demo/"
SECRET = "ebk_a-key-nobody-may-see"
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 32},
}
DECISION = {
    "id": "d-1",
    "chosen": "demo-worker-0",
    "reason": "kv_hit",
    "predicted_cached_tokens": 32,
    "candidates": [
        {"worker": "demo-worker-0", "matched": {"gpu": 16, "l1": 8, "l2": 0}, "healthy": True},
        {"worker": "demo-worker-1", "matched": {"gpu": 40, "l1": 0, "l2": 0}, "healthy": True},
    ],
}


def lines(*events: Any) -> str:
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {line}\n\n" for line in texts)


GOOD = lines(
    {"choices": [{"delta": {"role": "assistant"}}]},
    {"choices": [{"delta": {"content": "Once <b>upon"}}]},
    {"choices": [{"delta": {"content": " a time"}}]},
    {"choices": [], "usage": USAGE},
    "[DONE]",
)


@pytest.fixture
def router() -> Iterator[Stub]:
    answers: dict[str, Any] = {
        "/v1/chat/completions": (200, GOOD),
        "/decisions/d-1": (200, DECISION),
        "/explain": (200, {"chosen": "demo-worker-1", "candidates": []}),
    }
    with http_stub(
        answers, {"x-emberline-worker": "demo-worker-0", "x-emberline-decision": "d-1"}
    ) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    made = make_endpoint()
    storage.write_console_key("demo", SECRET)
    workers = {"demo-worker-0": router.url, "demo-worker-1": "http://127.0.0.1:9"}
    return pretend_ready(made, url=router.url, admin_url=router.url, workers=workers)


def chat_request(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Tell me"}], **more}


def chat(client: Client, body: Any, name: str = "demo") -> Any:
    path = f"/playground/endpoints/{name}/chat/"
    return client.post(path, json.dumps(body), content_type="application/json")


def events(response: Any) -> list[tuple[str, dict[str, Any]]]:
    """Events sent to a page, read as by an event loop."""

    async def read(parts: AsyncIterator[bytes]) -> bytes:
        return b"".join([part async for part in parts])

    assert isinstance(response, StreamingHttpResponse)
    text = asyncio.run(read(aiter(response))).decode()
    found = []
    for block in text.strip().split("\n\n"):
        if not block.startswith("event: "):
            continue
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def sent(router: Stub, path: str = "/v1/chat/completions") -> dict[str, Any]:
    return next(json.loads(body) for _, where, body in router.seen if where == path)


def test_miss_is_explained_below_the_response(demo_endpoint: Endpoint, router: Stub) -> None:
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}}
    body = lines({"choices": [{"delta": {"content": "Once"}}]}, {"choices": [], "usage": usage})
    router.answers["/v1/chat/completions"] = (200, body)
    missed = {**DECISION, "misses": {"causes": {"evicted_device": 32}}}
    router.answers["/decisions/d-1"] = (200, missed)
    done = events(chat(browser("operator"), chat_request()))[-1][1]
    assert done["miss"].startswith("Evicted from device memory: 32 of 40 prompt tokens.")
    assert "data-miss" in done["html"] and "Explain cache miss" in done["html"]
    cold = events(chat(browser("operator"), chat_request(cold=True)))[-1][1]
    assert cold["miss"] == "", "every prompt token is computed on purpose"


def test_response_is_streamed_and_ends_with_its_measurements(demo_endpoint: Endpoint) -> None:
    answer = chat(
        browser("operator"), chat_request(parameters={"max_tokens": 5, "temperature": 0.5})
    )
    (first, head), *pieces, (last, done) = events(answer)
    assert (first, head["worker"]) == ("head", "demo-worker-0")
    assert [data["text"] for kind, data in pieces if kind == "piece"] == ["Once <b>upon", " a time"]
    assert last == "done"
    assert done["tokens"] == {
        "prompt": 40,
        "device": 16,
        "l1": 8,
        "l2": 0,
        "cache": 8,
        "computed": 8,
        "measured": False,
    }
    assert (done["reason"], done["error"]) == ("kv_hit", "")
    assert done["explain_url"] == "/routing/endpoints/demo/decisions/d-1/"
    assert done["miss"] == "", "32 of 40 tokens were cached"
    assert "KV cache match" in done["html"]
    assert "data-miss" not in done["html"]
    assert SECRET not in json.dumps(done)


@pytest.mark.parametrize(
    ("growth", "tokens"),
    [
        # By the KV index 16 tokens were on the device; the worker's counters have the last word.
        ({"device": 8, "host": 16, "disk": 8}, {"device": 8, "l1": 16, "l2": 8, "measured": True}),
        # Another request was served at the same time: as in the KV index.
        ({"device": 40}, {"device": 16, "l1": 8, "cache": 8, "measured": False}),
    ],
)
def test_tiers_of_the_cached_tokens_are_the_workers_counts(
    demo_endpoint: Endpoint, router: Stub, growth: dict[str, int], tokens: dict[str, Any]
) -> None:
    def metrics(_path: str, _body: bytes) -> tuple[int, str]:
        served = any(path == "/v1/chat/completions" for _, path, _ in router.seen)
        counts = {source: 100 + served * count for source, count in growth.items()}
        rows = [f'{CACHED}{{source="{source}"}} {count}' for source, count in counts.items()]
        return 200, "\n".join(rows)

    router.answers["/metrics"] = metrics
    done = events(chat(browser("operator"), chat_request()))[-1][1]
    assert done["tokens"] == {"prompt": 40, "l2": 0, "cache": 0, "computed": 8} | tokens


def test_explain_is_shown_beside_the_conversation(demo_endpoint: Endpoint) -> None:
    client = browser("operator")
    assert 'id="explain-body"' in client.get(HOME).text
    done = events(chat(client, chat_request()))[-1][1]
    assert f'hx-get="{done["explain_url"]}" hx-target="#explain-body"' in done["html"]
    part = client.get(done["explain_url"], headers={"HX-Request": "true"}).text
    assert "Compared workers" in part and "<html" not in part
    assert "<html" in client.get(done["explain_url"]).text


def test_request_has_the_submitted_fields(demo_endpoint: Endpoint, router: Stub) -> None:
    body = chat_request(parameters={"max_tokens": 5, "seed": 3}, stop=["END"], session="me")
    events(chat(browser("operator"), body))
    got = sent(router)
    assert got["messages"] == body["messages"]
    assert (got["max_tokens"], got["seed"], got["stop"]) == (5, 3, ["END"])
    assert "cache_salt" not in got


def test_cold_requests_have_a_new_salt_each_time(demo_endpoint: Endpoint, router: Stub) -> None:
    for _ in range(2):
        events(chat(browser("operator"), chat_request(cold=True)))
    salts = {json.loads(b)["cache_salt"] for _, p, b in router.seen if p == "/v1/chat/completions"}
    assert len(salts) == 2


def test_other_strategy_is_dry_run_first_and_its_worker_pinned(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    done = events(chat(browser("operator"), chat_request(route="roundrobin")))[-1][1]
    assert [p for _, p, _ in router.seen if p != "/metrics"][:2] == [
        "/explain?strategy=roundrobin&key=console",
        "/v1/chat/completions",
    ]
    pins = [headers.get("x-emberline-pin") for headers in router.headers]
    assert [pin for pin in pins if pin] == ["demo-worker-1"]
    assert "routed as roundrobin" in done["html"]
    router.answers["/explain"] = (400, {"error": {"message": "It has no prefix memory."}})
    refused = chat(browser("operator"), chat_request(route="kvaware"))
    assert refused.status_code == 400
    assert "has no prefix memory" in refused.json()["detail"]


def test_viewer_sees_the_page_and_cannot_send(demo_endpoint: Endpoint, router: Stub) -> None:
    page = browser("viewer").get(HOME)
    assert "requires the operator role" in page.text
    assert SECRET not in page.text
    assert chat(browser("viewer"), chat_request()).status_code == 403
    assert browser("viewer").post(HOME, {"message": "hi"}).status_code == 403
    assert router.seen == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], ""),
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages.0"),
        ({"messages": [{"role": "user", "content": " "}]}, "message"),
        ({"messages": [{"role": "user", "content": "x" * 400_001}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}] * 201}, "messages"),
        (chat_request(parameters={"max_tokens": 0}), "max_tokens"),
        (chat_request(parameters={"max_tokens": 1.5}), "max_tokens"),
        (chat_request(parameters={"temperature": "hot"}), "temperature"),
        (chat_request(parameters={"temperature": float("nan")}), "temperature"),
        (chat_request(parameters={"logit_bias": {}}), "logit_bias"),
        (chat_request(parameters=[1]), "parameters"),
        (chat_request(stop=["a"] * 5), "stop"),
        (chat_request(worker="a\r\nx: y"), "worker"),
        (chat_request(route="sideways"), "route"),
        (chat_request(api=["chat"]), "api"),
        (chat_request(model="other"), "model"),
    ],
)
def test_invalid_requests_are_rejected_with_their_field(
    demo_endpoint: Endpoint, router: Stub, body: Any, field: str
) -> None:
    answer = chat(browser("operator"), body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert answer.json()["remedy"]
    assert router.seen == []


def test_router_rejection_is_shown_as_the_response(demo_endpoint: Endpoint, router: Stub) -> None:
    router.answers["/v1/chat/completions"] = (
        400,
        {"error": {"message": "no chat template", "code": "bad_request"}},
    )
    ((kind, done),) = events(chat(browser("operator"), chat_request()))
    assert kind == "done"
    assert "no chat template" in done["error"]
    assert "no chat template" in done["html"]


def test_number_of_concurrent_responses_is_bounded(
    demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "PLACES", 0)
    answer = chat(browser("operator"), chat_request())
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_watchers")


async def test_client_disconnect_closes_the_router_connection() -> None:
    async with FakeWorker() as worker:
        worker.script = _for_ever
        ask = PromptRequest(
            worker.url, SECRET, "demo", "", messages=({"role": "user", "content": "x"},)
        )
        source: Any = playground_answers.events(
            Endpoint(name="demo"),
            ask,
            from_json(chat_request()),
            playground_answers.WorkerCounters({}),
        )
        async with aclosing(source) as reported:
            assert [(await anext(reported)).event for _ in range(2)] == ["head", "piece"]
            assert worker.cancelled == []
        await worker.until(lambda: len(worker.cancelled) == 1)


async def _for_ever(talk: Conversation) -> None:
    await talk.stream_head()
    await talk.chunk(event("word"))
    await asyncio.Event().wait()


def test_single_message_is_answered_without_a_script(demo_endpoint: Endpoint, router: Stub) -> None:
    form = {"message": "Tell me", "system": "Be brief", "max_tokens": "7", "api": "chat"}
    page = browser("operator").post(HOME, form)
    assert "Once &lt;b&gt;upon a time" in page.text
    assert "Explain" in page.text
    assert 'value="7"' in page.text
    assert [one["role"] for one in sent(router)["messages"]] == ["system", "user"]
    bad = browser("operator").post(HOME, {**form, "max_tokens": "many"})
    assert bad.status_code == 400
    assert "max_tokens:" in bad.text
    assert "Tell me" in bad.text, "what was typed is kept"


def test_code_example_equals_the_request_and_has_no_key(
    demo_endpoint: Endpoint, router: Stub
) -> None:
    body = json.dumps(chat_request(parameters={"top_k": 4}))
    page = browser("viewer").post(f"{HOME}code/", body, content_type="application/json")
    for shown in ("curl -N", "OpenAI(", "fetch(", "EMBERLINE_API_KEY", "top_k"):
        assert shown in page.text
    assert SECRET not in page.text
    assert router.seen == []


def test_pages_without_an_address_or_an_endpoint() -> None:
    assert "No endpoints" in browser("operator").get("/playground/").text
    make_endpoint()
    assert browser("operator").get("/playground/")["Location"] == HOME
    assert "has no URL yet" in browser("operator").get(HOME).text
    refused = chat(browser("operator"), chat_request())
    assert (refused.status_code, refused.json()["field"]) == (409, "endpoint")
    assert chat(browser("operator"), chat_request(), "nope").status_code == 404


def test_the_playground_opens_the_last_used_or_a_ready_endpoint(demo_endpoint: Endpoint) -> None:
    make_endpoint("another")
    client = browser("operator")
    assert client.get("/playground/")["Location"] == HOME, "the Ready one, not the first"
    other = "/playground/endpoints/another/"
    assert client.get("/playground/?endpoint=another")["Location"] == other
    client.get(other)
    assert client.get("/playground/")["Location"] == other
    assert client.get("/playground/?endpoint=nope").status_code == 404


def test_the_list_of_endpoints_reads_no_specs(
    demo_endpoint: Endpoint, django_assert_max_num_queries: Any
) -> None:
    make_endpoint("other")
    client = browser("operator")
    with django_assert_max_num_queries(12) as seen:
        page = client.get(HOME)
    assert "<option selected>demo</option><option>other</option>" in page.text
    listed = [one["sql"] for one in seen if '"name" ASC' in one["sql"] and "phase" in one["sql"]]
    assert [sql for sql in listed if '"endpoints_endpoint"."spec",' in sql] == []
    assert listed


def test_a_response_has_a_row_for_the_table_of_runs(demo_endpoint: Endpoint) -> None:
    row = events(chat(browser("operator"), chat_request(cold=True)))[-1][1]["row"]
    for shown in ("demo-worker-0", "KV cache match", "device", "L1", "computed", "Explain"):
        assert shown in row
    assert row.count("<tr>") == 1


def test_two_strategies_are_compared_side_by_side(demo_endpoint: Endpoint) -> None:
    make_endpoint("other")
    client = browser("operator")
    assert 'name="with" value="demo"' in client.get(HOME).text, "no other endpoint is Ready"
    page = client.get(f"{HOME}?with=other")
    assert page.text.count("data-pane=") == 2
    assert client.get(f"{HOME}?with=nope").text.count("data-pane=") == 1
    found = client.get("/playground/?endpoint=demo&with=other")
    assert found["Location"] == f"{HOME}?with=other"
