"""Server-sent events, for pages and for the API: `text/event-stream` as browsers read it.

    return sse.stream(request, sse.changes(look, since=sse.last_event_id(request)))

Promises of every stream: a comment every few seconds, so that nobody in between takes it for dead;
an end when its reader is gone, has logged out or has another role, and after its life at the latest
(a reader connects again, and says by `Last-Event-ID` what it has seen); no more streams at once
than this process has places for, of one reader no more than a share. A source that fails ends its
stream with a logged reason, and the reader is told by an event `error` without its text. Must not
know what is watched.

Needs ASGI: under WSGI a stream would be collected whole before a byte of it is sent.
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

from asgiref.sync import sync_to_async
from django.core.serializers.json import DjangoJSONEncoder
from django.db import close_old_connections
from django.http import HttpRequest, StreamingHttpResponse

from console.core.counters import count
from console.core.errors import Problem, Refused

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/event-stream"
# Seconds. Proxies close what is silent for 30 to 60. Who reads is looked at with every heartbeat;
# what they may see of a team, when they connect again: hence a life of minutes, not hours.
HEARTBEAT_S = 15.0
LIFE_S = 300.0
EVERY_S = 1.0
RETRY_MS = 2000
# Streams at once in this process, and of one reader (a person, whatever tabs and tokens).
PLACES = 256
PLACES_EACH = 24
_LONGEST_ID = 200
# Threads that look for all streams (one that waits for a router holds up no other), and the share
# of a processor that each may take: together a quarter, since the interpreter runs one at a time.
LOOKERS = 4
SHARE_EACH = 0.0625


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """`data` is sent as JSON, a text as it is. `id` is what comes back as Last-Event-ID."""

    data: Any = ""
    event: str = "message"
    id: str = ""

    def encode(self) -> bytes:
        text = self.data if isinstance(self.data, str) else _json(self.data)
        lines = [f"id: {_one_line(self.id)}"] if self.id else []
        if self.event != "message":
            lines.append(f"event: {_one_line(self.event)}")
        # Only these three end a line of the stream; str.splitlines knows more than the readers do.
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        lines += [f"data: {line}" for line in plain.split("\n")]
        return ("\n".join(lines) + "\n\n").encode("utf-8", "replace")


Source = AsyncIterator[ServerSentEvent]
T = TypeVar("T")


class _Places:
    """Who streams now. Counted per process: each worker of the web server has its own. An answer
    that was dropped before anybody could close it holds no place either."""

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
                    count("streams", outcome="refused", reason=reason)
                    raise _too_many(reason)
            self._streams.add(stream)

    def give_back(self, stream: _Stream) -> None:
        with self._lock:
            self._streams.discard(stream)

    def taken(self) -> int:
        with self._lock:
            return len(self._streams)


places = _Places()


class _Stream:
    """The bytes of one stream. Its place is given back when the answer is closed, be it that it
    was never begun: an async generator that has not started runs no `finally`."""

    def __init__(self, request: HttpRequest, source: Source, life_s: float) -> None:
        self.reader = _reader(request)
        self._bytes = _bytes(source, partial(_still_there, request), life_s)
        places.take(self)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._bytes

    def close(self) -> None:
        """By Django, when the answer has been sent, or could not be."""
        places.give_back(self)


def stream(request: Any, source: Source, *, life_s: float | None = None) -> StreamingHttpResponse:
    """The answer that sends what `source` yields; `request` is Django's or DRF's. Raises Refused
    (429) when there is no place."""
    body = _Stream(request, source, LIFE_S if life_s is None else life_s)
    answer = StreamingHttpResponse(body, content_type=CONTENT_TYPE)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold back what looks small
    count("streams", outcome="opened")
    return answer


async def changes(
    look: Callable[[], ServerSentEvent | None],
    *,
    since: str = "",
    every_s: float = EVERY_S,
) -> Source:
    """What `look` sees, each time its `id` is another one than before (`since`: than the reader
    says it has). None means it is gone: an event `gone`, and the end. `look` is plain code that
    may ask the database; it runs in a thread."""
    known = since
    while True:
        seen = await looks.ask(look)
        if seen is None:
            yield ServerSentEvent({}, "gone")
            return
        if seen.id != known:
            known = seen.id
            yield seen
        await asyncio.sleep(every_s)


class _Looks:
    """Threads of their own for what streams look at, and a bounded share of the processor: pages
    stay fast however many watch, and with many each looks less often. Whoever watches the same
    with the same rights joins a look that is waiting or under way."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKERS, thread_name_prefix="watch")
        self._under_way: dict[object, asyncio.Future[Any]] = {}
        self._rest = threading.local()

    async def ask(self, look: Callable[[], T], key: object = None) -> T:
        loop = asyncio.get_running_loop()
        mine = (loop, key)
        future: asyncio.Future[T] | None = self._under_way.get(mine) if key is not None else None
        if future is None:
            run = copy_context().run
            future = loop.run_in_executor(self._threads, run, self._paced, look)
            if key is not None:
                self._under_way[mine] = future
                future.add_done_callback(lambda _: self._under_way.pop(mine, None))
        return await asyncio.shield(future)  # a reader who leaves ends nobody else's look

    def _paced(self, look: Callable[[], T]) -> T:
        """Rest first, for what the last look of this thread has cost."""
        time.sleep(max(0.0, getattr(self._rest, "until", 0.0) - time.monotonic()))
        began = time.thread_time()
        try:
            return asked(look)
        finally:
            cost = time.thread_time() - began
            self._rest.until = time.monotonic() + cost * (1 / SHARE_EACH - 1)


def last_event_id(request: HttpRequest) -> str:
    """What the reader saw last; "" on its first connection. Browsers send it by themselves."""
    return request.headers.get("Last-Event-ID", "")[:_LONGEST_ID]


looks = _Looks()


def asked(question: Callable[[], T]) -> T:
    """What a source asks the database, in a thread."""
    try:
        return question()
    finally:
        # Between two looks nothing is asked, and a hundred readers must not hold as many
        # connections of the database.
        close_old_connections()


async def _bytes(
    source: Source, still_there: Callable[[], bool], life_s: float
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    end, beat = loop.time() + life_s, loop.time() + HEARTBEAT_S
    yield f"retry: {RETRY_MS}\n\n".encode()
    next_one: asyncio.Future[ServerSentEvent] | None = None
    async with aclosing(_generator(source)) as events:
        try:
            while (now := loop.time()) < end:
                if now >= beat:
                    if not await sync_to_async(asked)(still_there):
                        return
                    yield b": still here\n\n"
                    beat = loop.time() + HEARTBEAT_S
                next_one = next_one or asyncio.ensure_future(anext(events))
                await asyncio.wait({next_one}, timeout=max(0.0, min(beat, end) - loop.time()))
                if next_one.done():
                    event, next_one = next_one.result(), None
                    yield event.encode()
        except StopAsyncIteration:
            return
        except Exception:  # whatever the source does, the reader gets an end it can understand
            log.exception("a stream's source failed")
            count("streams", outcome="failed")
            yield ServerSentEvent(
                {"detail": "The console could not go on with this stream."}, "error"
            ).encode()
        finally:
            await _stopped(next_one)


async def _generator(source: Source) -> AsyncGenerator[ServerSentEvent]:
    """Any iterator as a generator, which can be closed."""
    try:
        async for event in source:
            yield event
    finally:
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _stopped(step: asyncio.Future[ServerSentEvent] | None) -> None:
    """A generator that is still running cannot be closed: its step ends first."""
    if step is not None:
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)


def _reader(request: Any) -> str:
    known = getattr(getattr(request, "user", None), "pk", None)
    return f"user {known}" if known else f"address {request.META.get('REMOTE_ADDR', '')}"


def _still_there(request: Any) -> bool:
    """Nobody who was logged out, whose token ended or whose role changed goes on reading."""
    user = getattr(request, "user", None)
    if user is None or user.pk is None:  # an open page; its view has decided that
        return True
    now = type(user)._default_manager.filter(pk=user.pk, is_active=True).first()
    if now is None or now.role != user.role:
        return False
    token = getattr(request, "auth", None)
    if token is not None:
        kept = type(token)._default_manager.filter(pk=token.pk).first()
        return kept is not None and not kept.expired
    session = getattr(request, "session", None)
    key = getattr(session, "session_key", None)
    return session is None or key is None or bool(session.exists(key))


def _too_many(reason: str) -> Refused:
    texts = {
        "person": f"You have {PLACES_EACH} open streams, which is the limit for one person.",
        "process": f"{PLACES} streams are open, which is the limit of this process.",
    }
    return Refused(
        Problem(
            "",
            None,
            texts[reason],
            "Close another page or program that watches, then connect again.",
            "too_many_watchers",
        ),
        status_code=429,
    )


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, separators=(",", ":"))


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", "").splitlines()) if text else ""
