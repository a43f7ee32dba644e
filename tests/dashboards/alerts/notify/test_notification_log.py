"""Notifications of an alert's interval, and why there are none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from dashboards.alerts.notify import notification_log, receivers, routes, silences
from dashboards.alerts.notify.models import Delivery, Route
from dashboards.alerts.notify.notification_log import AlertSpan
from tests.support import teams as made
from tests.support.console import make_endpoint, person
from tests.support.teams import OURS

pytestmark = pytest.mark.django_db
LABELS = {"alertname": "HighTTFT", "endpoint": "demo", "severity": "page"}


def span(ago_s: int = 3600, lasting_s: int = 600, **more: Any) -> AlertSpan:
    start = timezone.now() - timedelta(seconds=ago_s)
    labels = more.pop("labels", LABELS)
    end = start + timedelta(seconds=lasting_s)
    return AlertSpan("HighTTFT", labels["endpoint"], start, end, 15, [labels])


def reason(one: AlertSpan, viewer: Any = None) -> str:
    (found,) = notification_log.explain_missing(viewer or person("viewer"), one)
    return found.text


def receiver(*matchers: str, age_s: int = 86_400) -> Route:
    fields = {"name": "on-call", "kind": "email", "to": ["a@example.org"]}
    receivers.create(person("admin"), fields)
    made = routes.create(person("admin"), {"receiver": "on-call", "matchers": list(matchers)})
    Route.objects.update(created_at=timezone.now() - timedelta(seconds=age_s))
    return made


def delivered(status: str, ago_s: int, ended_ago_s: int = 0, name: str = "HighTTFT") -> None:
    ended = timezone.now() - timedelta(seconds=ended_ago_s)
    alert = {"status": status, "labels": {**LABELS, "alertname": name}}
    row = Delivery.objects.create(
        receiver_name="on-call",
        kind="email",
        title="x",
        body={"alerts": [{**alert, "endsAt": ended.strftime("%Y-%m-%dT%H:%M:%SZ")}]},
    )
    when = timezone.now() - timedelta(seconds=ago_s)
    Delivery.objects.filter(pk=row.pk).update(created_at=when)


def test_notifications_belong_to_the_interval_of_their_alert() -> None:
    delivered("firing", 7200)  # an earlier interval
    delivered("firing", 3500)
    delivered("firing", 3500, name="HighITL")
    delivered("resolved", 2700, ended_ago_s=2990)
    delivered("firing", 60)  # a later one
    since = timezone.now() - timedelta(days=1)
    rows = notification_log.read_deliveries(person("viewer"), since)
    found = notification_log.select_notifications(rows, span())
    assert [one.resolved for one in found] == [False, True]
    assert found[0].outcome == "Waiting"


def test_each_suppression_reason_is_named() -> None:
    make_endpoint("demo")
    assert reason(span()) == "No alert receivers configured."
    receiver('severity="ticket"')
    assert reason(span()) == "No route matches this alert."
    Route.objects.update(matchers=[])
    assert "group wait of 30 s" in reason(span(lasting_s=20))
    assert "background worker" in reason(span())
    assert "created later" in reason(span(ago_s=2 * 86_400))
    assert "30 days" in reason(span(ago_s=40 * 86_400))
    receivers.change(person("admin"), "on-call", {"enabled": False})
    assert "disabled" in reason(span())


def test_foreign_silence_is_named_without_its_text() -> None:
    teams = made.teams()
    labels = {**LABELS, "endpoint": OURS}
    fields = {"matchers": ["severity=page"], "comment": "a secret plan"}
    silences.create(person("operator"), fields)
    one = span(ago_s=30, lasting_s=60, labels=labels)
    assert reason(one, teams.erin) == "Suppressed by a platform-wide silence."
    assert "a secret plan" in reason(one)


def test_delivery_by_alertmanager_is_stated(monkeypatch: Any) -> None:
    path = "dashboards.alerts.notify.alertmanagers.alertmanager_delivers"
    monkeypatch.setattr(path, lambda: lambda _endpoint: True)
    assert "has no record" in reason(span())
