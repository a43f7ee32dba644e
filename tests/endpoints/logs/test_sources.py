"""Followed container logs: offered sources, repeated lines, and end."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import User
from console.provisioners.base import PermanentError
from endpoints.logs import sources
from endpoints.logs import stream as logs_stream
from endpoints.logs.sources import Container, LogLine, LogSource, overlap
from endpoints.models import Endpoint, EndpointStatus
from endpoints.placement import provisioner
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.waiting import until

POD = {
    "workload": "demo-router",
    "name": "demo-router-x",
    "state": "ready",
    "containers": ["router", "wait"],
    "node": "",
    "reason": "",
    "message": "",
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    found = PaperCluster()
    monkeypatch.setattr(provisioner.clusters, "provisioner", lambda *_: found)
    return found


@pytest.fixture
def reconciler_harness(cluster: PaperCluster) -> ReconcilerHarness:
    return ReconcilerHarness(cluster)


def parse_events(raw: bytes) -> list[dict[str, str]]:
    """The events of an answer, as a browser reads them."""
    found = []
    for block in raw.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "data" in fields:
            found.append({**fields, "data": json.loads(fields["data"])})
    return found


async def read(lines: logs_stream.Lines, seconds: float = 20.0) -> bytes:
    return b"".join([part async for part in logs_stream.stream(lines, seconds)])


# --- which ones ---------------------------------------------------------------------------------


@pytest.mark.django_db
def test_every_container_of_workers_and_components_is_listed(
    reconciler_harness: ReconcilerHarness, placed: Endpoint, alice: User
) -> None:
    reconciler_harness.until(placed, "Ready")
    EndpointStatus.objects.filter(pk=placed.pk).update(pods=[POD])
    client = Client()
    client.force_login(alice)
    page = client.get("/endpoints/demo/logs/").content.decode()
    worker = placed.replicas.order_by("index").first()
    assert worker is not None
    for replica, container in (
        (worker.name, "worker"),
        (worker.name, "fetch"),
        (POD["name"], "router"),
        (POD["name"], "wait"),
    ):
        assert f"?replica={replica}&amp;container={container}" in page
    assert (
        client.get("/endpoints/demo/logs/?replica=demo-router-x&container=wait").status_code == 200
    )
    assert client.get("/endpoints/demo/logs/?replica=stranger").status_code == 404
    assert client.get("/endpoints/demo/logs/?replica=demo-router-x&container=x").status_code == 404


@pytest.mark.django_db
def test_logs_need_the_operator_role(placed: Endpoint, charlie: User) -> None:
    client = Client()
    client.force_login(charlie)
    for path in ("/endpoints/demo/logs/", "/endpoints/demo/logs/lines/"):
        assert client.get(path).status_code == 403
    assert client.get("/api/v1/endpoints/demo/logs/").status_code == 403


@pytest.mark.django_db
def test_by_rest(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, placed: Endpoint, alice: User
) -> None:
    client = Client()
    client.force_login(alice)
    assert client.get("/endpoints/demo/logs/").status_code == 200, "nothing runs yet"
    assert client.get("/endpoints/demo/logs/lines/").status_code == 404
    reconciler_harness.until(placed, "Ready")
    found = client.get("/api/v1/endpoints/demo/logs/?tail=5").json()
    assert set(found) == set(placed.replicas.values_list("name", flat=True))
    assert all(text.startswith("log of") for text in found.values())
    for tail in ("0", "2001", "x", "9" * 30):
        assert client.get(f"/api/v1/endpoints/demo/logs/?tail={tail}").status_code == 400
    cluster.away = True
    away = client.get("/api/v1/endpoints/demo/logs/")
    assert (away.status_code, away.json()["code"]) == (503, "ClusterUnreachable")


# --- lines --------------------------------------------------------------------------------------


def test_seen_lines_are_not_repeated() -> None:
    """A cluster only counts whole seconds, and leaves out zeros at a fraction's end."""

    class Cluster(PaperCluster):
        requested = 0.0

        def follow(
            self, ref: Any, replica: str, container: str, since: float = 0, **_more: Any
        ) -> Iterator[str]:
            Cluster.since_s = since
            yield "2026-01-01T00:00:01Z one"
            yield "2026-01-01T00:00:01.5Z two"
            yield "2026-01-01T00:00:01.50001Z three  with  spaces"

    source = LogSource(Cluster(), Container("w", "p", "c", "ready"))
    every = list(source.lines("", threading.Event()))
    assert [line.text for line in every] == ["one", "two", "three  with  spaces"]
    after = list(source.lines("2026-01-01T00:00:01.5Z", threading.Event()))
    assert [line.text for line in after] == ["three  with  spaces"]
    assert int(Cluster.since_s) == 1767225601


@pytest.mark.parametrize(
    ("before", "now", "known"),
    [
        ([], ["a"], 0),
        (["a", "b"], ["a", "b", "c"], 2),
        (["a", "b"], ["b", "c"], 1),
        (["a", "b"], ["c"], 0),
        (["a", "a"], ["a", "a", "a"], 2),
        (["a"], [], 0),
    ],
)
def test_new_end_of_a_log(before: list[str], now: list[str], known: int) -> None:
    assert overlap(before, now) == known


def test_local_log_end_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "LOOK_S", 0.01)
    texts = iter(["a\nb\n", "a\nb\n", "b\nc\n", "other\n"])
    stop = threading.Event()

    class Local:
        name, rolls, announces = "local", False, False

        def logs(self, _ref: Any, _tail: int) -> dict[str, str]:
            text = next(texts, "")
            if not text:
                stop.set()
            return {"demo-worker-0": text}

    at = Container("demo-worker", "demo-worker-0", "process", "ready")
    found = list(LogSource(Local(), at).lines("", stop))
    assert [(line.text, line.anew) for line in found] == [
        ("a", True),
        ("b", False),
        ("c", False),
        ("other", True),
    ]


# --- the stream ---------------------------------------------------------------------------------


async def test_events_contain_complete_lines_and_a_mark() -> None:
    lines = [LogLine("a\rb: {x}", "2026-01-01T00:00:01Z"), LogLine("", anew=True)]
    found = parse_events(await read(lambda _stop: iter(lines)))
    assert found == [
        {"id": "2026-01-01T00:00:01Z", "data": "a\rb: {x}"},
        {"event": "anew", "data": ""},
    ]


async def test_response_ends_although_the_log_continues() -> None:
    stopped = threading.Event()

    def endless(stop: threading.Event) -> Iterator[LogLine]:
        yield LogLine("first")
        if stop.wait(60):
            stopped.set()
        yield LogLine("never told")

    found = parse_events(await read(endless, seconds=0.2))
    assert [event["data"] for event in found] == ["first"]
    await asyncio.to_thread(until, stopped.is_set)


async def test_disconnected_reader_ends_the_thread() -> None:
    ended = threading.Event()

    def flood(_stop: threading.Event) -> Iterator[LogLine]:
        try:
            while True:
                yield LogLine("x" * 100)
        finally:
            ended.set()

    stream = logs_stream.stream(flood)
    for _ in range(3):
        await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(until, ended.is_set)


async def test_errors_are_shown_in_place_of_the_log() -> None:
    def broken(_stop: threading.Event) -> Iterator[LogLine]:
        yield LogLine("one")
        raise PermanentError("ClusterRefused", "pods/log may not be read.")

    found = parse_events(await read(broken))
    assert found[-1] == {"event": "problem", "data": "pods/log may not be read."}


async def test_number_of_followed_logs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_stream, "_free", threading.BoundedSemaphore(1))

    def waiting(stop: threading.Event) -> Iterator[LogLine]:
        yield LogLine("mine")
        stop.wait(30)

    first = logs_stream.stream(waiting)
    await anext(first)
    await anext(first)
    found = parse_events(await read(lambda _stop: iter([LogLine("yours")])))
    assert "log streams are already open" in found[0]["data"]
    await first.aclose()
    found = parse_events(await read(lambda _stop: iter([LogLine("yours")])))
    assert found[0]["data"] == "yours"


@pytest.mark.django_db(transaction=True)
async def test_page_continues_from_the_last_mark(
    placed: Endpoint, alice: User, cluster: PaperCluster, async_client: Any
) -> None:
    await EndpointStatus.objects.filter(pk=placed.pk).aupdate(pods=[POD])
    await async_client.aforce_login(alice)
    url = "/endpoints/demo/logs/lines/?replica=demo-router-x&container=router"
    first = await async_client.get(url)
    assert first["Content-Type"] == "text/event-stream"
    found = parse_events(b"".join([part async for part in first.streaming_content]))
    assert [event["data"][-6:] for event in found] == ["line 0", "line 1", "line 2"]
    again = await async_client.get(url, headers={"Last-Event-ID": found[1]["id"]})
    found = parse_events(b"".join([part async for part in again.streaming_content]))
    assert [event["data"][-6:] for event in found] == ["line 2"]
