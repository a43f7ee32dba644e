"""Page of the alert history: a timeline for each rule and endpoint, and one opened interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts.permissions import allows
from dashboards.alerts.alertmanager import silences, transitions
from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.alertmanager.timeline import (
    AlertInterval,
    Lane,
    Timeline,
    find_interval,
    measure_at_start,
    read_timeline,
)
from dashboards.alerts.evaluation.history import RANGES
from dashboards.alerts.settings import documents, selectors
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

MOST_LANES: Final = 30
ROWS: Final = 25
_BEFORE_S: Final = 1800  # board range before the alert, to show how it began
_WIDTH: Final = 1000
_LEAST: Final = 4  # width of the shortest bar that is still visible and clickable


@never_cache
@require_safe
def timeline(request: HttpRequest) -> HttpResponse:
    timeline_read = read_timeline(request.user, request.GET.get("range", ""))
    filters = {name: request.GET.get(name, "") for name in ("rule", "endpoint")}
    lanes = [
        lane
        for lane in timeline_read.lanes
        if filters["rule"] in ("", lane.rule) and filters["endpoint"] in ("", lane.endpoint)
    ]
    lane_keys = {(lane.rule, lane.endpoint) for lane in lanes}
    intervals = [
        interval
        for interval in timeline_read.intervals
        if (interval.rule, interval.endpoint) in lane_keys
    ]
    page = Paginator(intervals, ROWS).get_page(request.GET.get("page"))
    base: dict[str, str] = {
        "range": timeline_read.key,
        **{key: text for key, text in filters.items() if text},
    }
    context = {
        "found": timeline_read,
        "ranges": [(key, f"?{urlencode({**base, 'range': key})}") for key in RANGES],
        "rules": sorted({lane.rule for lane in timeline_read.lanes}),
        "endpoints": sorted({lane.endpoint for lane in timeline_read.lanes if lane.endpoint}),
        "wanted": filters,
        "lanes": [_lane(lane, timeline_read, base) for lane in lanes[:MOST_LANES]],
        "more": max(0, len(lanes) - MOST_LANES),
        "marks": [
            at(timeline_read.start + timeline_read.length_s * part // 4) for part in range(5)
        ],
        "long": timeline_read.length_s > 2 * 86_400,
        "known_from": at(timeline_read.known_from) if timeline_read.known_from else None,
        "kept_days": transitions.KEPT.days,
        "page": page,
        "rows": interval_rows(page.object_list, base),
        "opened": _opened(request, timeline_read),
        "existing": endpoints.existing((lane.endpoint for lane in lanes), request.user),
    }
    return render(request, "alerts/timeline.html", context)


def at(moment: int) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def interval_rows(
    intervals: Iterable[AlertInterval], base: Mapping[str, str]
) -> list[dict[str, Any]]:
    return [
        {"interval": interval, "start": at(interval.start), "url": interval_url(interval, base)}
        for interval in intervals
    ]


def interval_url(one: AlertInterval, base: Mapping[str, str]) -> str:
    query = {"alert": one.rule, "about": one.endpoint, "at": str(one.start)}
    return f"{reverse('alerting:timeline')}?{urlencode({**base, **query})}#interval"


def _lane(lane: Lane, found: Timeline, base: Mapping[str, str]) -> dict[str, Any]:
    scale = _WIDTH / found.length_s
    bars = []
    for interval in lane.intervals:
        end = min(interval.end, found.end)
        width = max(_LEAST, round((end - interval.start) * scale))
        left = min(round((interval.start - found.start) * scale), _WIDTH - width)
        bars.append(
            {
                "interval": interval,
                "x": str(max(0, left)),
                "width": str(width),
                "url": interval_url(interval, base),
                "start": at(interval.start),
            }
        )
    return {"lane": lane, "bars": bars}


def _opened(request: HttpRequest, found: Timeline) -> dict[str, Any] | None:
    """Return the facts of the interval named by the URL; empty facts if it is out of range."""
    name, moment = request.GET.get("alert", ""), request.GET.get("at", "")
    if not name:
        return None
    interval = None
    if moment.isascii() and moment.isdecimal() and len(moment) < 12:
        interval = find_interval(found, name, request.GET.get("about", ""), int(moment))
    if interval is None:
        return {}
    viewer = request.user
    muting = _muting(viewer, interval)
    return {
        "interval": interval,
        "start": at(interval.start),
        "end": at(interval.end),
        "value": measure_at_start(connections.fleet(), documents.settings_for(viewer), interval),
        "known": interval.rule in documents.GROUP_OF or documents.can_see_user_rules(viewer),
        "alerts": [_others(labels) for labels in interval.alerts if _others(labels)],
        "muting": muting,
        "acknowledged": next(
            (row for row in muting if row.acknowledges and row.state == "active"), None
        ),
        "may": _may_operate(viewer, interval.endpoint),
        "board": _board(interval, request),
        "silence": silence_url(interval.rule, interval.endpoint),
    }


def _muting(viewer: Any, one: AlertInterval) -> list[Silence]:
    """Return the silences and acknowledgements that were active during the interval."""
    start, end = at(one.start), timezone.now() if one.ongoing else at(one.end)
    return [
        row
        for row in silences.list_silences(viewer).rows
        if row.starts_at <= end
        and row.ends_at >= start
        and any(matchers.matches(row.conditions, labels) for labels in one.alerts)
    ]


def _others(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    hidden = ("alertname", "severity", "endpoint", "endpoint_name", "namespace", "job", "instance")
    return [(key, value) for key, value in labels.items() if key not in hidden and value]


def _may_operate(viewer: Any, endpoint: str) -> bool:
    return allows(viewer, "operator") or endpoint in selectors.changeable_endpoints(viewer)


def _board(one: AlertInterval, request: HttpRequest) -> str:
    """Return the board URL around the interval; of the fleet if the alert has no endpoint."""
    if one.endpoint and one.endpoint not in endpoints.existing([one.endpoint], request.user):
        return ""
    page = (
        reverse("dashboards:endpoint", args=[one.endpoint])
        if one.endpoint
        else reverse("dashboards:fleet")
    )
    begin = one.start - _BEFORE_S
    end = min(max(one.end, one.start + _BEFORE_S) + _BEFORE_S, begin + 7 * 86_400)
    return f"{page}?{urlencode({'from': begin, 'to': end})}"


def silence_url(rule: str, endpoint: str) -> str:
    labels = {"alertname": rule, **({"endpoint": endpoint} if endpoint else {})}
    return f"{reverse('notify:silence_new')}?{urlencode(labels)}"
