"""Watches over broken streams and without streams, until deletion or deadline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from console.client import Client, TimedOut
from console.client.watch import Watch, WatchEvent, parse_events
from tests.console.client.test_client import URL, no, ok


class Broken(httpx.SyncByteStream):
    def __init__(self, text: str, error: Exception | None) -> None:
        self.text, self.error = text, error

    def __iter__(self) -> Iterator[bytes]:
        yield self.text.encode()
        if self.error:
            raise self.error


def stream(*found: tuple[str, Any], error: Exception | None = None, end: str = "") -> Any:
    text = "retry: 2000\n\n: hello\n\n" + "".join(
        f"id: {number}\nevent: status\ndata: {json.dumps(data)}\n\n" for number, data in found
    )
    headers = {"Content-Type": "text/event-stream"}
    return lambda _request: httpx.Response(200, headers=headers, stream=Broken(text + end, error))


GONE = "event: gone\ndata: {}\n\n"


def watched(*replies: Any, timeout_s: float | None = None) -> tuple[Watch, list[httpx.Request]]:
    seen: list[httpx.Request] = []
    left = list(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        reply = left.pop(0) if len(left) > 1 else left[0]
        found: httpx.Response = reply(request)
        return found

    client = Client(URL, "t", transport=httpx.MockTransport(answer))
    client.pause = lambda _s: None
    return Watch(client, ("endpoints", "demo"), timeout_s), seen


def test_states_come_from_the_stream_until_deletion() -> None:
    watch, seen = watched(stream(("1", {"phase": "Pending"}), ("2", {"phase": "Ready"}), end=GONE))
    assert [one["phase"] for one in watch] == ["Pending", "Ready"]
    assert (len(seen), watch.fallback) == (1, "")
    assert seen[0].url.params["watch"] == "true"
    assert seen[0].headers["Accept"] == "text/event-stream"


@pytest.mark.parametrize("error", [None, httpx.ReadError("cut"), httpx.ReadTimeout("silent")])
def test_ended_stream_is_resumed(error: Exception | None) -> None:
    back = ok({}) if error else None  # a reachability check follows a broken stream
    replies = [stream(("7", {"n": 1}), error=error), back, stream(("8", {"n": 2}), end=GONE)]
    watch, seen = watched(*(one for one in replies if one is not None))
    assert [one["n"] for one in watch] == [1, 2]
    assert seen[-1].headers["Last-Event-ID"] == "7"


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (ok({"n": 0}), "no such stream"),
        (no(400, {"code": "unknown_parameter", "detail": "?"}), "unknown_parameter"),
        (no(429, {"code": "too_many_watchers", "detail": "?"}), "too_many_watchers"),
    ],
)
def test_without_a_stream_the_client_polls_and_states_why(first: Any, why: str) -> None:
    watch, seen = watched(
        first, ok({"n": 1}, ETag='"1"'), no(304, None), ok({"n": 1}), ok({"n": 2}), no(404)
    )
    assert [one["n"] for one in watch] == [1, 2]
    assert why in watch.fallback
    assert seen[2].headers["If-None-Match"] == '"1"'


def test_timeout_applies_to_stream_and_polling() -> None:
    for reply in (stream(("1", {"n": 1})), ok({"n": 1})):
        watch, _ = watched(reply, timeout_s=0.05)
        with pytest.raises(TimedOut, match=r"Not within 0\.05 s"):
            list(watch)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_end_as_in_the_standard_at_any_split(end: str, size: int) -> None:
    text = f'id: 1{end}data: {{"a":"x\u2028y\x85z\x0b"}}{end}{end}data: two{end}{end}'.encode()

    class Cut(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from (text[at : at + size] for at in range(0, len(text), size))
            yield b"x"

    found = list(parse_events(httpx.Response(200, stream=Cut())))
    assert [(one.id, one.data) for one in found] == [
        ("1", '{"a":"x\u2028y\x85z\x0b"}'),
        ("", "two"),
    ]


def test_events_are_parsed_as_in_browsers() -> None:
    text = "data: a\ndata:b\nid: 1\n\n: beat\n\nevent: x\ndata: {}\n\nid: 2\n\nnonsense\n\n"
    answer = httpx.Response(200, text=text)
    assert list(parse_events(answer)) == [
        WatchEvent(id="1", data="a\nb"),
        WatchEvent(name="comment"),
        WatchEvent(name="x", data="{}"),
        WatchEvent(id="2"),
    ]
