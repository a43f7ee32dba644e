"""Pass over the firing alerts: record when each began and ended, and what follows from it.

Records keep the history of alerts after Prometheus and endpoints are gone. Alerts of a Prometheus
that does not send to Alertmanager are forwarded. While Prometheus cannot be queried no alert ends,
and after `UNKNOWN_AFTER` the alert NoMetrics is sent. An alert ends after it has been missing for
`ENDED_AFTER` while passes ran: a restarted Prometheus has no firing alerts for some seconds. One
that fires again although its condition has not ended, as Prometheus remembers, goes on.

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
from dashboards.alerts.settings import selectors as rule_settings
from dashboards.boards.queries import Scope
from dashboards.boards.queries.promql import selector
from dashboards.prometheus.http.client import Question
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources import selectors as connections

log = logging.getLogger(__name__)
ENDED_AFTER = timedelta(seconds=60)
UNKNOWN_AFTER = timedelta(minutes=2)
KEPT = timedelta(days=180)
_MOST_STEPS = 3600  # of a query for the evaluation at which an alert began or ended
_VALID = timedelta(minutes=3)
"""How long Alertmanager keeps a forwarded alert that is not sent again."""
_QUIET = timedelta(seconds=55)
"""Longest time without a whole pass."""
NO_METRICS: Final = "NoMetrics"
PROMETHEUS_UNREACHABLE, NO_PROMETHEUS, WATCHING = "PrometheusAway", "NoPrometheus", "Looking"
ALERTMANAGER_UNREACHABLE: Final = "AlertmanagerUnreachable"


@dataclass(frozen=True, slots=True)
class FiringState:
    """Firing alerts of all metrics sources. `unknown`: other alerts may be firing, for the reason
    `why`. `undelivered`: why Alertmanager cannot be reached, "" if it responds.
    """

    alerts: tuple[FiringAlert, ...] = ()
    why: str = ""
    unknown: bool = False
    undelivered: str = ""

    @property
    def reason(self) -> str:
        if self.unknown:
            return PROMETHEUS_UNREACHABLE
        return self.why or (ALERTMANAGER_UNREACHABLE if self.undelivered else WATCHING)


def run_pass() -> bool:
    """Run one pass; return False if another process holds the claim."""
    state = read_firing()
    if _is_quiet(state, timezone.now()):
        return True
    watch, _ = AlertWatch.objects.get_or_create(pk=1)
    claim = take_claim(AlertWatch, 1, ttl_s=60)
    if claim is None:
        return False
    now = timezone.now()
    with transaction.atomic():
        # Written first: another process that assumes the claim blocks here and then finds it lost.
        if claim.write(looked_at=now, **_status(state, now)):
            paused = watch.looked_at is None or now - watch.looked_at > 2 * ENDED_AFTER
            record_alerts(state, now, paused=paused)
    _forward(state, now)
    if not state.unknown:
        _end_acknowledgements(state)
    _hand_over(now)
    claim.release(0)
    return True


def read_firing() -> FiringState:
    """Return the firing alerts of all metrics sources, and whether they can be delivered."""
    undelivered = api_client.why_unreachable()
    if not connections.any_known():
        return FiringState(why=NO_PROMETHEUS, undelivered=undelivered)
    firing = firing_alerts.query_firing(connections.fleet(), Scope())
    why = firing.why or firing.missing
    return FiringState(firing.alerts, why, unknown=bool(why), undelivered=undelivered)


def record_alerts(state: FiringState, now: datetime, *, paused: bool = False) -> None:
    """Begin, continue and end the records. `paused`: no pass ran for some time."""
    current = AlertRecord.objects.filter(ended_at=None)
    if state.unknown or paused:
        current.update(seen_at=now)  # the gap does not count towards ENDED_AFTER
    firing = {fingerprint(alert.labels): alert for alert in state.alerts}
    current.filter(fingerprint__in=firing).update(seen_at=now)
    recorded = set(current.values_list("fingerprint", flat=True))
    began = [(mark, alert) for mark, alert in firing.items() if mark not in recorded]
    teams = selectors.team_ids() if began else {}
    starts = _first_evaluations([alert for _, alert in began], now)
    for (mark, alert), start in zip(began, starts, strict=True):
        AlertRecord.objects.update_or_create(
            fingerprint=mark,
            started_at=start,
            defaults={
                "rule": alert.name[:80],
                "endpoint": alert.endpoint[:63],
                "team_id": teams.get(alert.endpoint),
                "severity": alert.severity[:20],
                "labels": dict(alert.labels),
                "seen_at": now,
                "ended_at": None,
            },
        )
    over = list(AlertRecord.objects.filter(ended_at=None, seen_at__lte=now - ENDED_AFTER))
    for row, end in zip(over, _last_evaluations(over, now), strict=True):
        row.ended_at = end or row.seen_at
        row.save(update_fields=["ended_at"])


def _first_evaluations(alerts: Sequence[FiringAlert], now: datetime) -> list[datetime]:
    """Return for each alert the first evaluation at which it fired since its condition holds."""
    begins = [alert.since or now for alert in alerts]
    spans = [int((now - begin).total_seconds()) + 1 for begin in begins]
    moments = _evaluations("min", [alert.labels for alert in alerts], spans, now)
    pairs = zip(moments, begins, strict=True)
    return [max(moment, begin) if moment else now for moment, begin in pairs]


def _last_evaluations(rows: Sequence[AlertRecord], now: datetime) -> list[datetime | None]:
    """Return for each alert the last evaluation at which it fired, None if Prometheus no longer
    knows it.
    """
    moments = _evaluations("max", [row.labels for row in rows], [600] * len(rows), now)
    pairs = zip(moments, rows, strict=True)
    return [max(moment, row.started_at) if moment else None for moment, row in pairs]


def _evaluations(
    which: str, alerts: Sequence[Mapping[str, str]], spans: Sequence[int], now: datetime
) -> list[datetime | None]:
    """Return the first ("min") or last ("max") evaluation within the last seconds at which the
    alert with these labels fired.
    """
    questions = {}
    for number, (labels, span_s) in enumerate(zip(alerts, spans, strict=True)):
        alert = selector({**labels, "alertstate": firing_alerts.FIRING})
        step_s = max(1, span_s // _MOST_STEPS)
        text = f"{which}({which}_over_time(timestamp(ALERTS{alert})[{span_s}s:{step_s}s]))"
        questions[str(number)] = Question(text, int(now.timestamp()))
    answers = connections.fleet().ask(questions) if questions else {}
    latest = [series[0].latest if (series := answers[key].series) else None for key in questions]
    return [datetime.fromtimestamp(moment, UTC) if moment else None for moment in latest]


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
    if row is None or row.claim_until is not None or row.reason != state.reason:
        return False
    return not AlertRecord.objects.filter(ended_at=None).exists()


def _status(state: FiringState, now: datetime) -> dict[str, Any]:
    if not state.unknown:
        return {"reason": state.reason, "message": state.undelivered, "unknown_since": None}
    since = AlertWatch.objects.get(pk=1).unknown_since or now
    return {"reason": state.reason, "message": state.why, "unknown_since": since}


def _forward(state: FiringState, now: datetime) -> None:
    """Send Alertmanager what no Prometheus sends there."""
    manager = api_client.own_alertmanager()
    if manager is None:
        return
    is_forwarded = api_client.forwards()
    starts = dict(
        AlertRecord.objects.filter(ended_at=None).values_list("fingerprint", "started_at")
    )
    forwarded = tuple(alert for alert in state.alerts if is_forwarded(alert.endpoint))
    if forwarded:
        fleet, rules = connections.fleet(), rule_settings.settings()
        forwarded = firing_alerts.describe(fleet, forwarded, rules)
    alerts = [_body(alert, starts.get(fingerprint(alert.labels), now), now) for alert in forwarded]
    alerts += _no_metrics(state, now)
    if not alerts:
        return
    try:
        api_client.post_alerts(manager, alerts)
    except NoReplyError as error:
        log.warning("%d alerts not forwarded to Alertmanager: %s", len(alerts), error)


def _body(alert: FiringAlert, start: datetime, now: datetime) -> dict[str, Any]:
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
        "startsAt": start.isoformat(),
        "endsAt": (now + _VALID).isoformat(),
    }


def _no_metrics(state: FiringState, now: datetime) -> list[dict[str, Any]]:
    """Return the alert for an unreachable Prometheus, which Prometheus cannot raise."""
    since = AlertWatch.objects.get(pk=1).unknown_since
    if not state.unknown or since is None or now - since < UNKNOWN_AFTER:
        return []
    text = f"{state.why} Other notifications are paused meanwhile."
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
