"""Pass over firing alerts: records, forwarding, ends of acknowledgements."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.claims import take_claim
from dashboards.alerts.alertmanager import silences, transitions
from dashboards.alerts.alertmanager.models import AlertRecord, AlertWatch, StoredSilence
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from dashboards.alerts.settings.models import OwnRule, RuleSetting
from dashboards.prometheus.sources import selectors as connections
from tests.support import teams as made
from tests.support.alertmanager import RunningAlertmanager
from tests.support.console import make_endpoint, person

pytestmark = pytest.mark.django_db


class SimulatedAlerts:
    """Alerts in Prometheus and the current time."""

    def __init__(self) -> None:
        self.now = timezone.now()
        self.begun: datetime | None = self.now - timedelta(minutes=1)
        self.names: tuple[str, ...] = ("HighTTFT",)
        self.endpoint = "demo"
        self.why = ""

    def firing(self, *_: Any) -> FiringAlerts:
        if self.why:
            return FiringAlerts(why=self.why)
        return FiringAlerts(tuple(self.alert(name) for name in self.names))

    def alert(self, name: str) -> FiringAlert:
        labels = {"alertname": name, "endpoint": self.endpoint, "severity": "page"}
        return FiringAlert(name, self.endpoint, "", "page", self.begun, labels=labels)

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        assert transitions.run_pass()


@pytest.fixture
def alerts(monkeypatch: Any) -> Iterator[SimulatedAlerts]:
    simulated = SimulatedAlerts()
    path = "dashboards.alerts.evaluation.firing_alerts.query_firing"
    monkeypatch.setattr(path, simulated.firing)
    monkeypatch.setattr(connections, "any_known", lambda: True)
    monkeypatch.setattr(timezone, "now", lambda: simulated.now)
    monkeypatch.setattr(transitions, "_last_evaluations", lambda rows, _now: [None] * len(rows))
    starts = lambda alerts, now: [alert.since or now for alert in alerts]  # noqa: E731
    monkeypatch.setattr(transitions, "_first_evaluations", starts)
    yield simulated


def test_record_begins_with_the_alert_and_ends_with_it(alerts: SimulatedAlerts) -> None:
    alerts.later(0)
    (row,) = AlertRecord.objects.all()
    assert (row.rule, row.endpoint, row.severity) == ("HighTTFT", "demo", "page")
    assert (row.started_at, row.ended_at) == (alerts.begun, None)
    alerts.later(10)
    last = alerts.now
    alerts.names = ()
    alerts.later(30)
    assert AlertRecord.objects.get().ended_at is None  # as after a restart of Prometheus
    alerts.later(31)
    assert AlertRecord.objects.get().ended_at == last
    alerts.names, alerts.begun = ("HighTTFT",), alerts.now
    alerts.later(10)
    assert AlertRecord.objects.count() == 2


def test_alert_that_goes_on_after_a_restart_of_prometheus_is_one_record(
    alerts: SimulatedAlerts,
) -> None:
    """Prometheus restores since when the condition holds, and waits before the alert fires anew."""
    alerts.later(0)
    alerts.names = ()
    for _ in range(7):
        alerts.later(10)
    assert AlertRecord.objects.get().ended_at is not None
    alerts.names = ("HighTTFT",)
    alerts.later(10)
    assert AlertRecord.objects.get().ended_at is None


def test_a_restart_of_the_console_ends_nothing(alerts: SimulatedAlerts) -> None:
    alerts.later(0)
    alerts.names = ()
    alerts.later(600)
    assert AlertRecord.objects.get().ended_at is None
    alerts.later(61)
    assert AlertRecord.objects.get().ended_at is not None


def test_unknown_state_ends_nothing(alerts: SimulatedAlerts) -> None:
    alerts.later(0)
    alerts.why = "Prometheus does not respond"
    for _ in range(12):
        alerts.later(30)
    assert AlertRecord.objects.get().ended_at is None
    watch = AlertWatch.objects.get()
    assert (watch.reason, watch.message) == ("PrometheusAway", alerts.why)
    alerts.why, alerts.names = "", ()
    alerts.later(10)
    assert AlertRecord.objects.get().ended_at is None  # the gap does not count
    alerts.later(61)
    assert AlertRecord.objects.get().ended_at is not None


def test_one_source_of_several_that_is_away_ends_nothing(
    alerts: SimulatedAlerts, monkeypatch: Any
) -> None:
    path = "dashboards.alerts.evaluation.firing_alerts.query_firing"
    monkeypatch.setattr(path, lambda *_: FiringAlerts((), missing="west is away"))
    state = transitions.read_firing()
    assert (state.unknown, state.why) == (True, "west is away")


def test_quiet_console_writes_nothing(
    alerts: SimulatedAlerts, django_assert_max_num_queries: Any
) -> None:
    alerts.names = ()
    alerts.later(0)
    before = AlertWatch.objects.get()
    with django_assert_max_num_queries(3):
        alerts.later(10)
    assert AlertWatch.objects.get().updated_at == before.updated_at
    alerts.later(60)
    assert AlertWatch.objects.get().looked_at == alerts.now


def test_one_process_at_a_time(alerts: SimulatedAlerts) -> None:
    alerts.later(0)
    taken = take_claim(AlertWatch, 1, ttl_s=60)
    assert taken is not None
    assert transitions.run_pass() is False
    taken.release(0)
    assert transitions.run_pass() is True


def test_alerts_of_a_prometheus_without_alertmanager_are_forwarded(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://console.example.org"
    RuleSetting.objects.create(rule="HighTTFT", endpoint=None, values={"threshold": 9.0})
    OwnRule.objects.create(name="Mine", expr="x", summary="{{ $labels.severity }} {{ $value }}")
    alerts.names = ("HighTTFT", "Mine")
    alerts.later(0)
    by_rule = {each["labels"]["alertname"]: each for each in alertmanager.alerts()}
    sent, mine = by_rule["HighTTFT"], by_rule["Mine"]
    assert sent["labels"] == {"alertname": "HighTTFT", "endpoint": "demo", "severity": "page"}
    notes = sent["annotations"]
    assert notes["summary"] == "demo: TTFT p95 is above 9 s", "the threshold in effect"
    assert "scale up" in notes["description"]
    assert mine["annotations"]["summary"] == "demo: page unknown", "no Prometheus responds"
    assert notes["runbook_url"] == "https://console.example.org/alerts/rules/HighTTFT/"
    # The bundled Prometheus sends its alerts itself.
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_embedded=True)
    alerts.names = ("IndexStale",)
    alerts.later(10)
    assert {each["labels"]["alertname"] for each in alertmanager.alerts()} == {"HighTTFT", "Mine"}


def test_silent_prometheus_is_an_alert(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager, settings: Any
) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_embedded=True)
    alerts.why = "The server is unreachable."
    alerts.later(0)
    alerts.later(60)
    assert alertmanager.alerts() == []
    alerts.later(61)
    (sent,) = alertmanager.alerts()
    assert sent["labels"] == {"alertname": "NoMetrics", "severity": "page"}
    assert "The server is unreachable." in sent["annotations"]["description"]


def test_unreachable_alertmanager_stops_no_record(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager, settings: Any
) -> None:
    settings.EMBERLINE = dataclasses.replace(
        settings.EMBERLINE, alertmanager_url="http://127.0.0.1:9"
    )
    alerts.later(0)
    assert AlertRecord.objects.count() == 1
    watch = AlertWatch.objects.get()
    assert watch.claim_until is None
    assert (watch.reason, bool(watch.message)) == ("AlertmanagerUnreachable", True)


def test_quiet_pass_notices_an_unreachable_alertmanager(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager, settings: Any
) -> None:
    alerts.names = ()
    alerts.later(0)
    alerts.later(10)
    assert AlertWatch.objects.get().reason == "Looking"
    settings.EMBERLINE = dataclasses.replace(
        settings.EMBERLINE, alertmanager_url="http://127.0.0.1:9"
    )
    alerts.later(10)
    assert AlertWatch.objects.get().reason == "AlertmanagerUnreachable"


def test_acknowledgement_ends_when_its_alert_is_resolved(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager
) -> None:
    make_endpoint("demo")
    alerts.later(0)
    facts = {"alert": "HighTTFT", "endpoint": "demo", "note": "on it"}
    silences.acknowledge(person("operator"), facts)
    alerts.later(10)
    alerts.names = ()
    alerts.later(30)
    assert [one.reason for one in silences.read_acknowledgements()] == ["on it"]
    alerts.later(31)
    assert silences.read_acknowledgements() == []


def test_silences_of_an_earlier_version_are_handed_over(
    alerts: SimulatedAlerts, alertmanager: RunningAlertmanager
) -> None:
    matcher = {"name": "endpoint", "op": "=", "value": "demo"}
    for kind, hours in (("silence", 2), ("acknowledgement", 3), ("silence", -1)):
        StoredSilence.objects.create(
            kind=kind,
            matchers=[matcher],
            starts_at=alerts.now - timedelta(hours=2),
            ends_at=alerts.now + timedelta(hours=hours),
            comment="works",
            author="ada",
        )
    alerts.later(0)
    assert not StoredSilence.objects.exists()
    rows = silences.list_silences(person("viewer")).rows
    assert {(one.kind, one.reason, one.author) for one in rows} == {
        ("silence", "works", "ada"),
        ("acknowledgement", "works", "ada"),
    }
    ends = sorted(round((one.ends_at - alerts.now).total_seconds()) for one in rows)
    assert ends == [2 * 3600, 3 * 3600]


def test_record_keeps_the_team_of_its_endpoint(alerts: SimulatedAlerts) -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    alerts.endpoint = made.OURS
    alerts.later(0)
    assert AlertRecord.objects.get().team == teams.ours


def test_old_records_are_pruned(alerts: SimulatedAlerts) -> None:
    alerts.later(0)
    transitions.prune(alerts.now + timedelta(days=400))
    assert AlertRecord.objects.count() == 1  # still fires
    alerts.names = ()
    alerts.later(61)
    transitions.prune(alerts.now + timedelta(days=179))
    assert AlertRecord.objects.count() == 1
    transitions.prune(alerts.now + timedelta(days=181))
    assert not AlertRecord.objects.exists()
