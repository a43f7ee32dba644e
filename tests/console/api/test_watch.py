"""`?watch=true` over the ASGI application, byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application

from console.accounts.models import User
from console.people import token_actions as accounts
from console.web.server import sse
from endpoints.models import Endpoint, EndpointStatus
from tests.support.console import make_endpoint, person, program
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE_S = 60.0
URL = "/api/v1/endpoints/"


class Reader:
    """One connection. `gone` is what a browser does that closes its tab."""

    def __init__(self, url: str, token: str, **headers: str) -> None:
        path, _, query = url.partition("?")
        sent = {"authorization": f"Bearer {token}", "accept": "text/event-stream", **headers}
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self._left = asyncio.Event()
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._begun = False
        self._rest = ""
        self.status = 0

    async def run(self) -> None:
        await get_asgi_application()(self._scope, self._receive, self._sent.put)

    async def _receive(self) -> dict[str, Any]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    def gone(self) -> None:
        self._left.set()

    async def chunk(self) -> str:
        message = await asyncio.wait_for(self._sent.get(), DEADLINE_S)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return await self.chunk()
        return str(message.get("body", b"").decode())

    async def event(self) -> dict[str, str]:
        """The next one that is no comment."""
        while True:
            text = await self.chunk()
            fields = dict(line.split(": ", 1) for line in text.strip().splitlines() if line)
            if "data" in fields:
                return fields


@asynccontextmanager
async def reading(url: str, token: str, **headers: str) -> AsyncIterator[Reader]:
    reader = Reader(url, token, **headers)
    task = asyncio.create_task(reader.run())
    try:
        yield reader
    finally:
        reader.gone()
        await asyncio.wait_for(task, DEADLINE_S)
    # The place is given back by a callback of the loop, which a busy machine may run later.
    await asyncio.to_thread(until, lambda: sse.places.taken() == 0)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """And in places of this test alone: another's client may have left a stream it did not read."""
    monkeypatch.setattr(sse, "EVERY_S", 0.02)
    monkeypatch.setattr(sse, "places", type(sse.places)())


@pytest.fixture
def token() -> str:
    make_endpoint("demo")
    return accounts.create_token(person("viewer"), "watch", "viewer")[1]


async def change(**facts: Any) -> None:
    await EndpointStatus.objects.filter(endpoint__name="demo").aupdate(**facts)


async def of(*calls: Callable[[], Any]) -> None:
    for call in calls:
        await sync_to_async(call)()


async def test_each_change_is_sent_once_as_the_json_of_a_get(token: str) -> None:
    async with reading(f"{URL}demo/?watch=true", token) as reader:
        first = await reader.event()
        assert reader.status == 200
        assert (first["event"], json.loads(first["data"])["phase"]) == ("status", "Pending")
        await change(phase="Ready")
        second = await reader.event()
        assert json.loads(second["data"])["phase"] == "Ready"
        assert second["id"] != first["id"]
    async with reading(f"{URL}demo/?watch=true", token, **{"last-event-id": second["id"]}) as again:
        await again.chunk()
        await change(phase="Paused")
        assert json.loads((await again.event())["data"])["phase"] == "Paused", "not told twice"


async def test_deletion_ends_the_stream(token: str) -> None:
    async with reading(f"{URL}demo/?watch=true", token) as reader:
        await reader.event()
        await Endpoint.objects.filter(name="demo").adelete()
        assert (await reader.event())["event"] == "gone"


async def test_list_watch_sends_added_changed_and_removed(token: str) -> None:
    async with reading(f"{URL}?watch=true", token) as reader:
        assert json.loads((await reader.event())["data"])["name"] == "demo"
        await of(lambda: make_endpoint("other"))
        assert json.loads((await reader.event())["data"])["name"] == "other"
        await change(phase="Ready")
        document = json.loads((await reader.event())["data"])
        assert (document["name"], document["phase"]) == ("demo", "Ready")
        await Endpoint.objects.filter(name="other").adelete()
        gone = await reader.event()
        assert (gone["event"], json.loads(gone["data"])) == ("gone", {"name": "other"})
    async with reading(f"{URL}?watch=true", token, **{"last-event-id": gone["id"]}) as again:
        await again.chunk()
        await change(phase="Paused")
        assert json.loads((await again.event())["data"])["phase"] == "Paused", "not told twice"


async def test_list_watch_applies_the_filter(token: str) -> None:
    async with reading(f"{URL}?watch=true&phase=Ready", token) as reader:
        await reader.chunk()
        await change(phase="Ready")
        assert json.loads((await reader.event())["data"])["name"] == "demo"
        await change(phase="Failed")
        assert (await reader.event())["event"] == "gone"


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        (f"{URL}none/?watch=true", 404, "not_found"),
        (f"{URL}demo/?watch=yes", 400, "invalid_parameter"),
        (f"{URL}demo/events/?watch=true", 400, "unknown_parameter"),
    ],
)
async def test_errors_of_a_watch_are_json(token: str, url: str, status: int, code: str) -> None:
    async with reading(url, token, accept="application/json") as reader:
        body = json.loads(await reader.chunk())
        assert (reader.status, body["code"]) == (status, code)


@pytest.mark.parametrize("url", [f"{URL}demo/", "/api/v1/cache-tiers/west/"])
async def test_revoked_permission_ends_the_stream(
    token: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch itself notices, before the next check of the role."""
    monkeypatch.setattr(sse, "ACCESS_S", 600.0)
    await of(lambda: program("admin").post("/api/v1/cache-tiers/", {"name": "west"}))
    async with reading(f"{url}?watch=true", token) as reader:
        await reader.event()
        await User.objects.filter(username="one-viewer").aupdate(role="member")
        assert (await reader.event())["event"] == "gone"


async def test_revoked_token_ends_the_stream(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_S", 600.0)
    async with reading(f"{URL}demo/?watch=true", token) as reader:
        await reader.event()
        user = await User.objects.aget(username="one-viewer")
        await of(lambda: user.tokens.all().delete())
        assert await reader.chunk() == "", "the end, before any heartbeat"


async def test_tiers_and_clusters_are_watched_alike(token: str) -> None:
    def make() -> None:
        admin = program("admin")
        admin.post("/api/v1/cache-tiers/", {"name": "west"})
        admin.post("/api/v1/clusters/", {"name": "west", "kind": "in-cluster", "reach": "pods"})

    await of(make)
    for url in ("/api/v1/cache-tiers/", "/api/v1/clusters/"):
        for watched in (f"{url}?watch=true", f"{url}west/?watch=true"):
            async with reading(watched, token) as reader:
                assert json.loads((await reader.event())["data"])["name"] == "west"
