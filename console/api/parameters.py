"""Query parameters and headers which several rooms share, by name."""

from __future__ import annotations

from typing import Final

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

DRY_RUN: Final = OpenApiParameter(
    "dry_run",
    bool,
    description="Check everything and say what would change; change nothing.",
    default=False,
)
WATCH: Final = OpenApiParameter(
    "watch",
    bool,
    description="Stay connected: the answer is a stream of server-sent events (text/event-stream), "
    "an event `status` with the same JSON at once and after each change, `gone` at the end of a "
    "thing. A reader who comes back sends Last-Event-ID.",
    default=False,
)
LAST_EVENT_ID: Final = OpenApiParameter(
    "Last-Event-ID", str, "header", description="With `watch`: the `id` of the last event seen."
)
IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    "header",
    description="The ETag the change is made for; refused with 412 if the thing has moved on.",
)


def flag(request: Request, name: str) -> bool:
    """A boolean parameter; what is neither true nor false was refused before."""
    return request.query_params.get(name, "false") == "true"


def dry_run(request: Request) -> bool:
    return flag(request, DRY_RUN.name)
