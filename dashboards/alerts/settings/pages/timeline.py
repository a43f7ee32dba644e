"""Page of the alert history: a timeline for each rule and endpoint, and one opened interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts.permissions import allows
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.evaluation.firing_alerts import FIRING
from dashboards.alerts.evaluation.history import RANGES
from dashboards.alerts.evaluation.timeline import (
    AlertInterval,
    Lane,
    Timeline,
    find_interval,
    measure_at_start,
    query_timeline,
    refine_interval,
)
from dashboards.alerts.notify import notification_log
from dashboards.alerts.notify.notification_log import AlertSpan, Notification
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
    asker, scope = connections.fleet(), dashboards_selectors.get_fleet_scope(request.user)
    found = query_timeline(asker, scope, request.GET.get("range", ""))
    wanted = {name: request.GET.get(name, "") for name in ("rule", "endpoint")}
    lanes = [
        one
        for one in found.lanes
        if wanted["rule"] in ("", one.rule) and wanted["endpoint"] in ("", one.endpoint)
    ]
    kept = {(one.rule, one.endpoint) for one in lanes}
    intervals = [one for one in found.intervals if (one.rule, one.endpoint) in kept]
    since = notification_log.at(found.window.start)
    sent = notification_log.read_deliveries(request.user, since) if intervals else []
    page = Paginator(intervals, ROWS).get_page(request.GET.get("page"))
    base: dict[str, str] = {
        "range": found.key,
        **{key: text for key, text in wanted.items() if text},
    }
    context = {
        "found": found,
        "ranges": [(key, f"?{urlencode({**base, 'range': key})}") for key in RANGES],
        "rules": sorted({one.rule for one in found.lanes}),
        "endpoints": sorted({one.endpoint for one in found.lanes if one.endpoint}),
        "wanted": wanted,
        "lanes": [_lane(one, found, base) for one in lanes[:MOST_LANES]],
        "more": max(0, len(lanes) - MOST_LANES),
        "marks": [notification_log.at(one) for one in _marks(found)],
        "long": found.window.length_s > 2 * 86_400,
        "known_from": notification_log.at(found.known_from) if found.known_from else None,
        "page": page,
        "rows": [_row(one, sent, base) for one in page.object_list],
        "retention": django_settings.EMBERLINE.prometheus_retention,
        "opened": _opened(request, found),
        "existing": endpoints.existing((one.endpoint for one in lanes), request.user),
    }
    return render(request, "alerts/timeline.html", context)


def _marks(found: Timeline) -> list[int]:
    return [found.window.start + found.window.length_s * part // 4 for part in range(5)]


def interval_url(one: AlertInterval, base: Mapping[str, str]) -> str:
    facts = {"alert": one.rule, "about": one.endpoint, "state": one.state, "at": str(one.start)}
    return f"{reverse('alerting:timeline')}?{urlencode({**base, **facts})}#interval"


def _lane(lane: Lane, found: Timeline, base: Mapping[str, str]) -> dict[str, Any]:
    scale = _WIDTH / found.window.length_s
    bars = []
    for one in lane.intervals:
        end = min(one.end, found.window.end)
        width = max(_LEAST, round((end - one.start) * scale))
        left = min(round((one.start - found.window.start) * scale), _WIDTH - width)
        bars.append(
            {
                "interval": one,
                "x": str(max(0, left)),
                "width": str(width),
                "url": interval_url(one, base),
                "start": notification_log.at(one.start),
            }
        )
    return {"lane": lane, "bars": bars}


def _row(one: AlertInterval, sent: Sequence[Any], base: Mapping[str, str]) -> dict[str, Any]:
    return {
        "interval": one,
        "start": notification_log.at(one.start),
        "notifications": notifications_of(one, sent),
        "url": interval_url(one, base),
    }


def notifications_of(one: AlertInterval, sent: Sequence[Any]) -> list[Notification]:
    """Return the notifications of a firing interval; pending alerts send none."""
    if one.state != FIRING:
        return []
    return notification_log.select_notifications(sent, span_of(one))


def span_of(one: AlertInterval) -> AlertSpan:
    end = timezone.now() if one.ongoing else notification_log.at(one.end)
    start = notification_log.at(one.start)
    return AlertSpan(one.rule, one.endpoint, start, end, one.step_s, one.alerts)


def _opened(request: HttpRequest, found: Timeline) -> dict[str, Any] | None:
    """Return the facts of the interval named by the URL; empty facts if it is out of range."""
    name, at = request.GET.get("alert", ""), request.GET.get("at", "")
    if not name:
        return None
    about, state = request.GET.get("about", ""), request.GET.get("state", FIRING)
    one = None
    if at.isascii() and at.isdecimal() and len(at) < 12:
        one = find_interval(found, name, about, state, int(at))
    if one is None:
        return {}
    asker, viewer = connections.fleet(), request.user
    one = refine_interval(asker, one)
    span = span_of(one)
    sent = notification_log.select_notifications(
        notification_log.read_deliveries(viewer, notification_log.at(found.window.start)), span
    )
    muting = notification_log.list_muting(viewer, span)
    firing = one.state == FIRING
    return {
        "interval": one,
        "start": span.start,
        "end": span.end,
        "value": measure_at_start(asker, documents.settings_for(viewer), one),
        "known": one.rule in documents.GROUP_OF or documents.can_see_user_rules(viewer),
        "alerts": [_others(labels) for labels in one.alerts if _others(labels)],
        "notifications": sent,
        "reasons": notification_log.explain_missing(viewer, span) if firing and not sent else [],
        "muting": muting,
        "acknowledged": next(
            (row for row in muting if row.acknowledges and row.current_state == "active"), None
        ),
        "may": _may_operate(viewer, one.endpoint),
        "board": _board(one, request),
        "silence": silence_url(one.rule, one.endpoint),
    }


def _others(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    shown = ("alertname", "severity", "endpoint", "endpoint_name", "namespace", "job", "instance")
    return [(key, value) for key, value in labels.items() if key not in shown and value]


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
