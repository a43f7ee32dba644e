"""Silences and acknowledgements of a real Alertmanager, on pages and over REST."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.urls import get_resolver
from django.utils import timezone

from console.audit.models import AuditEvent
from console.core.errors import Refused
from dashboards.alerts.alertmanager import silences
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from dashboards.prometheus.http.login import Auth, Login
from dashboards.prometheus.sources import selectors as connections
from dashboards.prometheus.sources.selectors import Alertmanager
from tests.support import teams as made
from tests.support.alertmanager import RunningAlertmanager, running_alertmanager
from tests.support.console import browser, make_endpoint, person, program
from tests.support.people import client_of
from tests.support.ports import free_port
from tests.support.teams import CANARY, OURS, Teams

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alertmanager")]
API, ACKNOWLEDGE = "/api/v1/silences/", "/api/v1/acknowledgements/"


@pytest.fixture
def two_teams() -> Teams:
    teams = made.teams()
    made.their_endpoints(teams)
    return teams


def rows() -> tuple[Silence, ...]:
    return silences.list_silences(person("viewer")).rows


def active() -> list[Silence]:
    return [one for one in rows() if one.state == "active"]


def silence_fields(*matchers: str, **more: Any) -> dict[str, Any]:
    return {"matchers": list(matchers), "duration": "2h", "comment": "a new driver", **more}


def test_operator_creates_and_ends_a_silence() -> None:
    make_endpoint("demo")
    alice = browser("operator")
    new = "/alerts/silences/new/"
    assert "alertname=&quot;IndexStale&quot;" in alice.get(f"{new}?alertname=IndexStale").text
    typed = {"matchers": 'endpoint="demo"\nseverity=page', "duration": "8h", "comment": "works"}
    assert alice.post(new, typed).status_code == 302
    (row,) = rows()
    assert (row.endpoint, row.comment) == ("demo", "works")
    assert timedelta(hours=7.9) < row.ends_at - timezone.now() < timedelta(hours=8)
    page = browser("viewer").get("/alerts/silences/").text
    assert "works" in page
    assert "expire/" not in page
    assert alice.post(f"/alerts/silences/{row.id}/expire/").status_code == 302
    assert "No silences" in alice.get("/alerts/silences/").text
    assert "works" in alice.get("/alerts/silences/?expired=1").text
    verbs = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(verbs)[-2:] == ["silence.create", "silence.end"]


def test_invalid_silence_is_rejected_by_field() -> None:
    client = program("operator")
    for body, field in (
        (silence_fields(), "matchers"),
        (silence_fields("severity=~.*"), "matchers"),
        (silence_fields('team!="x"'), "matchers"),
        (silence_fields("severity"), "matchers"),
        (silence_fields("severity=page", comment=" "), "comment"),
        (silence_fields("severity=page", comment="x" * 501), "comment"),
        (silence_fields("severity=page", duration="soon"), "duration"),
        (silence_fields("severity=page", duration="91d"), "duration"),
        (silence_fields("severity=page", duration=None), "duration"),
        (silence_fields("severity=page", ends_at="2020-01-01T00:00:00Z"), "ends_at"),
        (silence_fields("severity=page", ends_at="2999-01-01T00:00:00Z"), "ends_at"),
        (silence_fields("severity=page", starts_at="tomorrow"), "starts_at"),
        (silence_fields("severity=page", until="x"), "until"),
        ([], ""),
    ):
        answer = client.post(API, body, format="json")
        assert answer.status_code == 400, body
        assert answer.json()["field"] in (field, None), body
        assert answer.json()["remedy"], body
    page = browser("operator").post("/alerts/silences/new/", {"matchers": "x"})
    assert page.status_code == 400
    assert "Invalid matcher" in page.text
    assert not rows()


def test_rest_creates_reads_filters_and_ends_silences() -> None:
    make_endpoint("demo")
    client = program("operator")
    one = client.post(API, silence_fields('endpoint="demo"'), format="json")
    assert one.status_code == 201
    assert one.json()["state"] == "active"
    later = (timezone.now() + timedelta(days=1)).isoformat()
    two = client.post(API, silence_fields("severity=page", starts_at=later), format="json").json()
    assert (two["state"], two["endpoint"]) == ("pending", "")
    assert client.get(f"{API}{two['id']}/").json() == two
    found = client.get(f"{API}?state=active").json()["results"]
    assert [row["id"] for row in found] == [one.json()["id"]]
    assert len(client.get(f"{API}?endpoint=demo").json()["results"]) == 1
    assert client.delete(f"{API}{two['id']}/").status_code == 204
    assert client.get(f"{API}{two['id']}/").json()["state"] == "expired"
    again = {"headers": {"Idempotency-Key": "k"}}
    first = client.post(API, silence_fields("severity=page"), format="json", **again).json()
    assert client.post(API, silence_fields("severity=page"), format="json", **again).json() == first
    assert len(rows()) == 3


def test_team_silences_only_its_own_endpoints(two_teams: Teams) -> None:
    erin, hugo = client_of(two_teams.erin), client_of(two_teams.hugo)
    json = {"content_type": "application/json"}
    assert erin.post(API, silence_fields(f'endpoint="{OURS}"'), **json).status_code == 201
    for body in (
        silence_fields("severity=page"),
        silence_fields(f'endpoint="{CANARY}"'),
        silence_fields(f"endpoint=~{OURS}"),
    ):
        assert erin.post(API, body, **json).status_code == 403, body
    assert (
        client_of(two_teams.frank)
        .post(API, silence_fields(f'endpoint="{OURS}"'), **json)
        .status_code
        == 403
    )
    (row,) = rows()
    assert str(row.id) in client_of(two_teams.frank).get(API).text
    assert hugo.get(API).json()["results"] == []
    assert hugo.get(f"{API}{row.id}/").status_code == 404
    assert hugo.delete(f"{API}{row.id}/").status_code == 404
    assert hugo.post(f"/alerts/silences/{row.id}/expire/").status_code == 404
    assert client_of(two_teams.frank).delete(f"{API}{row.id}/").status_code == 403
    assert rows()[0].ends_at > timezone.now()
    assert str(row.id) in client_of(two_teams.gina).get("/alerts/silences/").text


def test_fleet_silences_need_a_platform_role(two_teams: Teams) -> None:
    answer = program("operator").post(API, silence_fields(f"endpoint=~{CANARY}|x"), format="json")
    assert answer.status_code == 201
    for path in (API, "/alerts/silences/"):
        assert CANARY not in client_of(two_teams.erin).get(path).text
    assert CANARY in browser("viewer").get("/alerts/silences/").text


def test_rest_patch_keeps_omitted_fields() -> None:
    make_endpoint("demo")
    client = program("operator")
    now = timezone.now()
    one = client.post(API, silence_fields('endpoint="demo"'), format="json").json()
    at = f"{API}{one['id']}/"
    longer = client.patch(at, {"duration": "8h"}).json()
    assert longer["starts_at"] == one["starts_at"]
    (row,) = active()
    at = f"{API}{longer['id']}/"
    assert timedelta(hours=7.9) < row.ends_at - now < timedelta(hours=8.1)
    assert (longer["comment"], longer["matchers"]) == (one["comment"], one["matchers"])
    other = client.patch(at, {"matchers": ["severity=page"], "comment": "more of it"}).json()
    at = f"{API}{other['id']}/"
    assert (other["endpoint"], other["matchers"]) == ("", ['severity="page"'])
    assert (other["ends_at"], other["comment"]) == (longer["ends_at"], "more of it")
    trail = AuditEvent.objects.filter(verb="silence.update")
    assert trail.count() == 2
    for body, field in (
        ({"matchers": []}, "matchers"),
        ({"comment": " "}, "comment"),
        ({"duration": "soon"}, "duration"),
        ({"ends_at": (now - timedelta(minutes=1)).isoformat()}, "ends_at"),
        ({"ends_at": (now + timedelta(days=91)).isoformat()}, "ends_at"),
        ({"starts_at": (now + timedelta(hours=1)).isoformat()}, "starts_at"),
        ({"until": "x"}, "until"),
    ):
        answer = client.patch(at, body)
        assert (answer.status_code, answer.json()["field"]) == (400, field), body
    later = {"starts_at": (now + timedelta(days=1)).isoformat()}
    two = client.post(API, silence_fields("severity=page", **later), format="json").json()
    sooner = {"starts_at": (now + timedelta(hours=1)).isoformat()}
    moved = client.patch(f"{API}{two['id']}/", sooner).json()
    assert moved["starts_at"] < two["starts_at"]
    assert moved["ends_at"] == two["ends_at"]
    client.delete(at)
    over = client.patch(at, {"duration": "1h"})
    assert (over.status_code, over.json()["code"]) == (409, "ended")
    assert client.get(at).json()["state"] == "expired"


def test_operator_edits_a_silence() -> None:
    make_endpoint("demo")
    alice = browser("operator")
    alice.post(
        "/alerts/silences/new/", {"matchers": "severity=page", "duration": "2h", "comment": "a"}
    )
    (row,) = rows()
    page = f"/alerts/silences/{row.id}/"
    assert page in alice.get("/alerts/silences/").text
    text = alice.get(page).text
    typed = row.ends_at.strftime("%Y-%m-%dT%H:%M")
    assert f'value="{typed}"' in text
    assert "starts_at" not in text  # already started
    same = {"matchers": 'severity="page"', "duration": "", "ends_at": typed, "comment": "b"}
    assert alice.post(page, same).status_code == 302
    (changed,) = active()
    assert (changed.comment, changed.ends_at) == ("b", row.ends_at)
    page = f"/alerts/silences/{changed.id}/"
    alice.post(page, {**same, "duration": "8h"})
    (longer,) = active()
    assert longer.ends_at - timezone.now() > timedelta(hours=7.9)
    page = f"/alerts/silences/{longer.id}/"
    both = {**same, "duration": "1d", "ends_at": "2020-01-01T00:00"}
    assert alice.post(page, both).status_code == 302  # a chosen duration overrides the typed end
    page = f"/alerts/silences/{active()[0].id}/"
    wrong = alice.post(page, {**same, "matchers": "x"})
    assert (wrong.status_code, "Invalid matcher" in wrong.text) == (400, True)
    assert browser("viewer").get(page).status_code == 403
    assert page not in browser("viewer").get("/alerts/silences/").text


def test_team_edits_its_silence_without_widening_it(two_teams: Teams) -> None:
    erin, hugo = client_of(two_teams.erin), client_of(two_teams.hugo)
    json: Any = {"content_type": "application/json"}
    one = erin.post(API, silence_fields(f'endpoint="{OURS}"'), **json).json()
    at = f"{API}{one['id']}/"
    for matchers in (["severity=page"], [f'endpoint="{CANARY}"']):
        assert erin.patch(at, {"matchers": matchers}, **json).status_code == 403
    assert hugo.patch(at, {"comment": "x"}, **json).status_code == 404
    assert client_of(two_teams.frank).patch(at, {"comment": "x"}, **json).status_code == 403
    assert client_of(two_teams.frank).get(f"/alerts/silences/{one['id']}/").status_code == 403
    assert erin.patch(at, {"comment": "x"}, **json).status_code == 200
    fleet = program("operator").post(API, silence_fields("severity=page"), format="json").json()
    assert erin.patch(f"{API}{fleet['id']}/", {"comment": "x"}, **json).status_code == 404
    assert erin.post(f"/alerts/silences/{fleet['id']}/", {"comment": "x"}).status_code == 404


def test_silence_times_are_in_the_time_zone_of_the_profile() -> None:
    alice = browser("operator")
    alice.cookies["emberline-zone"] = "Asia/Kolkata"
    new = "/alerts/silences/new/"
    assert "Start (IST)" in alice.get(new).text
    begins = timezone.now().replace(second=0, microsecond=0) + timedelta(hours=3)
    typed = (begins + timedelta(hours=5.5)).strftime("%Y-%m-%dT%H:%M")
    wished = {"matchers": "severity=page", "duration": "2h", "comment": "a", "starts_at": typed}
    assert alice.post(new, wished).status_code == 302
    (row,) = rows()
    assert row.starts_at == begins
    assert f'value="{typed}"' in alice.get(f"/alerts/silences/{row.id}/").text


def test_silences_of_others_are_listed(alertmanager: RunningAlertmanager) -> None:
    now = timezone.now()
    body = {
        "matchers": [
            {"name": "severity", "value": "page|x", "isRegex": True, "isEqual": False},
            {"name": "alertname", "value": "A", "isRegex": False},
        ],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(hours=1)).isoformat(),
        "createdBy": "amtool",
        "comment": "from a terminal",
    }
    url = f"{alertmanager.url}/api/v2/silences"
    assert httpx.post(url, json=body, auth=alertmanager.auth).status_code == 200
    page = browser("viewer").get("/alerts/silences/").text
    assert "from a terminal" in page
    assert "severity!~&quot;page|x&quot;" in page
    assert "alertname=&quot;A&quot;" in page
    teams = made.teams()
    assert "from a terminal" not in client_of(teams.erin).get("/alerts/silences/").text
    alice = browser("operator")
    assert alice.post(f"/alerts/silences/{rows()[0].id}/expire/").status_code == 302
    assert active() == []


def test_several_alertmanagers_all_get_a_silence_or_none(
    alertmanager: RunningAlertmanager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Alertmanager("west", None, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(connections, "alertmanagers", lambda: (second,))
    client = program("operator")
    refused = client.post(API, silence_fields("severity=page"), format="json")
    assert refused.status_code == 502
    assert "Alertmanager of west" in refused.json()["detail"]
    listed = client.get(API)
    assert listed.status_code == 502  # the list would be incomplete
    assert "Alertmanager of west" in browser("viewer").get("/alerts/silences/").text
    monkeypatch.setattr(connections, "alertmanagers", tuple)
    assert active() == []
    (tmp_path / "west").mkdir()
    with running_alertmanager(tmp_path / "west") as other:
        login = Login(Auth.BASIC, *other.auth, own=True)
        west = Alertmanager("west", None, other.url, "", login)
        monkeypatch.setattr(connections, "alertmanagers", lambda: (west,))
        assert client.post(API, silence_fields("severity=page"), format="json").status_code == 201
        assert sorted(one.source for one in active()) == ["console", "west"]


def test_without_alertmanager_nothing_is_silenced(settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, alertmanager_url="")
    answer = program("operator").post(API, silence_fields("severity=page"), format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_alertmanager")
    assert "No silences" in browser("viewer").get("/alerts/silences/").text


def test_unreachable_alertmanager_is_reported(settings: Any) -> None:
    client = program("operator")
    one = client.post(API, silence_fields("severity=page"), format="json").json()
    away = f"http://127.0.0.1:{free_port()}"
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, alertmanager_url=away)
    refused = client.post(API, silence_fields("severity=page"), format="json")
    assert refused.status_code == 502
    assert "The server is unreachable." in refused.json()["detail"]
    assert client.get(f"{API}{one['id']}/").status_code == 404
    page = browser("viewer").get("/alerts/silences/")
    assert (page.status_code, "The server is unreachable." in page.text) == (200, True)


@pytest.fixture
def firing(monkeypatch: pytest.MonkeyPatch) -> list[FiringAlert]:
    """HighTTFT of demo fires."""
    labels = {"alertname": "HighTTFT", "endpoint": "demo", "severity": "page"}
    alert = FiringAlert("HighTTFT", "demo", "", "page", None, "slow", "Check.", labels)
    alerts = [alert]
    assert get_resolver().url_patterns  # a view imported from here on would keep the replacement
    for name in ("query_firing", "query_active"):
        found = lambda *_: FiringAlerts(tuple(alerts))  # noqa: E731
        monkeypatch.setattr(f"dashboards.alerts.evaluation.firing_alerts.{name}", found)
    monkeypatch.setattr(
        "dashboards.alerts.settings.pages.alerts.query_active",
        lambda *_: FiringAlerts(tuple(alerts)),
    )
    make_endpoint("demo")
    return alerts


def test_alert_is_acknowledged_once_and_undone(firing: list[FiringAlert]) -> None:
    alice, facts = browser("operator"), {"alert": "HighTTFT", "endpoint": "demo", "note": "on it"}
    assert alice.post("/alerts/acknowledge/", facts).status_code == 302
    (row,) = active()
    assert (row.kind, row.reason, row.endpoint) == ("acknowledgement", "on it", "demo")
    assert "acknowledged by one-operator" in alice.get("/alerts/").text
    again = program("operator").post(ACKNOWLEDGE, facts)
    assert (again.status_code, again.json()["code"]) == (409, "acknowledged")
    assert [one["id"] for one in program("viewer").get(ACKNOWLEDGE).json()["results"]] == [row.id]
    assert program("operator").delete(f"{ACKNOWLEDGE}{row.id}/").status_code == 204
    assert active() == []
    verbs = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(verbs)[-2:] == ["acknowledgement.create", "acknowledgement.end"]


def test_only_a_firing_alert_is_acknowledged(firing: list[FiringAlert]) -> None:
    client = program("operator")
    answer = client.post(ACKNOWLEDGE, {"alert": "IndexStale", "endpoint": "demo"})
    assert (answer.status_code, answer.json()["code"]) == (409, "not_firing")
    assert client.post(ACKNOWLEDGE, {"endpoint": "demo"}).json()["field"] == "alert"
    assert program("viewer").post(ACKNOWLEDGE, {"alert": "HighTTFT"}).status_code == 403
    with pytest.raises(Refused, match="not firing"):
        silences.acknowledge(person("operator"), {"alert": "HighTTFT"})
