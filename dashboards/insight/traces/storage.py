"""Recorded traffic of endpoints in the database: `load_trace(endpoint, begin, end) -> Trace`.

`load_trace` returns the requests that arrived in [begin, end) at all routers together, with blocks
of 16 or 64 tokens; `Trace.requests` joins their blocks on access, so that long prompts take little
memory. `load_imported(endpoint, name) -> Trace` returns a trace from a file. Both raise TraceError.
Hours are kept within the endpoint's limits of bytes and days, the newest ones; all go with the
endpoint.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from django.db import transaction
from django.db.models import Count, QuerySet, Sum

from dashboards.insight.traces.files import unpack
from dashboards.insight.traces.models import ImportedTrace, TracePiece, TraceSource
from dashboards.insight.traces.records import read_streams
from dashboards.insight.traces.trace import Trace, TraceError
from endpoints.models import Endpoint

_COUNTS = ("stream", "requests", "prompt_tokens", "cached_tokens", "output_tokens", "lost")


@dataclass(frozen=True, slots=True)
class RecordedHour:
    """Totals of an hour over all routers. `size`: stored bytes. `lost`: requests not recorded."""

    hour: datetime
    routers: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    lost: int
    size: int

    @property
    def hit_rate(self) -> float | None:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None


def load_trace(endpoint: Endpoint, begin: datetime, end: datetime) -> Trace:
    """Return the recorded requests that arrived from `begin` until before `end`; none if nothing
    was recorded. Raise TraceError for damaged data.
    """
    touched = _pieces(endpoint, begin, end)
    streams = touched.values_list("router", "stream").distinct().order_by("router", "stream")
    return read_streams(
        (_stream(endpoint, router, stream) for router, stream in streams),
        begin.timestamp(),
        end.timestamp(),
    )


def count_requests(endpoint: Endpoint, begin: datetime, end: datetime) -> int:
    """Return about how many requests `load_trace` returns, and at least as many."""
    return _pieces(endpoint, begin, end).aggregate(found=Sum("requests"))["found"] or 0


def _pieces(endpoint: Endpoint, begin: datetime, end: datetime) -> QuerySet[TracePiece]:
    return TracePiece.objects.filter(endpoint=endpoint, first__lt=end, last__gte=begin)


def _stream(endpoint: Endpoint, router: str, stream: int) -> list[bytes]:
    rows = TracePiece.objects.filter(endpoint=endpoint, router=router, stream=stream)
    return [bytes(data) for data in rows.order_by("number").values_list("data", flat=True)]


def load_imported(endpoint: Endpoint, name: str) -> Trace:
    """Return an imported trace. Raise TraceError if there is none of this name."""
    row = ImportedTrace.objects.filter(endpoint=endpoint, name=name).first()
    if row is None:
        raise TraceError(f"There is no imported trace {name!r}. Import it, or choose another.")
    return unpack(bytes(row.data))


def recorded_hours(endpoint: Endpoint) -> list[RecordedHour]:
    """Return the hours with recorded traffic, newest first."""
    totals = {name: Sum(name) for name in (*_COUNTS[1:], "size")}
    rows = TracePiece.objects.filter(endpoint=endpoint).values("hour").order_by("-hour")
    annotated = rows.annotate(routers=Count("router", distinct=True), **totals)
    return [RecordedHour(**cast(dict[str, Any], row)) for row in annotated]


def imported_traces(endpoint: Endpoint) -> QuerySet[ImportedTrace]:
    return ImportedTrace.objects.filter(endpoint=endpoint).defer("data")


def sources(endpoint: Endpoint) -> QuerySet[TraceSource]:
    """Return the router processes whose traffic is being collected."""
    return TraceSource.objects.filter(endpoint=endpoint, active=True)


def add_pieces(endpoint: Endpoint, url: str, reply: Mapping[str, Any], now: datetime) -> int:
    """Store a router's reply and return the number of new requests. Repeated pieces are ignored.
    Raise KeyError, TypeError or ValueError for an invalid reply.
    """
    router = str(reply["instance"])[:40]
    rows = [_row(endpoint, router, piece) for piece in reply["pieces"]]
    with transaction.atomic():
        source, _ = TraceSource.objects.select_for_update(no_key=True).get_or_create(
            endpoint=endpoint, router=router
        )
        source.url = url
        new = [row for row in rows if row.number > source.collected]
        TracePiece.objects.bulk_create(new, ignore_conflicts=True)
        source.collected = max([source.collected, *(row.number for row in new)])
        source.lost = int(reply["lost"])
        source.active = bool(reply["recording"] or reply["pieces"])
        source.seen_at = now
        source.save()
        TraceSource.objects.filter(endpoint=endpoint, url=url).exclude(pk=source.pk).update(
            active=False  # another process is there now
        )
    return sum(row.requests for row in new)


def _row(endpoint: Endpoint, router: str, piece: Mapping[str, Any]) -> TracePiece:
    data = base64.b64decode(piece["data"], validate=True)
    return TracePiece(
        endpoint=endpoint,
        router=router,
        number=int(piece["number"]),
        hour=_time(piece["hour"]),
        first=_time(piece["first"]),
        last=_time(piece["last"]),
        size=len(data),
        data=data,
        **{name: max(int(piece[name]), 0) for name in _COUNTS},
    )


def _time(value: Any) -> datetime:
    return datetime.fromtimestamp(float(value), UTC)


def prune(endpoint: Endpoint, most_bytes: int, most_days: int, now: datetime) -> int:
    """Delete the oldest hours beyond the limits; return their number."""
    kept_bytes = 0
    oldest = now - timedelta(days=most_days)
    beyond: list[datetime] = []
    for hour in recorded_hours(endpoint):
        kept_bytes += hour.size
        if hour.hour < oldest or (kept_bytes > most_bytes and hour.size < kept_bytes):
            beyond.append(hour.hour)
    if beyond:
        TracePiece.objects.filter(endpoint=endpoint, hour__in=beyond).delete()
    return len(beyond)
