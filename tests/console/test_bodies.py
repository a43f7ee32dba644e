"""How much of a body is read, by whoever sends it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.web.bodies import limited


async def ask(sizes: list[int], *headers: tuple[bytes, bytes]) -> tuple[list[dict[str, Any]], int]:
    """What was answered to chunks of these sizes, and how many of them were taken."""
    taken, sent = 0, []

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        more = taken < len(sizes)
        return {"type": "http.request", "body": b"x" * sizes[taken - 1], "more_body": more}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await limited(application, most=10)({"type": "http", "headers": headers}, receive, send)
    return sent, taken


@pytest.mark.parametrize("sizes", [[0], [10], [4, 4, 2]])
async def test_what_fits_is_read(sizes: list[int]) -> None:
    sent, taken = await ask(sizes, (b"content-length", str(sum(sizes)).encode()))
    assert [one["status"] for one in sent] == [200]
    assert taken == len(sizes)


async def test_what_says_it_is_too_long_is_not_read_at_all() -> None:
    sent, taken = await ask([11], (b"Content-Length", b"11"))
    assert (sent[0]["status"], taken) == (413, 0)
    assert json.loads(sent[1]["body"])["code"] == "too_large"


async def test_what_does_not_say_so_is_cut_off() -> None:
    sent, taken = await ask([6, 6, 6, 6])
    assert ([one.get("status") for one in sent], taken) == ([413, None], 2)


async def test_what_is_no_request_passes() -> None:
    seen = []

    async def application(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        raise AssertionError("neither is asked for")

    await limited(application)({"type": "lifespan"}, nothing, nothing)
    assert seen == ["lifespan"]
