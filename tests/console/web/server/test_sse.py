"""Event streams: encoding, end and slots."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject

from console.accounts.models import User
from console.core import counters
from console.core.errors import Refused
from console.web.server import sse
from console.web.server.sse import ServerSentEvent

LONG_S = 120.0
# A stream closes old connections of its thread, where another test may have left one.
pytestmark = pytest.mark.django_db


@pytest.fixture
def request_() -> HttpRequest:
    return RequestFactory().get("/")


@pytest.fixture(autouse=True)
def no_one_streams(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Places of this test alone: another's client may have left a stream it did not read."""
    monkeypatch.setattr(sse, "places", type(sse.places)())
    yield
    assert sse.places.taken() == 0, "a place was not given back"


async def sent(answer: Any) -> list[str]:
    parts = [part.decode() async for part in answer]
    answer.close()
    return parts


async def these(*events: ServerSentEvent) -> AsyncIterator[ServerSentEvent]:
    for event in events:
        yield event


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ServerSentEvent("hi"), "data: hi\n\n"),
        (ServerSentEvent({"a": "é"}, "status", "7"), 'id: 7\nevent: status\ndata: {"a":"é"}\n\n'),
        (ServerSentEvent("one\r\ntwo\rthree\n"), "data: one\ndata: two\ndata: three\ndata: \n\n"),
        (ServerSentEvent("x\u2028y"), "data: x\u2028y\n\n"),
        (
            ServerSentEvent("x", "bad\ndata: forged", "1\r\n2\0"),
            "id: 1 2\nevent: bad data: forged\ndata: x\n\n",
        ),
        (ServerSentEvent(""), "data: \n\n"),
    ],
)
def test_event_follows_the_standard_and_cannot_be_forged(
    event: ServerSentEvent, expected: str
) -> None:
    assert event.encode().decode() == expected


async def test_source_is_sent_completely_and_ends(request_: HttpRequest) -> None:
    answer = sse.stream(request_, these(ServerSentEvent("a"), ServerSentEvent("b", id="2")))
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert answer.headers["Cache-Control"] == "no-store"
    assert sse.places.taken() == 1
    assert await sent(answer) == ["retry: 2000\n\n", "data: a\n\n", "id: 2\ndata: b\n\n"]


async def test_unstarted_response_releases_its_slot(request_: HttpRequest) -> None:
    sse.stream(request_, these(ServerSentEvent("a"))).close()


async def test_dropped_response_holds_no_slot(request_: HttpRequest) -> None:
    dropped = [sse.stream(request_, these(ServerSentEvent("a"))) for _ in range(3)]
    assert sse.places.taken() == 3
    dropped.clear()
    gc.collect()
    assert sse.places.taken() == 0


async def test_keep_alives_are_sent_and_the_stream_has_a_maximum_age(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def silent() -> AsyncIterator[ServerSentEvent]:
        try:
            await asyncio.sleep(LONG_S)
            yield ServerSentEvent("never")
        finally:
            ended.append(True)

    monkeypatch.setattr(sse, "HEARTBEAT_S", 0.02)
    parts = await sent(sse.stream(request_, silent(), life_s=1.0))
    assert parts[1:] and set(parts[1:]) == {": still here\n\n"}
    assert ended == [True], "the source was closed"


async def test_disconnected_reader_ends_the_source(request_: HttpRequest) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def silent() -> AsyncIterator[ServerSentEvent]:
        try:
            began.set()
            await asyncio.sleep(LONG_S)
            yield ServerSentEvent("never")
        finally:
            ended.set()

    answer = sse.stream(request_, silent())
    reading = asyncio.create_task(sent(answer))
    await asyncio.wait_for(began.wait(), LONG_S)
    reading.cancel()
    await asyncio.wait_for(ended.wait(), LONG_S)
    answer.close()


async def test_failing_source_is_reported_without_its_message(
    request_: HttpRequest, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> AsyncIterator[ServerSentEvent]:
        yield ServerSentEvent("a")
        raise RuntimeError("private-detail")

    parts = await sent(sse.stream(request_, broken()))
    assert parts[1] == "data: a\n\n"
    assert parts[2].startswith("event: error\n")
    assert "private-detail" not in "".join(parts)
    assert "private-detail" in caplog.text


async def test_slots_are_bounded_per_user_and_in_total(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = RequestFactory().get("/", REMOTE_ADDR="10.0.0.9")
    monkeypatch.setattr(sse, "PLACES_EACH", 2)
    monkeypatch.setattr(sse, "PLACES", 3)
    open_ = [sse.stream(request_, these()) for _ in range(2)]
    with pytest.raises(Refused) as refused:
        sse.stream(request_, these())
    assert (refused.value.status_code, refused.value.errors[0].code) == (429, "too_many_watchers")
    open_.append(sse.stream(other, these()))
    with pytest.raises(Refused):
        sse.stream(RequestFactory().get("/", REMOTE_ADDR="10.0.0.8"), these())
    open_.pop().close()
    open_.append(sse.stream(other, these()))
    for answer in open_:
        answer.close()
        answer.close()


async def test_changes_are_sent_once_and_the_initial_state_is_not() -> None:
    polls = iter(
        [
            ServerSentEvent("a", id="1"),
            ServerSentEvent("a", id="1"),
            ServerSentEvent("b", id="2"),
            None,
        ]
    )
    found = [one async for one in sse.poll_changes(lambda: next(polls), since="1", every_s=0)]
    assert [(one.event, one.id) for one in found] == [("message", "2"), ("gone", "")]


def test_remembered_states_are_bounded() -> None:
    request = RequestFactory().get("/", headers={"Last-Event-ID": "9" * 5000})
    assert sse.last_event_id(request) == "9" * 200
    assert sse.last_event_id(RequestFactory().get("/")) == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "change", [{"is_active": False}, {"role": "viewer"}], ids=["switched off", "demoted"]
)
async def test_revoked_permission_ends_the_stream(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    user = await User.objects.acreate(username="alice", role="operator")
    request_.user = SimpleLazyObject(lambda: user)  # as on pages
    reported = asyncio.Event()

    async def slow() -> AsyncIterator[ServerSentEvent]:
        while True:
            yield ServerSentEvent("a")
            reported.set()
            await asyncio.sleep(0.01)

    monkeypatch.setattr(sse, "HEARTBEAT_S", LONG_S)
    reading = asyncio.create_task(sent(sse.stream(request_, slow(), life_s=LONG_S)))
    await asyncio.wait_for(reported.wait(), LONG_S)
    assert not reading.done()
    await User.objects.filter(pk=user.pk).aupdate(**change)
    parts = await asyncio.wait_for(reading, LONG_S / 2)
    assert not any(part.startswith("event: error") for part in parts), parts[-1]


async def test_equal_queries_are_shared() -> None:
    polls, future, go = sse._PollThreads(), [], threading.Event()

    def poll() -> str:
        assert go.wait(LONG_S)
        future.append(threading.current_thread().name)
        return "seen"

    waiting = [asyncio.create_task(polls.run(poll, key)) for key in ("a", "a", "a", "b", None)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # its reader left; the others still read it
    go.set()
    assert await asyncio.wait_for(asyncio.gather(*waiting[1:]), LONG_S) == ["seen"] * 4
    assert len(future) == 3
    assert all(name.startswith("watch") for name in future), "in no thread that answers pages"


async def test_query_interval_follows_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(sse, "POLLERS", 1)
    monkeypatch.setattr(sse.time, "thread_time", iter([0.0, 2.0, 2.0, 2.0]).__next__)
    monkeypatch.setattr(sse.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(sse.time, "sleep", rests.append)
    polls = sse._PollThreads()
    await polls.run(lambda: None)
    await polls.run(lambda: None)
    assert rests == [0.0, 2.0 * (1 / sse.CPU_SHARE - 1)]


async def test_failing_query_fails_only_its_reader() -> None:
    polls = sse._PollThreads()
    with pytest.raises(ZeroDivisionError):
        await polls.run(lambda: 1 // 0, "a")
    assert await polls.run(lambda: 1, "a") == 1


@pytest.mark.parametrize(("limit", "reason"), [("PLACES_EACH", "person"), ("PLACES", "process")])
async def test_rejected_stream_is_counted_with_its_reason(
    request_: HttpRequest, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    monkeypatch.setattr(sse, limit, 0)
    before = counters.total("streams", outcome="refused", reason=reason)
    with pytest.raises(Refused):
        sse.stream(request_, these())
    assert counters.total("streams", outcome="refused", reason=reason) == before + 1
