"""Create deliveries for firing alerts: the console as its own Alertmanager.

One process runs at a time. Level-triggered: due messages follow from rows alone, so the next pass
repairs a crashed one. A message and the record of it are one transaction. While Prometheus cannot
be queried no alert resolves; after `UNKNOWN` the alert NoMetrics is sent. Nothing is sent from
here.

An alert resolves after it has been missing for `MISSING`: after a restart Prometheus has no firing
alerts for some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.claims import take_claim
from dashboards.alerts.evaluation import firing_alerts
from dashboards.alerts.notify import acknowledgements, alertmanagers, selectors
from dashboards.alerts.notify.models import (
    Delivery,
    DeliveryState,
    Dispatch,
    Group,
    Route,
    SeenAlert,
    Silence,
    SilenceKind,
)
from dashboards.alerts.notify.protocol import alert as protocol_groups
from dashboards.alerts.notify.protocol import matchers, message
from dashboards.alerts.notify.protocol.alert import TEAM, Alert
from dashboards.boards.queries import Scope
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

RESOLVED_AFTER = timedelta(seconds=60)
UNKNOWN_AFTER = timedelta(minutes=2)
_FORGOTTEN = timedelta(days=3)
_QUIET = timedelta(seconds=55)
"""Longest time without a whole pass."""
NO_METRICS: Final = "NoMetrics"
PROMETHEUS_UNREACHABLE, NO_PROMETHEUS, LOOKING = "PrometheusAway", "NoPrometheus", "Looking"

Alerts = dict[str, Alert]


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """`alerts`: those the console delivers; `all_labels`: of every firing alert. `unknown`: other
    alerts may be firing, for the reason `why`.
    """

    alerts: tuple[Alert, ...]
    why: str = ""
    unknown: bool = False
    all_labels: tuple[Mapping[str, str], ...] = ()


def dispatch() -> bool:
    """Run one pass; return False if another process holds the claim."""
    if _is_quiet(timezone.now()):
        return True
    Dispatch.objects.get_or_create(pk=1)
    taken = take_claim(Dispatch, 1, ttl_s=60)
    if taken is None:
        return False
    seen = read_firing()
    now = timezone.now()
    silences: list[Silence] = []
    with transaction.atomic():
        # Written first: another process that assumes the claim blocks here and then finds it lost.
        if taken.write(looked_at=now, **_state(seen, now)):
            active, ended = _keep(seen, now)
            silences = selectors.active_silences()
            _owe(active, ended, silences, now)
    acknowledged = [one for one in silences if one.acknowledges]
    acknowledgements.end_resolved(acknowledged, seen.all_labels, now, unknown=seen.unknown)
    taken.release(0)
    return True


def _is_quiet(now: datetime) -> bool:
    """Return whether a pass would write its time only: no alert is firing, and none is recorded,
    waits in a group or is acknowledged. Claims nothing, so that an idle console writes little.
    """
    row = Dispatch.objects.filter(pk=1, unknown_since=None, looked_at__gt=now - _QUIET).first()
    if row is None or row.claim_until is not None:
        return False
    standing = (
        SeenAlert.objects.filter(ended_at=None),
        Group.objects.all(),
        Silence.objects.filter(kind=SilenceKind.ACKNOWLEDGEMENT, ends_at__gt=now),
    )
    if any(rows.exists() for rows in standing):
        return False
    seen = read_firing()
    return not (seen.unknown or seen.all_labels) and row.reason == (seen.why or LOOKING)


def read_firing() -> DispatchResult:
    """Return the firing alerts from Prometheus without those that an Alertmanager delivers."""
    if not connections.any_known():
        return DispatchResult((), NO_PROMETHEUS)
    found = firing_alerts.query_firing(connections.fleet(), Scope())
    teams, elsewhere = selectors.teams(), alertmanagers.alertmanager_delivers()
    ours = tuple(_alert_of(one, teams) for one in found.alerts if not elsewhere(one.endpoint))
    why = found.why or found.missing
    labels = tuple(one.labels for one in found.alerts)
    return DispatchResult(ours, why, unknown=bool(why), all_labels=labels)


def _alert_of(one: Any, teams: Mapping[str, str]) -> Alert:
    labels = dict(one.labels)
    if one.endpoint in teams:
        labels.setdefault(TEAM, teams[one.endpoint])
    whose = f"{one.endpoint}: " if one.endpoint else ""
    notes = {"summary": f"{whose}{one.summary}" if one.summary else "", "description": one.remedy}
    return Alert(labels, {k: v for k, v in notes.items() if v}, one.since)


def _state(seen: DispatchResult, now: datetime) -> dict[str, Any]:
    if not seen.unknown:
        return {"reason": seen.why or LOOKING, "message": "", "unknown_since": None}
    since = Dispatch.objects.get(pk=1).unknown_since or now
    return {"reason": PROMETHEUS_UNREACHABLE, "message": seen.why, "unknown_since": since}


def _keep(seen: DispatchResult, now: datetime) -> tuple[Alerts, Alerts]:
    """Record the observed alerts; return all that are firing and all that resolved recently."""
    _see(seen.alerts, now)
    if seen.unknown:
        # The state is unknown: alerts stay as they are, and the gap does not count towards
        # `MISSING`.
        SeenAlert.objects.filter(ended_at=None).update(seen_at=now)
        _see(_unknown(seen, now), now)
    else:
        lost = SeenAlert.objects.filter(ended_at=None, seen_at__lte=now - RESOLVED_AFTER)
        lost.update(ended_at=now)
    SeenAlert.objects.filter(ended_at__lt=now - _FORGOTTEN).delete()
    alerts = {
        row.fingerprint: Alert(row.labels, row.annotations, row.started_at, row.ended_at)
        for row in SeenAlert.objects.all()
    }
    active = {key: one for key, one in alerts.items() if one.ended is None}
    return active, {key: one for key, one in alerts.items() if one.ended is not None}


def _unknown(seen: DispatchResult, now: datetime) -> list[Alert]:
    """Return the alert for an unreachable Prometheus, which Prometheus cannot raise."""
    since = Dispatch.objects.get(pk=1).unknown_since
    if since is None or now - since < UNKNOWN_AFTER:
        return []
    notes = {
        "summary": "Alert state unknown.",
        "description": f"{seen.why} Other notifications are paused until Prometheus responds.",
    }
    return [Alert({"alertname": NO_METRICS, "severity": "page"}, notes, since)]


def _see(alerts: Iterable[Alert], now: datetime) -> None:
    rows = {}
    for one in alerts:
        facts = {"labels": dict(one.labels), "annotations": dict(one.annotations)}
        times = {"started_at": one.started or now, "seen_at": now, "ended_at": None}
        rows[one.fingerprint] = SeenAlert(fingerprint=one.fingerprint, **facts, **times)
    SeenAlert.objects.bulk_create(
        rows.values(),
        update_conflicts=True,
        unique_fields=["fingerprint"],
        update_fields=["labels", "annotations", "started_at", "seen_at", "ended_at"],
    )


def _owe(active: Alerts, ended: Alerts, silences: Iterable[Silence], now: datetime) -> None:
    muted = [one.conditions for one in silences]
    loud = [a for a in active.values() if not any(matchers.matches(s, a.labels) for s in muted)]
    names = dict(endpoints.endpoints().values_list("name", "pk"))
    for route in selectors.routes().filter(receiver__enabled=True).prefetch_related("groups"):
        mine = [one for one in loud if matchers.matches(route.conditions, one.labels)]
        _owe_of(route, mine, ended, now, names)


def _owe_of(
    route: Route, mine: list[Alert], ended: Alerts, now: datetime, names: Mapping[str, Any]
) -> None:
    terms = protocol_groups.Terms(
        route.wait_s, route.interval_s, route.repeat_s, route.send_resolved
    )
    members: dict[str, list[Alert]] = {}
    for one in mine:
        labels = protocol_groups.group_labels(one, route.group_by)
        members.setdefault(protocol_groups.group_key(labels), []).append(one)
    groups = {group.key: group for group in route.groups.all()}
    for key, alerts in members.items():
        if key not in groups:
            labels = protocol_groups.group_labels(alerts[0], route.group_by)
            due = protocol_groups.new_status(alerts, terms, now).due_at
            groups[key] = Group.objects.create(route=route, key=key, labels=labels, due_at=due)
    for key, group in groups.items():
        firing_now = {one.fingerprint: one for one in members.get(key, [])}
        standing = protocol_groups.GroupStatus(group.due_at, frozenset(group.sent), group.sent_at)
        decision = protocol_groups.decide(standing, terms, firing_now, ended, now)
        if decision.send:
            _write(group, route, decision.send, names)
        _settle(group, standing, decision)


def _settle(
    group: Group, before: protocol_groups.GroupStatus, decision: protocol_groups.GroupDecision
) -> None:
    if decision.over:
        group.delete()
        return
    after = decision.standing
    if after != before:
        group.sent = dict.fromkeys(sorted(after.sent), message.FIRING)
        group.sent_at, group.due_at = after.sent_at, after.due_at
        group.save(update_fields=["sent", "sent_at", "due_at"])


def _write(group: Group, route: Route, alerts: tuple[Alert, ...], names: Mapping[str, Any]) -> None:
    """Create a delivery; it replaces one still waiting, which is out of date."""
    group.deliveries.filter(state=DeliveryState.WAITING).update(
        state=DeliveryState.DROPPED,
        error="Superseded by a later notification.",
        ended_at=timezone.now(),
    )
    receiver = route.receiver
    body = message.build_document(
        receiver.name, f"{route.pk}:{group.key}", group.labels, alerts, settings.PUBLIC_URL
    )
    about = {one.endpoint for one in alerts}
    Delivery.objects.create(
        receiver=receiver,
        receiver_name=receiver.name,
        kind=receiver.kind,
        group=group,
        endpoint_id=names.get(about.pop()) if len(about) == 1 else None,
        title=message.format_title(body),
        body=body,
    )
