"""Acknowledgements: repeats stop, the resolution is sent, and they end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from console.core.errors import Refused
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from dashboards.alerts.notify import acknowledgements, alertmanagers, dispatcher, receivers
from dashboards.alerts.notify.models import Delivery, Silence, SilenceKind
from dashboards.prometheus.sources import selectors as connections
from tests.support import teams as made
from tests.support.console import browser, make_endpoint, person, program
from tests.support.people import client_of
from tests.support.teams import OURS

pytestmark = pytest.mark.django_db
API = "/api/v1/acknowledgements/"


class SimulatedAlerts:
    """Alerts in Prometheus and the current time."""

    def __init__(self) -> None:
        self.now = timezone.now()
        self.names: tuple[str, ...] = ("HighTTFT",)
        self.endpoint = "demo"
        self.why = ""

    def firing(self, *_: Any) -> FiringAlerts:
        if self.why:
            return FiringAlerts(why=self.why)
        return FiringAlerts(tuple(self.alert(name) for name in self.names))

    def alert(self, name: str) -> FiringAlert:
        labels = {"alertname": name, "endpoint": self.endpoint, "severity": "page"}
        began = self.now - timedelta(minutes=1)
        return FiringAlert(name, self.endpoint, "", "page", began, "slow", "Check.", labels)

    def later(self, seconds: float) -> list[str]:
        """Run a pass then; return the status of each new notification."""
        known = set(Delivery.objects.values_list("pk", flat=True))
        self.now += timedelta(seconds=seconds)
        assert dispatcher.dispatch()
        return [one.body["status"] for one in Delivery.objects.exclude(pk__in=known)]


@pytest.fixture
def simulated_alerts(monkeypatch: Any) -> Iterator[SimulatedAlerts]:
    alerts = SimulatedAlerts()
    path = "dashboards.alerts.evaluation.firing_alerts.query_firing"
    monkeypatch.setattr(path, alerts.firing)
    monkeypatch.setattr(connections, "any_known", lambda: True)
    monkeypatch.setattr(timezone, "now", lambda: alerts.now)
    yield alerts


def acknowledge(**more: str) -> Silence:
    fields = {"alert": "HighTTFT", "endpoint": "demo", "note": "on it", **more}
    return acknowledgements.create(person("operator"), fields)


def test_acknowledgement_stops_repeats_and_the_resolution_is_sent(
    simulated_alerts: SimulatedAlerts,
) -> None:
    make_endpoint("demo")
    fields = {"name": "on-call", "kind": "email", "to": ["a@example.org"], "everything": True}
    receivers.create(person("admin"), fields)
    assert simulated_alerts.later(60) == ["firing"]
    row = acknowledge()
    for _ in range(3):
        assert simulated_alerts.later(5 * 3600) == []  # repeats are due every four hours
    simulated_alerts.names = ()
    assert simulated_alerts.later(10) == []
    assert simulated_alerts.later(400) == ["resolved"]
    row.refresh_from_db()
    assert row.current_state == "expired"
    simulated_alerts.names = ("HighTTFT",)
    assert simulated_alerts.later(3600) + simulated_alerts.later(60) == ["firing"]


def test_revoked_acknowledgement_repeats_again(simulated_alerts: SimulatedAlerts) -> None:
    make_endpoint("demo")
    fields = {"name": "on-call", "kind": "email", "to": ["a@example.org"], "everything": True}
    receivers.create(person("admin"), fields)
    simulated_alerts.later(60)
    row = acknowledge()
    assert simulated_alerts.later(5 * 3600) == []
    assert browser("operator").post(f"/alerts/silences/{row.pk}/expire/").status_code == 302
    assert simulated_alerts.later(400) == ["firing"]
    verbs = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(verbs)[-2:] == ["acknowledge", "undo acknowledgement"]


def test_short_gap_or_unknown_state_ends_no_acknowledgement(
    simulated_alerts: SimulatedAlerts, monkeypatch: Any
) -> None:
    make_endpoint("demo")
    row = acknowledge()
    simulated_alerts.names = ()
    simulated_alerts.later(30)
    simulated_alerts.why = "Prometheus does not respond."
    simulated_alerts.later(600)
    simulated_alerts.why, simulated_alerts.names = "", ("HighTTFT",)
    simulated_alerts.later(30)
    row.refresh_from_db()
    assert row.current_state == "active"
    simulated_alerts.names = ()

    def away(_remote: Any) -> None:
        raise Refused()

    with monkeypatch.context() as patched:
        patched.setattr(alertmanagers, "expire_silences", away)
        simulated_alerts.later(90)
    row.refresh_from_db()
    assert row.current_state == "active"  # the Alertmanager would go on silencing
    simulated_alerts.later(10)
    row.refresh_from_db()
    assert row.current_state == "expired"


def test_rest_acknowledges_once_and_only_firing_alerts(simulated_alerts: SimulatedAlerts) -> None:
    make_endpoint("demo")
    client = program("operator")
    fields = {"alert": "HighTTFT", "endpoint": "demo", "note": "on it"}
    done = client.post(API, fields, format="json")
    assert done.status_code == 201
    assert (done.json()["kind"], done.json()["comment"]) == ("acknowledgement", "on it")
    again = client.post(API, fields, format="json")
    assert again.status_code == 409
    assert "already acknowledged" in again.text
    other = client.post(API, {"alert": "HighITL", "endpoint": "demo"}, format="json")
    assert other.status_code == 409
    assert "not firing" in other.text
    for body, field in (({}, "alert"), ({**fields, "x": 1}, "x"), ({**fields, "note": 1}, "note")):
        refused = client.post(API, body, format="json")
        assert (refused.status_code, refused.json()["field"]) == (400, field)
    assert len(client.get(API).json()["results"]) == 1
    kinds = f"/api/v1/silences/?kind={SilenceKind.SILENCE}"
    assert client.get(kinds).json()["results"] == []
    assert client.delete(f"{API}{done.json()['id']}/").status_code == 204
    assert client.post(API, fields, format="json").status_code == 201


def test_team_acknowledges_its_own_alerts(simulated_alerts: SimulatedAlerts) -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    simulated_alerts.endpoint = OURS
    fields = {"alert": "HighTTFT", "endpoint": OURS}
    json = {"content_type": "application/json"}
    assert client_of(teams.frank).post(API, fields, **json).status_code == 403
    assert client_of(teams.hugo).post(API, fields, **json).status_code in (403, 409)
    done = client_of(teams.erin).post(API, fields, **json)
    assert done.status_code == 201
    assert client_of(teams.hugo).delete(f"{API}{done.json()['id']}/").status_code == 404


def test_page_accepts_a_note_and_redirects_back(simulated_alerts: SimulatedAlerts) -> None:
    make_endpoint("demo")
    operator = browser("operator")
    page = "/alerts/acknowledge/"
    assert 'value="HighTTFT"' in operator.get(f"{page}?alert=HighTTFT&endpoint=demo").text
    typed = {"alert": "HighTTFT", "endpoint": "demo", "note": "on it"}
    back = operator.post(page, {**typed, "next": "/alerts/timeline/?range=1h"})
    assert back.url == "/alerts/timeline/?range=1h"
    Silence.objects.all().delete()
    away = operator.post(page, {**typed, "next": "https://evil.example/"})
    assert away.url == "/alerts/"
    assert "already acknowledged" in operator.post(page, typed).text
    assert "acknowledgement" in operator.get("/alerts/silences/").text
    assert browser("viewer").get(page).status_code == 403
