"""`?watch=true` on a GET: the JSON as a server-sent event, at once and after each change.

An event id is a digest of the current state. A client that reconnects with the last id receives
only differences from it; no history is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, StreamingHttpResponse
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from console.accounts import gate
from console.api.parameters import WATCH, read_flag
from console.api.preconditions import digest
from console.web.server import sse
from console.web.server.sse import ServerSentEvent

STATUS, GONE = "status", "gone"
_NOT_FOUND = 404


def is_watch(request: Request) -> bool:
    return read_flag(request, WATCH.name)


def watch_object(request: Request, read: Callable[[], Any]) -> StreamingHttpResponse:
    """Watch one object.

    `read` returns its JSON or raises like a GET: not found ends the stream, and an error in the
    first call is answered as a normal request.
    """
    read()

    def seen() -> ServerSentEvent | None:
        try:
            _reload_rights(request)
            data = json.loads(JSONRenderer().render(read()))
        except Exception as error:  # apps define their own not-found exceptions
            hidden = isinstance(error, (Http404, PermissionDenied))
            if not hidden and getattr(error, "status_code", 0) != _NOT_FOUND:
                raise
            return None
        return ServerSentEvent(data, STATUS, _digest(data))

    return sse.stream(request, sse.poll_changes(seen, since=sse.last_event_id(request)))


def watch_list(request: Request, read: Callable[[], Mapping[str, Any]]) -> StreamingHttpResponse:
    """Watch a list by name: an event per new or changed item, `gone` for a removed one."""
    read()
    return sse.stream(request, _list_events(request, read, sse.last_event_id(request)))


def _share_key(request: Request) -> object:
    """Return the key for sharing one poll: same user, token and target."""
    return request.user.pk, getattr(request.auth, "pk", None), request.get_full_path()


def _reload_rights(request: Request) -> None:
    """Reload roles and teams, which are cached per request and this one is long-lived."""
    user: Any = request.user  # always a User here
    user.refresh_from_db()
    http_request = request._request
    gate.forget_subject(http_request)
    gate.check_access(http_request, user)


async def _list_events(
    request: Request, read: Callable[[], Mapping[str, Any]], since: str
) -> AsyncIterator[ServerSentEvent]:
    last_marks: dict[str, str] = {}

    def seen() -> tuple[dict[str, Any], dict[str, str], str]:
        _reload_rights(request)
        data = {name: json.loads(JSONRenderer().render(body)) for name, body in read().items()}
        marks = {name: _digest(body) for name, body in data.items()}
        return data, marks, _digest(marks)

    async for data, marks, whole in _share_poll(seen, _share_key(request)):
        if whole == since:
            last_marks, since = marks, ""
        news = [name for name, mark in marks.items() if last_marks.get(name) != mark]
        lost = [name for name in last_marks if name not in marks]
        last_marks = marks
        # Only the last event of a batch has the id of the whole: an interrupted batch is sent
        # again.
        events = [ServerSentEvent(data[name], STATUS) for name in news]
        events += [ServerSentEvent({"name": name}, GONE) for name in lost]
        for index, event in enumerate(events):
            last = index == len(events) - 1
            yield ServerSentEvent(event.data, event.event, whole) if last else event


async def _share_poll(seen: Callable[[], Any], key: object) -> AsyncIterator[Any]:
    while True:
        yield await sse.poll_threads.run(seen, key)
        await asyncio.sleep(sse.EVERY_S)


def _digest(data: Any) -> str:
    return digest(json.dumps(data, sort_keys=True).encode())
