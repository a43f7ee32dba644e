"""Log streams across reconnects, with and without markers: each line once."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from console.client import Client, Unreachable
from console.client.logs import read_log
from tests.console.client.test_client import URL, ok
from tests.console.client.test_watch import Broken


class Over(Exception):
    """Ends the stream from the test."""


def stream(*lines: tuple[str, str], end: str = "", error: Exception | None = None) -> Any:
    text = "".join(f"id: {mark}\ndata: {json.dumps(line)}\n\n" for mark, line in lines)
    headers = {"Content-Type": "text/event-stream"}
    return lambda _request: httpx.Response(200, headers=headers, stream=Broken(text + end, error))


def end(*lines: str, marks: bool = True) -> Any:
    of = {"worker": "w", "container": "c", "state": "ready", "others": 0, "marks": marks}
    return ok({**of, "lines": list(lines)})


def client(*replies: Any) -> tuple[Client, list[httpx.Request]]:
    seen: list[httpx.Request] = []
    left = list(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if not left:
            raise Over
        found: httpx.Response = left.pop(0)(request)
        return found

    made = Client(URL, transport=httpx.MockTransport(answer))
    made.pause = lambda _s: None
    return made, seen


@pytest.mark.parametrize("error", [None, httpx.ReadError("cut")])
def test_log_with_marks_continues_after_the_last_line(error: Exception | None) -> None:
    back = [ok({})] if error else []
    made, seen = client(
        end(),
        stream(("t1", "a"), ("t2", "b"), error=error),
        *back,
        stream(("t3", "c"), end='event: ended\ndata: ""\n\n'),
    )
    of, lines = read_log(made, "demo", follow=True)
    assert (of["worker"], list(lines)) == ("w", ["a", "b", "c"])
    assert seen[-1].headers["Last-Event-ID"] == "t2"
    assert seen[-1].url.params["container"] == "c", "the same log, whichever is the first by then"


def test_platform_without_continuation_is_reported() -> None:
    made, _ = client(end(), stream(end='event: problem\ndata: "It is away."\n\n'))
    with pytest.raises(Unreachable, match="It is away"):
        list(read_log(made, "demo", follow=True)[1])


def test_log_without_marks_is_continued_by_its_last_lines() -> None:
    made, _ = client(
        end(marks=False),
        end("a", "b", marks=False),
        end("x", "a", "b", "c", marks=False),
        end("x", "a", "b", "c", marks=False),
        end("b", "c", "d", marks=False),
        end("quite", "another", marks=False),
    )
    received: list[str] = []
    with pytest.raises(Over):
        received.extend(read_log(made, "demo", follow=True)[1])
    assert received == ["a", "b", "c", "d", "quite", "another"]


def test_tail_of_a_log_is_one_request() -> None:
    made, seen = client(end("a", "b"))
    assert list(read_log(made, "demo", "w", tail=2)[1]) == ["a", "b"]
    assert dict(seen[0].url.params) == {"worker": "w", "tail": "2"}
