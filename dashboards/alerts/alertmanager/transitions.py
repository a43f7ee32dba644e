"""Pass over the firing alerts: record when each began and ended, and what follows from it.

Records keep the history of alerts after Prometheus and endpoints are gone. Alerts of a Prometheus
that does not send to Alertmanager are forwarded. While Prometheus cannot be queried no alert ends,
and after `UNKNOWN_AFTER` the alert NoMetrics is sent. An alert ends after it has been missing for
`ENDED_AFTER`: after a restart Prometheus has no firing alerts for some seconds.

One process runs at a time; the next pass repairs a crashed one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.claims import take_claim
from dashboards.alerts.alertmanager import api_client, selectors, silences
from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.models import AlertRecord, AlertWatch, StoredSilence
from dashboards.alerts.evaluation import firing_alerts
from dashboards.alerts.evaluation.firing_alerts import FiringAlert
from dashboards.boards.queries import Scope
from dashboards.boards.queries.promql import selector
from dashboards.prometheus.http.client import Question
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources import selectors as connections

log = logging.getLogger(__name__)
ENDED_AFTER = timedelta(seconds=60)
UNKNOWN_AFTER = timedelta(minutes=2)
KEPT = timedelta(days=180)
_VALID = timedelta(minutes=3)
"""How long Alertmanager keeps a forwarded alert that is not sent again."""
_QUIET = timedelta(seconds=55)
"""Longest time without a whole pass."""
NO_METRICS: Final = "NoMetrics"
PROMETHEUS_UNREACHABLE, NO_PROMETHEUS, WATCHING = "PrometheusAway", "NoPrometheus", "Looking"


@dataclass(frozen=True, slots=True)
class FiringState:
    """Firing alerts of all metrics sources. `unknown`: other alerts may be firing, for the reason
    `why`.
    """

    alerts: tuple[FiringAlert, ...] = ()
    why: str = ""
    unknown: bool = False


def run_pass() -> bool:
    """Run one pass; return False if another process holds the claim."""
    state = read_firing()
    if _is_quiet(state, timezone.now()):
        return True
    AlertWatch.objects.get_or_create(pk=1)
    claim = take_claim(AlertWatch, 1, ttl_s=60)
    if claim is None:
        return False
    now = timezone.now()
    with transaction.atomic():
        # Written first: another process that assumes the claim blocks here and then finds it lost.
        if claim.write(looked_at=now, **_status(state, now)):
            record_alerts(state, now)
    _forward(state, now)
    if not state.unknown:
        _end_acknowledgements(state)
    _hand_over(now)
    claim.release(0)
    return True


def read_firing() -> FiringState:
    """Return the firing alerts of all metrics sources."""
    if not connections.any_known():
        return FiringState(why=NO_PROMETHEUS)
    firing = firing_alerts.query_firing(connections.fleet(), Scope())
    why = firing.why or firing.missing
    return FiringState(firing.alerts, why, unknown=bool(why))


def record_alerts(state: FiringState, now: datetime) -> None:
    """Begin, continue and end the records."""
    current = AlertRecord.objects.filter(ended_at=None)
    if state.unknown:
        current.update(seen_at=now)  # the gap does not count towards ENDED_AFTER
    open_records = {alert.fingerprint: alert for alert in current}
    teams = selectors.team_ids() if state.alerts else {}
    recorded = []
    for alert in state.alerts:
        mark = fingerprint(alert.labels)
        if mark in open_records:
            recorded.append(open_records[mark].pk)
            continue
        AlertRecord.objects.get_or_create(
            fingerprint=mark,
            started_at=alert.since or now,
            defaults={
                "rule": alert.name[:80],
                "endpoint": alert.endpoint[:63],
                "team_id": teams.get(alert.endpoint),
                "severity": alert.severity[:20],
                "labels": dict(alert.labels),
                "seen_at": now,
            },
        )
    AlertRecord.objects.filter(pk__in=recorded).update(seen_at=now)
    over = list(AlertRecord.objects.filter(ended_at=None, seen_at__lte=now - ENDED_AFTER))
    for row, end in zip(over, _last_evaluations(over, now), strict=True):
        row.ended_at = end or row.seen_at
        row.save(update_fields=["ended_at"])


def _last_evaluations(rows: Sequence[AlertRecord], now: datetime) -> list[datetime | None]:
    """Return for each alert the last evaluation at which it fired, None if Prometheus no longer
    knows it.
    """
    questions = {}
    for row in rows:
        alert = selector({**row.labels, "alertstate": firing_alerts.FIRING})
        text = f"max(max_over_time(timestamp(ALERTS{alert})[10m:1s]))"
        questions[str(row.pk)] = Question(text, int(now.timestamp()))
    answers = connections.fleet().ask(questions) if questions else {}
    last_evaluations: list[datetime | None] = []
    for row in rows:
        series = answers[str(row.pk)].series
        latest = series[0].latest if series else None
        moment = datetime.fromtimestamp(latest, UTC) if latest else None
        last_evaluations.append(max(moment, row.started_at) if moment else None)
    return last_evaluations


def prune(now: datetime) -> None:
    AlertRecord.objects.filter(ended_at__lt=now - KEPT).delete()


def fingerprint(labels: Mapping[str, str]) -> str:
    pairs = sorted(labels.items())
    return hashlib.blake2b(repr(pairs).encode(), digest_size=8).hexdigest()


def _is_quiet(state: FiringState, now: datetime) -> bool:
    """Return whether a pass would write its time only. Claims nothing, so that an idle console
    writes little.
    """
    if state.unknown or state.alerts:
        return False
    row = AlertWatch.objects.filter(pk=1, unknown_since=None, looked_at__gt=now - _QUIET).first()
    if row is None or row.claim_until is not None or row.reason != (state.why or WATCHING):
        return False
    return not AlertRecord.objects.filter(ended_at=None).exists()


def _status(state: FiringState, now: datetime) -> dict[str, Any]:
    if not state.unknown:
        return {"reason": state.why or WATCHING, "message": "", "unknown_since": None}
    since = AlertWatch.objects.get(pk=1).unknown_since or now
    return {"reason": PROMETHEUS_UNREACHABLE, "message": state.why, "unknown_since": since}


def _forward(state: FiringState, now: datetime) -> None:
    """Send Alertmanager what no Prometheus sends there."""
    manager = api_client.own_alertmanager()
    if manager is None:
        return
    is_forwarded = api_client.forwards()
    alerts = [_body(alert, now) for alert in state.alerts if is_forwarded(alert.endpoint)]
    alerts += _no_metrics(state, now)
    if not alerts:
        return
    try:
        api_client.post_alerts(manager, alerts)
    except NoReplyError as error:
        log.warning("%d alerts not forwarded to Alertmanager: %s", len(alerts), error)


def _body(alert: FiringAlert, now: datetime) -> dict[str, Any]:
    whose = f"{alert.endpoint}: " if alert.endpoint else ""
    notes = {
        "summary": f"{whose}{alert.summary}" if alert.summary else "",
        "description": alert.remedy,
    }
    if settings.PUBLIC_URL:
        notes["runbook_url"] = f"{settings.PUBLIC_URL}/alerts/rules/{alert.name}/"
    return {
        "labels": dict(alert.labels),
        "annotations": {name: text for name, text in notes.items() if text},
        "startsAt": (alert.since or now).isoformat(),
        "endsAt": (now + _VALID).isoformat(),
    }


def _no_metrics(state: FiringState, now: datetime) -> list[dict[str, Any]]:
    """Return the alert for an unreachable Prometheus, which Prometheus cannot raise."""
    since = AlertWatch.objects.get(pk=1).unknown_since
    if not state.unknown or since is None or now - since < UNKNOWN_AFTER:
        return []
    text = f"{state.why} Other notifications are paused until Prometheus responds."
    return [
        {
            "labels": {"alertname": NO_METRICS, "severity": "page"},
            "annotations": {"summary": "Alert state unknown.", "description": text},
            "startsAt": since.isoformat(),
            "endsAt": (now + _VALID).isoformat(),
        }
    ]


def _end_acknowledgements(state: FiringState) -> None:
    """End the acknowledgements whose alerts have ended; those ended recently still count."""
    if not api_client.list_alertmanagers():
        return
    recent = AlertRecord.objects.filter(ended_at=None).values_list("labels", flat=True)
    silences.end_resolved(
        silences.read_acknowledgements(), [*(alert.labels for alert in state.alerts), *recent]
    )


def _hand_over(now: datetime) -> None:
    """Give Alertmanager the silences that an earlier version kept itself."""
    rows = list(StoredSilence.objects.all()[:200])
    manager = api_client.own_alertmanager() if rows else None
    if manager is None:
        return
    for row in rows:
        mark = silences.ACKNOWLEDGED if row.kind == "acknowledgement" else ""
        body = silences.make_body(
            matchers.from_data(row.matchers),
            (max(row.starts_at, now), row.ends_at),
            row.author,
            f"{mark} {row.comment}".strip() or "-",
        )
        try:
            if row.ends_at > now:
                api_client.put_silence(manager, body)
        except NoReplyError as error:
            log.warning("silence %s not handed to Alertmanager: %s", row.pk, error)
            return
        row.delete()
