"""/api/v1/endpoints/NAME/logs/lines|stream/: one container's log, as a tail or as a stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import require
from console.api.parameters import whole_number
from console.provisioners.base import ProvisionError
from endpoints import selectors
from endpoints.api.answers import REFUSALS, operation
from endpoints.logs import sources, stream
from endpoints.logs.sources import MOST_LINES, TAIL_LINES, Container, LogSource
from endpoints.models import Endpoint
from endpoints.refusals import ConflictError, logs_away

STREAM_S = 600.0
_WHICH = [
    OpenApiParameter("worker", str, description="Default: the first."),
    OpenApiParameter("container", str, description="Container of the worker; default: the first."),
    whole_number("tail", 0, MOST_LINES, TAIL_LINES, "So many of its last lines."),
]


class LogEndSerializer(serializers.Serializer[Any]):
    worker = serializers.CharField()
    container = serializers.CharField()
    state = serializers.CharField()
    others = serializers.IntegerField(help_text="Number of other logs of this endpoint.")
    marks = serializers.BooleanField(
        help_text="The stream can be resumed after any line by its ID."
    )
    lines = serializers.ListField(child=serializers.CharField())


class LogLines(APIView):
    @operation(
        "Read the latest lines of a log", {200: LogEndSerializer}, *REFUSALS, 503, parameters=_WHICH
    )
    def get(self, request: Request, name: str) -> Response:
        """Log of a worker or a router. Needs the operator role: logs may contain request data."""
        endpoint, container, tail = _parse_query(request, name)
        try:
            source = sources.log_source(endpoint, container)
            lines = [line.text for line in source.end(tail)] if tail else []
        except ProvisionError as error:
            raise logs_away(error.reason, error.message) from error
        body = {
            "worker": container.replica,
            "container": container.name,
            "state": container.state,
            "others": len(sources.containers(endpoint)) - 1,
            "marks": source.marks,
            "lines": lines,
        }
        return Response(body)


class LogStream(APIView):
    @operation(
        "Stream a log",
        {(200, stream.CONTENT_TYPE): OpenApiTypes.STR},
        *REFUSALS,
        503,
        parameters=[
            *_WHICH,
            OpenApiParameter("Last-Event-ID", str, "header", description="Resume after this line."),
        ],
    )
    def get(self, request: Request, name: str) -> HttpResponseBase:
        """Server-sent events, one per line, with the line's time as `id` where the platform
        provides it. Event `anew`: earlier lines are repeated. `problem`: the stream cannot
        continue. `ended`: end of log.
        """
        endpoint, container, tail = _parse_query(request, name)
        after = request.headers.get("Last-Event-ID", "")
        try:
            source = sources.log_source(endpoint, container)
        except ProvisionError as error:
            raise logs_away(error.reason, error.message) from error
        body: Any
        if isinstance(request._request, ASGIRequest):
            body = stream.stream(partial(source.to_its_end, after, tail), STREAM_S)
        else:  # no event loop: the generator blocks only its reader
            body = _blocking_stream(source, after, tail)
        return stream.response(body)


def _blocking_stream(source: LogSource, after: str, tail: int) -> Iterator[bytes]:
    try:
        for line in source.to_its_end(after, tail, threading.Event()):
            yield stream.event(line)
    except ProvisionError as error:
        yield stream.problem(error.message)


def _parse_query(request: Request, name: str) -> tuple[Endpoint, Container, int]:
    endpoint = selectors.get_with_workers(name, request.user)
    require(request.user, "operator", of=endpoint)
    which = (request.query_params.get(key, "") for key in ("worker", "container"))
    container = sources.choose_container(endpoint, *which)
    if container is None:
        remedy = f"Wait until it has one: emberline endpoint wait {name}."
        raise ConflictError("no_worker", f"{name} has no worker yet.", remedy)
    return endpoint, container, int(request.query_params.get("tail", TAIL_LINES))
