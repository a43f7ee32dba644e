"""Acknowledge firing alerts: silences of one rule and endpoint that end when the alert is resolved.

Repeated notifications stop; the resolution is sent to the receivers that were notified.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from console.core.errors import Gathered, Problem, Refused
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.evaluation import firing_alerts
from dashboards.alerts.notify import alertmanagers, input_values, selectors, silences
from dashboards.alerts.notify.models import Silence, SilenceKind
from dashboards.alerts.notify.protocol import matchers
from dashboards.alerts.notify.protocol.matchers import Matcher
from dashboards.prometheus.sources import selectors as connections

log = logging.getLogger(__name__)
FIELDS: Final = ("alert", "endpoint", "note", "duration")
LONGEST: Final = "7d"
"""An acknowledgement that is never resolved expires, and notifications resume."""
RESOLVED_AFTER: Final = timedelta(seconds=60)


def create(actor: Any, data: Any) -> Silence:
    """Acknowledge the firing alerts of a rule and endpoint ("" for alerts without endpoint)."""
    given = input_values.parse_mapping(data, FIELDS)
    gathered = Gathered()
    alert = gathered.take(input_values.parse_text, given, "alert", 80, needed=True) or ""
    endpoint = gathered.take(input_values.parse_text, given, "endpoint", 63) or ""
    note = gathered.take(input_values.parse_text, given, "note", 500) or ""
    gathered.end()
    _expect_firing(actor, alert, endpoint)
    conditions = Matcher("alertname", "=", alert), Matcher("endpoint", "=", endpoint)
    found = find(conditions)
    if found is not None:
        text = f"{alert} is already acknowledged by {found.author}."
        remedy = "Undo that acknowledgement first to replace it."
        raise Refused(Problem("alert", alert, text, remedy, "acknowledged"), status_code=409)
    fields = {
        "matchers": [str(one) for one in conditions],
        "comment": note,
        "duration": given.get("duration") or LONGEST,
    }
    return silences.create(actor, fields, SilenceKind.ACKNOWLEDGEMENT)


def find(conditions: Iterable[Matcher]) -> Silence | None:
    """Return the active acknowledgement with exactly these matchers."""
    wanted = tuple(conditions)
    live = selectors.silences_in_state("active")
    rows = Silence.objects.filter(live, kind=SilenceKind.ACKNOWLEDGEMENT).order_by("created_at")
    return next((one for one in rows if one.conditions == wanted), None)


def _expect_firing(actor: Any, alert: str, endpoint: str) -> None:
    """Raise `Refused` if the alert is known not to fire."""
    scope = dashboards_selectors.get_fleet_scope(actor)
    found = firing_alerts.query_firing(connections.fleet(), scope)
    if found.why or any((one.name, one.endpoint) == (alert, endpoint) for one in found.alerts):
        return
    whose = f"{alert} of {endpoint}" if endpoint else alert
    text = f"{whose} is not firing, so there is nothing to acknowledge."
    remedy = "To suppress notifications in advance, create a silence."
    raise Refused(Problem("alert", alert, text, remedy, "not_firing"), status_code=409)


def end_resolved(
    rows: Iterable[Silence], firing: Iterable[Mapping[str, str]], now: datetime, *, unknown: bool
) -> None:
    """End the active acknowledgements whose alerts have been missing from `firing` for long enough.

    While the firing alerts are `unknown` none ends. If an Alertmanager does not confirm the end, it
    is retried by the next pass.
    """
    labels = list(firing)
    matched = []
    for row in rows:
        if unknown or any(matchers.matches(row.conditions, one) for one in labels):
            matched.append(row.pk)
        elif row.matched_at is None or row.matched_at <= now - RESOLVED_AFTER:
            _end(row, now)
    if matched:
        Silence.objects.filter(pk__in=matched).update(matched_at=now)


def _end(row: Silence, now: datetime) -> None:
    try:
        alertmanagers.expire_silences(row.remote)
    except Refused as refused:
        log.warning("could not end acknowledgement %s in its Alertmanager: %s", row.pk, refused)
        return
    Silence.objects.filter(pk=row.pk, ends_at__gt=now).update(ends_at=now)
