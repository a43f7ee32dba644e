"""Silences on pages and over REST: permissions and visibility."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from dashboards.alerts.notify.models import Silence
from tests.support import teams as made
from tests.support.console import browser, make_endpoint, program
from tests.support.people import client_of
from tests.support.teams import CANARY, OURS, Teams

pytestmark = pytest.mark.django_db
API = "/api/v1/silences/"


@pytest.fixture
def two_teams() -> Teams:
    teams = made.teams()
    made.their_endpoints(teams)
    return teams


def silence_fields(*matchers: str, **more: Any) -> dict[str, Any]:
    return {"matchers": list(matchers), "duration": "2h", "comment": "a new driver", **more}


def test_operator_creates_and_ends_a_silence() -> None:
    make_endpoint("demo")
    alice = browser("operator")
    new = "/alerts/silences/new/"
    assert "alertname=&quot;IndexStale&quot;" in alice.get(f"{new}?alertname=IndexStale").text
    typed = {"matchers": 'endpoint="demo"\nseverity=page', "duration": "8h", "comment": "works"}
    assert alice.post(new, typed).status_code == 302
    (row,) = Silence.objects.all()
    assert row.endpoint is not None
    assert (row.endpoint.name, row.comment) == ("demo", "works")
    assert timedelta(hours=7.9) < row.ends_at - timezone.now() < timedelta(hours=8)
    page = browser("viewer").get("/alerts/silences/").text
    assert "works" in page
    assert "expire/" not in page
    assert alice.post(f"/alerts/silences/{row.pk}/expire/").status_code == 302
    assert "No silences" in alice.get("/alerts/silences/").text
    assert "works" in alice.get("/alerts/silences/?expired=1").text
    verbs = AuditEvent.objects.order_by("pk").values_list("verb", flat=True)
    assert list(verbs)[-2:] == ["silence", "end silence"]


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
    assert not Silence.objects.exists()


def test_rest_creates_reads_filters_and_ends_silences() -> None:
    make_endpoint("demo")
    client = program("operator")
    one = client.post(API, silence_fields('endpoint="demo"'), format="json")
    assert one.status_code == 201
    assert one.json()["state"] == "active"
    later = (timezone.now() + timedelta(days=1)).isoformat()
    two = client.post(API, silence_fields("severity=page", starts_at=later), format="json").json()
    assert (two["state"], two["endpoint"]) == ("pending", None)
    assert client.get(f"{API}{two['id']}/").json() == two
    found = client.get(f"{API}?state=active").json()["results"]
    assert [row["id"] for row in found] == [one.json()["id"]]
    assert len(client.get(f"{API}?endpoint=demo").json()["results"]) == 1
    assert client.delete(f"{API}{two['id']}/").status_code == 204
    assert client.get(f"{API}{two['id']}/").json()["state"] == "expired"
    again = {"headers": {"Idempotency-Key": "k"}}
    first = client.post(API, silence_fields("severity=page"), format="json", **again).json()
    assert client.post(API, silence_fields("severity=page"), format="json", **again).json() == first
    assert Silence.objects.count() == 3


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
    (row,) = Silence.objects.all()
    assert str(row.pk) in client_of(two_teams.frank).get(API).text
    assert hugo.get(API).json()["results"] == []
    assert hugo.get(f"{API}{row.pk}/").status_code == 404
    assert hugo.delete(f"{API}{row.pk}/").status_code == 404
    assert hugo.post(f"/alerts/silences/{row.pk}/expire/").status_code == 404
    assert client_of(two_teams.frank).delete(f"{API}{row.pk}/").status_code == 403
    row.refresh_from_db()
    assert row.ends_at > timezone.now()
    assert str(row.pk) in client_of(two_teams.gina).get("/alerts/silences/").text


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
    row = Silence.objects.get()
    assert timedelta(hours=7.9) < row.ends_at - now < timedelta(hours=8.1)
    assert (longer["comment"], longer["matchers"]) == (one["comment"], one["matchers"])
    other = client.patch(at, {"matchers": ["severity=page"], "comment": "more of it"}).json()
    assert (other["endpoint"], other["matchers"]) == (None, ['severity="page"'])
    assert (other["ends_at"], other["comment"]) == (longer["ends_at"], "more of it")
    trail = AuditEvent.objects.filter(verb="change silence")
    assert trail.count() == 2
    assert client.patch(at, {"comment": "more of it"}).status_code == 200
    assert trail.count() == 2  # unchanged
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
    (row,) = Silence.objects.all()
    page = f"/alerts/silences/{row.pk}/"
    assert page in alice.get("/alerts/silences/").text
    text = alice.get(page).text
    typed = row.ends_at.strftime("%Y-%m-%dT%H:%M")
    assert f'value="{typed}"' in text
    assert "starts_at" not in text  # already started
    same = {"matchers": 'severity="page"', "duration": "", "ends_at": typed, "comment": "b"}
    assert alice.post(page, same).status_code == 302
    changed = Silence.objects.get()
    assert (changed.comment, changed.ends_at) == ("b", row.ends_at)
    alice.post(page, {**same, "duration": "8h"})
    assert Silence.objects.get().ends_at - timezone.now() > timedelta(hours=7.9)
    both = {**same, "duration": "1d", "ends_at": "2020-01-01T00:00"}
    assert alice.post(page, both).status_code == 302  # a chosen duration overrides the typed end
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


def test_concurrently_ended_silence_stays_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    client = program("operator")
    one = client.post(API, silence_fields("severity=page"), format="json").json()
    ended: list[Any] = []

    def slow(*_: Any) -> Any:
        Silence.objects.update(ends_at=timezone.now() - timedelta(hours=1))
        return {"console": "s-2"}, None

    monkeypatch.setattr("dashboards.alerts.notify.alertmanagers.replace_silence", slow)
    monkeypatch.setattr("dashboards.alerts.notify.alertmanagers.expire_silences", ended.append)
    answer = client.patch(f"{API}{one['id']}/", {"comment": "late"})
    assert (answer.status_code, answer.json()["code"]) == (409, "ended")
    assert ended == [{"console": "s-2"}]  # restarted there with a new id
    assert Silence.objects.get().comment == "a new driver"
    monkeypatch.setattr(
        "dashboards.alerts.notify.alertmanagers.replace_silence", None
    )  # an expired silence causes no request
    assert client.patch(f"{API}{one['id']}/", {"comment": "late"}).status_code == 409


def test_silence_times_are_in_the_time_zone_of_the_profile() -> None:
    alice = browser("operator")
    alice.cookies["emberline-zone"] = "Asia/Kolkata"
    new = "/alerts/silences/new/"
    assert "Start (IST)" in alice.get(new).text
    begins = timezone.now().replace(second=0, microsecond=0) + timedelta(hours=3)
    typed = (begins + timedelta(hours=5.5)).strftime("%Y-%m-%dT%H:%M")
    wished = {"matchers": "severity=page", "duration": "2h", "comment": "a", "starts_at": typed}
    assert alice.post(new, wished).status_code == 302
    (row,) = Silence.objects.all()
    assert row.starts_at == begins
    assert f'value="{typed}"' in alice.get(f"/alerts/silences/{row.pk}/").text
