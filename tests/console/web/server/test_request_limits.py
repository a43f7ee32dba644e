"""Limits of request bodies: size, sender and time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from uvicorn.config import Config

from console.web.server.request_limits import BodyLimits, limit_bodies

LIMITS = BodyLimits(anonymous=4, request=20, person=12, total=16, step=2, stall_s=30.0)


class Console:
    """The middleware around an application that reads its body, as Django does."""

    def __init__(self, limits: BodyLimits = LIMITS) -> None:
        self.reads: list[int] = []
        self.released = asyncio.Event()
        self.handled: list[str] = []
        self.application = limit_bodies(self._read, self._identify, limits)

    def _identify(self, scope: Any) -> str:
        self.handled.append(scope["who"])
        return str(scope["who"])

    async def _read(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            self.reads.append(len(message["body"]))
            more = message["more_body"]
        if scope.get("holds"):
            await self.released.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"read"})

    async def ask(
        self, sizes: list[int], who: str = "", declared: int | None = None, **more: Any
    ) -> tuple[int, dict[str, Any]]:
        """Status and facts of the answer to chunks of these sizes; -1 is a chunk that never
        comes."""
        left, sent = list(sizes), []

        async def receive() -> dict[str, Any]:
            size = left.pop(0) if left else 0
            if size < 0:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        headers = [] if declared is None else [(b"Content-Length", str(declared).encode())]
        scope = {"type": "http", "headers": headers, "path": "/api/v1/x", "who": who, **more}
        await self.application(scope, receive, send)
        text = b"".join(one.get("body", b"") for one in sent[1:])
        return sent[0]["status"], json.loads(text) if text != b"read" else {}


@pytest.mark.parametrize("sizes", [[0], [4], [2, 2]])
async def test_anonymous_form_is_read_without_a_user_query(sizes: list[int]) -> None:
    console = Console()
    assert (await console.ask(sizes))[0] == 200
    assert console.handled == []


@pytest.mark.parametrize("declared", [5, None])
async def test_anonymous_body_is_limited(declared: int | None) -> None:
    console = Console()
    status, facts = await console.ask([3, 3, 3], declared=declared)
    assert (status, facts["code"]) == (413, "too_large_without_login")
    assert "Log in" in facts["remedy"]
    assert sum(console.reads) <= LIMITS.anonymous


async def test_authenticated_body_needs_one_user_query() -> None:
    console = Console()
    assert (await console.ask([4, 4, 4], "ada"))[0] == 200
    assert console.handled == ["ada"]


@pytest.mark.parametrize("declared", [21, None])
async def test_request_size_is_bounded(declared: int | None) -> None:
    limits = BodyLimits(anonymous=4, request=20, person=99, total=99)
    status, facts = await Console(limits).ask([10, 10, 10], "ada", declared)
    assert (status, facts["code"]) == (413, "too_large")


async def test_concurrent_bytes_are_bounded_per_user_and_in_total() -> None:
    console = Console()
    first = asyncio.create_task(console.ask([4, 8], "ada", holds=True))
    while not console.reads[1:]:
        await asyncio.sleep(0)
    assert (await console.ask([4, 5], "ada"))[1]["code"] == "too_many_uploads"
    assert (await console.ask([4, 9], "bob"))[1]["code"] == "too_many_uploads"
    assert (await console.ask([4, 8], "bob"))[0] == 200
    assert (await console.ask([4], "ada"))[0] == 200, "a form is always read"
    console.released.set()
    assert (await first)[0] == 200
    assert (await console.ask([4, 12], "ada"))[0] == 200


@pytest.mark.parametrize("sizes", [[-1], [1, -1], [2, 1, -1]])
async def test_stalled_body_times_out(sizes: list[int]) -> None:
    limits = BodyLimits(anonymous=9, step=2, stall_s=0.05)
    status, facts = await Console(limits).ask(sizes)
    assert (status, facts["code"]) == (408, "body_stalled")


async def test_processing_after_the_body_has_no_deadline() -> None:
    """A stream waits for its reader to leave for as long as it likes."""
    left = asyncio.Event()

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        waiting = asyncio.create_task(receive())
        done, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not done, "cut off"
        left.set()
        assert (await waiting)["type"] == "http.disconnect"

    first = True

    async def receive() -> dict[str, Any]:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": b"", "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    limits = BodyLimits(stall_s=0.01)
    served = limit_bodies(application, lambda _scope: "", limits)
    await served({"type": "http", "headers": []}, receive, _unused)


async def test_unavailable_database_counts_as_anonymous() -> None:
    def identify(_scope: Any) -> str:
        raise OSError("away")

    console = Console()
    console.application = limit_bodies(console._read, identify, LIMITS)
    status, facts = await console.ask([9], "ada")
    assert (status, facts["code"]) == (503, "database_unavailable")


async def test_other_scopes_pass() -> None:
    seen = []

    async def application(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    served = limit_bodies(application, lambda _scope: "")
    await served({"type": "lifespan"}, _unused, _unused)
    assert seen == ["lifespan"]


async def _unused(*_: Any) -> Any:
    raise AssertionError("not to be called")


def test_uvicorn_interface_is_respected() -> None:
    config = Config(limit_bodies(Console()._read, str), log_config=None)
    config.load()
    assert config.interface == "asgi3"
