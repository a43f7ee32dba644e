"""Server-sent events (`text/event-stream`) for pages and the API.

    return sse.stream(request, sse.changes(poll, since=sse.last_event_id(request)))

A stream sends a comment every few seconds to keep proxies from closing it. It ends when the client
disconnects, within a second after its token is revoked or its user logs out or gets another role,
and after its maximum life; clients reconnect with `Last-Event-ID`. Streams are limited per process
and per user. A failing source is logged and ends the stream with an event `error` without details.

Requires ASGI: WSGI would buffer the whole stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

from django.contrib.auth import get_user_model
from django.core.serializers.json import DjangoJSONEncoder
from django.db import close_old_connections
from django.http import HttpRequest, StreamingHttpResponse

from console.core.counters import increment
from console.core.errors import Problem, Refused

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
# Seconds. Proxies close silent connections after 30 to 60. Team rights are checked on reconnect:
# hence a life of minutes, not hours.
HEARTBEAT_S = 15.0
ACCESS_S = 1.0
"""Time between checks of the session or token."""
LIFE_S = 300.0
EVERY_S = 1.0
RETRY_MS = 2000
# Concurrent streams in this process, and per user (all tabs and tokens).
PLACES = 256
PLACES_EACH = 24
_LONGEST_ID = 200
# Polling threads of all streams (one blocked on a router must not delay others), and the CPU share
# of each: a quarter in total, since the interpreter runs one thread at a time.
POLLERS = 4
CPU_SHARE = 0.0625


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """Event; `data` is sent as JSON, a str verbatim. `id` is returned as Last-Event-ID."""

    data: Any = ""
    event: str = "message"
    id: str = ""

    def encode(self) -> bytes:
        text = self.data if isinstance(self.data, str) else _json(self.data)
        lines = [f"id: {_one_line(self.id)}"] if self.id else []
        if self.event != "message":
            lines.append(f"event: {_one_line(self.event)}")
        # Only these three end a line in SSE; str.splitlines splits on more.
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        lines += [f"data: {line}" for line in plain.split("\n")]
        return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


Source = AsyncIterator[ServerSentEvent]
T = TypeVar("T")


class _StreamPlaces:
    """Active streams of this process; responses dropped before close() do not count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: WeakSet[_Stream] = WeakSet()

    def take(self, stream: _Stream) -> None:
        with self._lock:
            readers = [taken.reader for taken in self._streams]
            for reason, full in (
                ("person", readers.count(stream.reader) >= PLACES_EACH),
                ("process", len(readers) >= PLACES),
            ):
                if full:
                    increment("streams", outcome="refused", reason=reason)
                    raise _too_many(reason)
            self._streams.add(stream)

    def give_back(self, stream: _Stream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def taken(self) -> int:
        with self._lock:
            return len(self._streams)


places = _StreamPlaces()


class _Stream:
    """Byte stream of one response.

    Its place is released on close, even if iteration never began: an async generator that has not
    started runs no `finally`.
    """

    def __init__(self, request: HttpRequest, source: Source, life_s: float) -> None:
        self.reader = _reader(request)
        self._bytes = _bytes(source, request, life_s)
        places.take(self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._bytes

    def close(self) -> None:
        """Release the place; called by Django after sending or on failure."""
        places.give_back(self)


def stream(request: Any, source: Source, *, life_s: float | None = None) -> StreamingHttpResponse:
    """Return a streaming response of `source`; raise Refused (429) at the stream limit.

    `request` is Django's or DRF's.
    """
    body = _Stream(request, source, LIFE_S if life_s is None else life_s)
    answer = StreamingHttpResponse(body, content_type=CONTENT_TYPE)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"  # disables nginx buffering
    increment("streams", outcome="opened")
    return answer


async def poll_changes(
    poll: Callable[[], ServerSentEvent | None], *, since: str = "", every_s: float = EVERY_S
) -> Source:
    """Poll `poll` and yield its event when its `id` changes (initially from `since`).

    None from `poll` ends the source with an event `gone`. `poll` is synchronous, may query the
    database and runs in a thread.
    """
    last_id = since
    while True:
        run = await poll_threads.run(poll)
        if run is None:
            yield ServerSentEvent({}, "gone")
            return
        if run.id != last_id:
            last_id = run.id
            yield run
        await asyncio.sleep(every_s)


class _PollThreads:
    """Polling threads with a bounded CPU share.

    Pages stay fast with many watchers; streams poll less often under load. Streams with the same
    target and rights share one poll.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(POLLERS, thread_name_prefix="watch")
        self._under_way: dict[object, asyncio.Future[Any]] = {}
        self._rest = threading.local()

    async def run(self, poll: Callable[[], T], key: object = None) -> T:
        loop = asyncio.get_running_loop()
        mine = (loop, key)
        future: asyncio.Future[T] | None = self._under_way.get(mine) if key is not None else None
        if future is None:
            run = copy_context().run
            future = loop.run_in_executor(self._threads, run, self._paced, poll)
            if key is not None:
                self._under_way[mine] = future
                future.add_done_callback(lambda _: self._under_way.pop(mine, None))
        return await asyncio.shield(future)  # a disconnect must not cancel a shared poll

    def _paced(self, poll: Callable[[], T]) -> T:
        """Sleep in proportion to this thread's last poll, then poll."""
        time.sleep(max(0.0, getattr(self._rest, "until", 0.0) - time.monotonic()))
        began = time.thread_time()
        try:
            return run_query(poll)
        finally:
            cost = time.thread_time() - began
            self._rest.until = time.monotonic() + cost * (1 / CPU_SHARE - 1)


def last_event_id(request: HttpRequest) -> str:
    """Return the last received id, sent by browsers on reconnect; "" on the first connection."""
    return request.headers.get("Last-Event-ID", "")[:_LONGEST_ID]


poll_threads = _PollThreads()
access_threads = _PollThreads()  # of their own: a poll may wait for a router


def run_query(question: Callable[[], T]) -> T:
    try:
        return question()
    finally:
        # Release the connection between polls: a hundred streams must not hold as many.
        close_old_connections()


async def _bytes(source: Source, request: HttpRequest, life_s: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end, beat, check = (loop.time() + wait_s for wait_s in (life_s, HEARTBEAT_S, ACCESS_S))
    yield f"retry: {RETRY_MS}\n\n".encode()
    next_one: asyncio.Future[ServerSentEvent] | None = None
    async with aclosing(_generator(source)) as events:
        try:
            while (now := loop.time()) < end:
                if now >= check:
                    if not await _has_access(request):
                        return
                    check = loop.time() + ACCESS_S
                if now >= beat:
                    yield b": still here\n\n"
                    beat = loop.time() + HEARTBEAT_S
                next_one = next_one or asyncio.ensure_future(anext(events))
                wait_s = min(beat, check, end) - loop.time()
                await asyncio.wait({next_one}, timeout=max(0.0, wait_s))
                if next_one.done():
                    event, next_one = next_one.result(), None
                    yield event.encode()
        except StopAsyncIteration:
            return
        except Exception:  # any failure of the source ends the stream with an `error` event
            log.exception("Stream source failed; closing the stream")
            increment("streams", outcome="failed")
            yield ServerSentEvent(
                {"detail": "The stream was interrupted by an internal error."}, "error"
            ).encode()
        finally:
            await _stop_step(next_one)


async def _generator(source: Source) -> AsyncGenerator[ServerSentEvent]:
    """Wrap an iterator as a generator, which can be closed."""
    try:
        async for event in source:
            yield event
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _stop_step(step: asyncio.Future[ServerSentEvent] | None) -> None:
    """Cancel the pending step: a running generator cannot be closed."""
    if step is not None:
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)


def _reader(request: Any) -> str:
    user_id = getattr(getattr(request, "user", None), "pk", None)
    return f"user {user_id}" if user_id else f"address {request.META.get('REMOTE_ADDR', '')}"


async def _has_access(request: Any) -> bool:
    """Check once for all streams of a token or session that ask at the same time."""
    token = getattr(getattr(request, "auth", None), "pk", None)
    session = getattr(getattr(request, "session", None), "session_key", None)
    key = ("access", _reader(request), token, session)
    return await access_threads.run(partial(_is_authorized, request), key)


def _is_authorized(request: Any) -> bool:
    """Return whether the session or token is valid and the role unchanged."""
    user = getattr(request, "user", None)
    if user is None or user.pk is None:  # public page: checked by its view
        return True
    now = get_user_model()._default_manager.filter(pk=user.pk, is_active=True).first()
    if now is None or now.role != user.role:
        return False
    token = getattr(request, "auth", None)
    if token is not None:
        current = type(token)._default_manager.filter(pk=token.pk).first()
        return current is not None and not current.expired
    session = getattr(request, "session", None)
    key = getattr(session, "session_key", None)
    return session is None or key is None or bool(session.exists(key))


def _too_many(reason: str) -> Refused:
    texts = {
        "person": f"You have {PLACES_EACH} open streams, the limit per user.",
        "process": f"{PLACES} streams are open, the limit of this process.",
    }
    return Refused(
        Problem(
            "",
            None,
            texts[reason],
            "Close another page or client with a live view, then reconnect.",
            "too_many_watchers",
        ),
        status_code=429,
    )


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":"))


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", "").splitlines()) if text else ""
