"""Retries, links in responses, and the exception for each error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from console import client as api
from console.client import Client, errors
from console.client.client import MAX_TRIES

URL = "https://console.example"
Reply = httpx.Response | Exception | Callable[[httpx.Request], httpx.Response]
OURS = {"code": "router_away", "detail": "The router is silent.", "errors": []}


class Wire:
    """Returns the responses in order, then repeats the last one."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[httpx.Request] = []
        self.pauses: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    def client(self, token: str = "emb_secret") -> Client:
        made = Client(URL, token, transport=httpx.MockTransport(self))
        made.pause = self.pauses.append
        return made


def ok(body: Any = None, **headers: str) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _request: httpx.Response(200, json=body, headers=headers)


def proxy(status: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _request: httpx.Response(status, text="<h1>Bad gateway</h1>")


def no(status: int, body: Any = OURS, **headers: str) -> Callable[[httpx.Request], httpx.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _request: httpx.Response(status, json=body, headers=named)


LOST = httpx.ReadError("the line is cut")
NOBODY = httpx.ConnectError("refused")


@pytest.mark.parametrize("first", [LOST, NOBODY, proxy(502), proxy(503), proxy(504)])
def test_failed_read_is_retried(first: Reply) -> None:
    wire = Wire(first, first, ok({"name": "demo"}))
    assert wire.client().get("endpoints", "demo")["name"] == "demo"
    assert len(wire.seen) == 3
    assert wire.pauses == [0.25, 0.5]


def test_silent_server_is_unreachable() -> None:
    wire = Wire(LOST)
    with pytest.raises(api.Unreachable, match=r"console.example does not respond: the line is cut"):
        wire.client().get("endpoints", "demo")
    assert len(wire.seen) == MAX_TRIES


@pytest.mark.parametrize("first", [LOST, httpx.ReadTimeout("late"), proxy(502)])
def test_change_that_may_have_been_applied_is_not_retried(first: Reply) -> None:
    wire = Wire(first, ok({}))
    with pytest.raises(errors.EmberlineError):
        wire.client().post("endpoints", "demo", "scale", data={"replicas": 2})
    assert len(wire.seen) == 1


def test_change_that_was_never_sent_is_retried() -> None:
    wire = Wire(NOBODY, ok({}))
    wire.client().post("endpoints", "demo", "scale", data={"replicas": 2})
    assert len(wire.seen) == 2


def test_create_is_retried_under_the_same_key() -> None:
    wire = Wire(LOST, proxy(502), ok({"name": "demo"}))
    client = wire.client()
    client.post("endpoints", data={"name": "demo"}, once=True)
    keys = {request.headers["Idempotency-Key"] for request in wire.seen}
    assert (len(wire.seen), len(keys)) == (3, 1)
    client.post("endpoints", data={"name": "demo"}, once=True)
    assert wire.seen[-1].headers["Idempotency-Key"] not in keys


def test_create_that_conflicts_with_its_first_attempt_is_retried() -> None:
    busy = {"code": "idempotency_key_busy", "detail": "It has just ended."}
    wire = Wire(no(409, busy), ok({"name": "demo"}))
    wire.client().post("endpoints", data={"name": "demo"}, once=True)
    assert len(wire.seen) == 2
    with pytest.raises(api.Conflict):
        Wire(no(409, {"code": "taken", "detail": "x"})).client().post(
            "endpoints", data={}, once=True
        )


def test_console_error_is_not_retried() -> None:
    wire = Wire(no(503))
    with pytest.raises(api.ServerFailed) as caught:
        wire.client().get("endpoints", "demo", "decisions")
    assert (caught.value.code, len(wire.seen)) == ("router_away", 1)


def test_throttling_is_awaited_up_to_a_limit() -> None:
    throttled = {"code": "throttled", "detail": "Slowly."}
    wire = Wire(no(429, throttled, Retry_After="3"), ok({}))
    wire.client().post("endpoints", "demo", "scale", data={"replicas": 2})
    assert wire.pauses == [3.0]
    wire = Wire(no(429, throttled, Retry_After="3600"))
    with pytest.raises(api.Throttled):
        wire.client().get("endpoints", "demo")
    assert wire.pauses == []


def test_list_is_paged_at_the_console_address() -> None:
    elsewhere = "https://evil.example/api/v1/endpoints/?cursor=two%3D&page_size=1"
    wire = Wire(
        ok({"next": elsewhere, "results": [{"name": "a"}]}),
        ok({"next": None, "results": [{"name": "b"}]}),
    )
    found = list(wire.client().pages("endpoints", phase="Ready"))
    assert [one["name"] for one in found] == ["a", "b"]
    assert {request.url.host for request in wire.seen} == {"console.example"}
    assert dict(wire.seen[1].url.params) == {"cursor": "two=", "page_size": "1"}


def test_redirect_is_reported_and_not_followed() -> None:
    wire = Wire(httpx.Response(302, headers={"Location": "https://evil.example/"}))
    with pytest.raises(api.Unreachable, match=r"redirects to https://evil\.example/"):
        wire.client().get("me")
    assert len(wire.seen) == 1


def test_other_server_is_reported_as_no_console() -> None:
    with pytest.raises(api.Unreachable, match="is not an Emberline console"):
        Wire(httpx.Response(200, text="<html>hello</html>")).client().get("me")


def test_endless_response_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.client.client.MAX_BYTES", 100)
    with pytest.raises(api.Unreachable, match="exceeds"):
        Wire(ok({"x": "y" * 200})).client().get("me")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, api.Refused),
        (401, api.NotAllowed),
        (403, api.NotAllowed),
        (404, api.NotFound),
        (409, api.Conflict),
        (412, api.Stale),
        (413, api.Refused),
        (422, api.Refused),
        (500, api.ServerFailed),
    ],
)
def test_each_error_is_an_exception_with_its_details(status: int, kind: type[api.ApiError]) -> None:
    item = {"code": "low", "detail": "Too low.", "field": "replicas", "value": -1, "remedy": "Add."}
    other = {**item, "field": "model", "value": None}
    body = {**item, "errors": [item, other], "request_id": "r-1"}
    with pytest.raises(kind) as caught:
        Wire(no(status, body)).client().post("endpoints", "demo", "scale", data={"replicas": -1})
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.field, error.value, error.remedy) == ("low", "replicas", -1, "Add.")
    assert str(error) == "replicas: -1 was rejected. Too low. Add.\nmodel: Too low. Add."
    assert error.request_id == "r-1"


def test_server_error_names_its_request() -> None:
    answer = httpx.Response(500, text="<h1>Oops</h1>", headers={"X-Request-ID": "abc"})
    with pytest.raises(api.ServerFailed, match="answered 500") as caught:
        Wire(answer).client().post("endpoints", "demo", "scale", data={"replicas": 1})
    assert caught.value.request_id == "abc"


def test_name_cannot_escape_its_path() -> None:
    wire = Wire(ok({}))
    wire.client().get("endpoints", "../../me?x=1#y")
    assert wire.seen[0].url.raw_path == b"/api/v1/endpoints/..%2F..%2Fme%3Fx%3D1%23y/"
    wire = Wire(ok({}))
    for name in ("", ".", ".."):
        with pytest.raises(api.NotFound, match="No object is named"):
            wire.client().delete("endpoints", "demo", "keys", name)
    assert wire.seen == []


@pytest.mark.parametrize("url", ["", "console", "ftp://x", "https://a:b@c", "http://x:99999", "//"])
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(api.Unreachable, match="is not a valid address"):
        Client(url)


@pytest.mark.parametrize("url", [URL, URL + "/", URL + "/api/v1/", URL + "/api/v1"])
def test_url_may_be_copied_from_the_browser(url: str) -> None:
    assert Client(url).url == URL


def test_console_may_be_served_below_a_path() -> None:
    wire = Wire(ok({}))
    with Client(URL + "/inference", "t", transport=httpx.MockTransport(wire)) as client:
        client.get("me")
    assert wire.seen[0].url.path == "/inference/api/v1/me/"


def test_token_is_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(NOBODY)
    client = wire.client("emb_secret")
    with caplog.at_level("DEBUG"), pytest.raises(api.Unreachable) as caught:
        client.get("me")
    error = caught.value
    text = f"{error!r} {error.__cause__!r} {client!r} {vars(client)!r} {caplog.text}"
    assert "emb_secret" not in text


def test_ca_file_is_read_at_once(tmp_path: Any) -> None:
    with pytest.raises(api.Unreachable, match="contains no readable certificate"):
        Client(URL, ca_file=str(tmp_path / "none.pem"))
