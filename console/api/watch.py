"""`?watch=true` on a GET: the same JSON as an event, at once and after each change.

Promises that a reader who comes back with the id of the last event gets nothing twice and misses
nothing of the present state: an id is a digest of all that was shown, so no history is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, StreamingHttpResponse
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts import gate
from console.api.parameters import WATCH, flag
from console.api.preconditions import digest
from console.web.server import sse
from console.web.server.sse import ServerSentEvent

STATUS, GONE = "status", "gone"
_NOT_FOUND = 404


def wanted(request: Request) -> bool:
    return flag(request, WATCH.name)


def one(request: Request, look: Callable[[], Any]) -> StreamingHttpResponse:
    """A thing. `look` answers its JSON, or raises what a GET of it would raise: not found is its
    end, and a first look that is refused is refused as any request."""
    look()

    def seen() -> ServerSentEvent | None:
        try:
            _ask_again(request)
            data = json.loads(JSONRenderer().render(look()))
        except Exception as error:  # rooms have their own words for "there is none"
            hidden = isinstance(error, (Http404, PermissionDenied))
            if not hidden and getattr(error, "status_code", 0) != _NOT_FOUND:
                raise
            return None
        return ServerSentEvent(data, STATUS, _mark(data))

    return sse.stream(request, sse.changes(seen, since=sse.last_event_id(request)))


def many(request: Request, look: Callable[[], Mapping[str, Any]]) -> StreamingHttpResponse:
    """A list, by name: an event for each thing that is new or another than before, and `gone`
    with its name for each that is there no more."""
    look()
    return sse.stream(request, _many(request, look, sse.last_event_id(request)))


def _rights(request: Request) -> object:
    """Who may share a look: the same person with the same token, who watches the same."""
    return request.user.pk, getattr(request.auth, "pk", None), request.get_full_path()


def _ask_again(request: Request) -> None:
    """Roles and teams are read once a request, and this one is long."""
    user: Any = request.user  # nobody else comes this far
    user.refresh_from_db()
    asked = request._request
    gate.forget(asked)
    gate.check(asked, user)


async def _many(
    request: Request, look: Callable[[], Mapping[str, Any]], since: str
) -> AsyncIterator[ServerSentEvent]:
    known: dict[str, str] = {}

    def seen() -> tuple[dict[str, Any], dict[str, str], str]:
        _ask_again(request)
        data = {name: json.loads(JSONRenderer().render(body)) for name, body in look().items()}
        marks = {name: _mark(body) for name, body in data.items()}
        return data, marks, _mark(marks)

    async for data, marks, whole in _looks(seen, _rights(request)):
        if whole == since:
            known, since = marks, ""
        news = [name for name, mark in marks.items() if known.get(name) != mark]
        lost = [name for name in known if name not in marks]
        known = marks
        # Only the last of a batch names the whole: who is cut off in between gets all of it again.
        events = [ServerSentEvent(data[name], STATUS) for name in news]
        events += [ServerSentEvent({"name": name}, GONE) for name in lost]
        for index, event in enumerate(events):
            last = index == len(events) - 1
            yield ServerSentEvent(event.data, event.event, whole) if last else event


async def _looks(seen: Callable[[], Any], key: object) -> AsyncIterator[Any]:
    while True:
        yield await sse.looks.ask(seen, key)
        await asyncio.sleep(sse.EVERY_S)


def _mark(data: Any) -> str:
    return digest(json.dumps(data, sort_keys=True).encode())


Row = TypeVar("Row", bound=Model)


class WatchedList(ListModelMixin, GenericAPIView[Row]):
    """Not DRF's ListAPIView, whose `get` may answer nothing but a Response of its own."""

    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response | StreamingHttpResponse:
        """By name. Watched, it is all that the filters leave, not a page."""
        if wanted(request):
            return many(request, self._by_name)
        return self.list(request, *args, **kwargs)

    def _by_name(self) -> dict[str, Any]:
        found = self.filter_queryset(self.get_queryset())
        return {one["name"]: one for one in self.get_serializer(found, many=True).data}
