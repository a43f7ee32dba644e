"""Receivers and routes on pages and over REST, and their permissions."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from console.core.mail import Mail
from dashboards.alerts.alertmanager import config_file
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS
from dashboards.alerts.alertmanager.models import AlertWatch, Receiver, Route
from tests.support import teams as made
from tests.support.alertmanager import RunningAlertmanager
from tests.support.console import browser, program
from tests.support.http_stub import Stub, http_stub
from tests.support.people import client_of
from tests.support.query_counts import check
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
PAGES, API, ROUTES = "/alerts/receivers/", "/api/v1/receivers/", "/api/v1/alert-routes/"
KEPT = Path(__file__).with_name("query_counts.json")


@pytest.fixture(autouse=True)
def mail_server(settings: Any) -> None:
    settings.MAIL = Mail("smtp.example.org", 587, "starttls", "", "", "console@example.org")


@pytest.fixture
def hook() -> Iterator[Stub]:
    with http_stub({"/T0KEN": (200, "ok")}) as stub:
        yield stub


def test_admin_creates_tests_edits_and_removes_a_receiver(
    hook: Stub, alertmanager: RunningAlertmanager
) -> None:
    ada = browser("admin")
    assert "No alert receivers configured" in ada.get(PAGES).text
    new = f"{PAGES}new/?kind=webhook"
    typed = {"name": "on-call", "url": f"{hook.url}/T0KEN", "everything": "on", "secret": ""}
    refused = ada.post(new, {**typed, "url": "http://169.254.169.254/"})
    assert refused.status_code == 400
    assert "link-local" in refused.text
    assert ada.post(new, typed).status_code == 302
    page = ada.get(PAGES).text
    assert "All alerts" in page
    assert f"{hook.url}/…" in page
    early = ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert "may not be loaded yet" in early
    config_file.sync()
    tried = ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert "on-call accepted the test" in tried
    assert json.loads(hook.seen[0][2])["commonLabels"]["alertname"] == "EmberlineTest"
    hook.answers["/T0KEN"] = (404, "")
    tried = ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert "Test notification to on-call failed: " in tried
    assert "unexpected status code 404" in tried
    assert ada.post(f"{PAGES}on-call/", {"url": "", "secret": "x" * 20}).status_code == 302
    one = Receiver.objects.get()
    assert (one.secrets, one.enabled, one.generation) == (["secret", "url"], False, 2)
    for path in (PAGES, f"{PAGES}on-call/", f"{API}on-call/", "/audit/"):
        answer = ada.get(path)
        assert answer.status_code == 200
        assert "T0KEN" not in answer.text, path
    assert "T0KEN" not in str(list(AuditEvent.objects.values()))
    assert "is disabled" in ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert ada.post(f"{PAGES}on-call/delete/").status_code == 302
    assert not Receiver.objects.exists()
    assert not Route.objects.exists()


def test_receiver_is_tested_beside_a_failing_one_of_its_kind(
    hook: Stub, alertmanager: RunningAlertmanager
) -> None:
    client = program("admin")
    for name, path in (("alive", "/T0KEN"), ("dead", "/S3CRET")):
        body = {"name": name, "kind": "webhook", "url": f"{hook.url}{path}"}
        assert client.post(API, body).status_code == 201

    def attempts() -> int:
        return [path for _, path, _ in hook.seen].count("/S3CRET")

    def answer_after_an_attempt(_path: str, _body: bytes) -> tuple[int, str]:
        tried = attempts()
        until(lambda: attempts() > tried)
        time.sleep(0.6)  # the failure is counted, and read
        return 200, "ok"

    hook.answers |= {"/S3CRET": (503, "busy"), "/T0KEN": answer_after_an_attempt}
    config_file.sync()
    dead = client.post(f"{API}dead/test/").json()
    assert not dead["sent"]
    assert "S3CRET" not in dead["message"]
    assert client.post(f"{API}alive/test/").json()["sent"]  # while Alertmanager retries the other


def test_form_has_the_fields_of_each_kind(alertmanager: RunningAlertmanager) -> None:
    ada = browser("admin")
    offered = ada.get(f"{PAGES}new/").text
    for name, kind in KINDS.items():
        is_offered = kind.since <= (0, 25)
        assert (f"?kind={name}" in offered) is is_offered, name
        page = ada.get(f"{PAGES}new/?kind={name}").text
        if is_offered:
            assert f"New receiver: {kind.label}" in page
            assert all(f'name="{one.name}"' in page for one in kind.fields)
    refused = program("admin").post(
        API, {"name": "t", "kind": "msteams", "url": "https://x.example"}
    )
    assert refused.status_code == 400
    assert "needs Alertmanager 0.26" in refused.json()["detail"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_created_with_its_required_fields(kind: str) -> None:
    client = program("admin")
    required = [one for one in KINDS[kind].fields if one.required]
    values = {
        one.name: "https://example.org/T0KEN"
        if one.url
        else "-5"
        if one.number
        else "t@example.org"
        for one in required
    }
    for one in required:
        lacking = {name: value for name, value in values.items() if name != one.name}
        answer = client.post(API, {"name": "x", "kind": kind, **lacking})
        assert (answer.status_code, answer.json()["field"]) == (400, one.name)
    created = client.post(API, {"name": "x", "kind": kind, **values})
    assert created.status_code == 201, created.text
    secrets = sorted(one.name for one in required if one.secret)
    assert created.json()["secrets"] == secrets
    assert set(created.json()["config"]) == {one.name for one in required if not one.secret}
    if secrets:
        assert all(name not in created.json()["config"] for name in secrets)
    for one in KINDS[kind].fields:
        if one.number:
            wrong = client.patch(f"{API}x/", {one.name: "many"})
            assert (wrong.status_code, wrong.json()["field"]) == (400, one.name)
        if one.url:
            wrong = client.patch(f"{API}x/", {one.name: "http://169.254.169.254/"})
            assert (wrong.status_code, wrong.json()["field"]) == (400, one.name)
    assert client.patch(f"{API}x/", {"foreign": "1"}).status_code == 400


def test_mail_without_a_server_is_rejected(settings: Any) -> None:
    settings.MAIL = dataclasses.replace(settings.MAIL, host="")
    answer = program("admin").post(API, {"name": "mail", "kind": "email", "to": "a@example.org"})
    assert answer.status_code == 400
    assert "EMBERLINE_SMTP_HOST" in answer.json()["remedy"]


def test_receivers_cannot_be_tested_without_an_alertmanager() -> None:
    client = program("admin")
    client.post(API, {"name": "hook", "kind": "webhook", "url": "https://example.org/T0KEN"})
    answer = client.post(f"{API}hook/test/")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_alertmanager")


def test_routes_are_edited_on_the_pages() -> None:
    ada = browser("admin")
    ada.post(f"{PAGES}new/?kind=email", {"name": "mail", "to": "a@example.org, b@example.org"})
    assert "No route: nothing is sent" in ada.get(PAGES).text
    typed = {
        "receiver": "mail",
        "matchers": "severity=page\nteam=ours",
        "group_by": "alertname",
        "group_wait": "10s",
        "group_interval": "1m",
        "repeat_interval": "1d",
    }
    assert ada.post("/alerts/routes/new/", {}).status_code == 400
    wrong = ada.post("/alerts/routes/new/", {**typed, "group_wait": "soon"})
    assert wrong.status_code == 400
    assert "such as 30m" in wrong.text
    assert ada.post("/alerts/routes/new/", typed).status_code == 302
    one = Route.objects.get()
    assert (one.wait_s, one.repeat_s) == (10, 86400)
    assert "severity=&quot;page&quot;" in ada.get(f"/alerts/routes/{one.pk}/").text
    ada.post(f"/alerts/routes/{one.pk}/", {**typed, "matchers": ""})
    one.refresh_from_db()
    assert (one.matchers, one.generation) == ([], 2)
    assert ada.post(f"/alerts/routes/{one.pk}/delete/").status_code == 302
    assert not Route.objects.exists()


def test_rest_equals_the_pages(hook: Stub, alertmanager: RunningAlertmanager) -> None:
    ada = program("admin")
    fields = {"name": "on-call", "kind": "slack", "url": f"{hook.url}/T0KEN"}
    made_one = ada.post(API, fields, format="json")
    assert made_one.status_code == 201
    assert "T0KEN" not in made_one.content.decode()
    assert ada.post(API, fields, format="json").status_code == 409
    etag = ada.get(f"{API}on-call/").headers["ETag"]
    changed = ada.patch(
        f"{API}on-call/", {"enabled": False}, format="json", headers={"If-Match": etag}
    )
    assert changed.json()["enabled"] is False
    stale = ada.patch(
        f"{API}on-call/", {"enabled": True}, format="json", headers={"If-Match": etag}
    )
    assert stale.status_code in (409, 412)
    assert ada.post(f"{API}on-call/test/").json()["code"] == "disabled"
    ada.patch(f"{API}on-call/", {"enabled": True}, format="json")
    config_file.sync()
    assert ada.post(f"{API}on-call/test/").json()["sent"] is True
    route = ada.post(ROUTES, {"receiver": "on-call", "matchers": ["severity=page"]}, format="json")
    assert route.status_code == 201
    assert route.json()["matchers"] == ['severity="page"']
    assert (route.json()["group_wait"], route.json()["repeat_interval"]) == ("30s", "4h")
    one = f"{ROUTES}{route.json()['id']}/"
    longer = ada.patch(one, {"repeat_interval": "12h"}, format="json").json()
    assert longer["repeat_interval"] == "12h"
    for body in ({"receiver": "nobody"}, {"group_by": ["no label"]}, {"matchers": "x"}, {"a": 1}):
        assert ada.patch(one, body, format="json").status_code in (400, 404), body
    assert ada.delete(one).status_code == 204
    assert ada.delete(f"{API}on-call/").status_code == 204
    assert ada.get(f"{API}on-call/").status_code == 404


def test_only_admins_write_and_only_platform_roles_read() -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    Receiver.objects.create(name="on-call", kind="email", shown="secret@example.org")
    fields = {"name": "x", "kind": "email", "to": ["a@example.org"]}
    for role in ("viewer", "operator"):
        client = browser(role)
        assert "secret@example.org" in client.get(API).text
        assert client.get(PAGES).status_code == 200
        json_kind = {"content_type": "application/json"}
        for path in (API, f"{API}on-call/test/", ROUTES):
            assert client.post(path, fields, **json_kind).status_code == 403
        for path in (f"{PAGES}on-call/test/", f"{PAGES}on-call/delete/", f"{PAGES}new/"):
            assert client.post(path, {}).status_code == 403
        assert client.delete(f"{API}on-call/").status_code == 403
    erin = client_of(teams.gina)
    for path in (API, f"{API}on-call/", ROUTES, PAGES, f"{PAGES}on-call/"):
        assert erin.get(path).status_code == 403, path


def test_page_states_whether_notifications_are_sent(
    alertmanager: RunningAlertmanager, settings: Any
) -> None:
    viewer = browser("viewer")
    assert "background worker is not running" in viewer.get(PAGES).text
    AlertWatch.objects.create(pk=1, looked_at=timezone.now(), reason="NoPrometheus")
    assert "No Prometheus configured" in viewer.get(PAGES).text
    AlertWatch.objects.update(reason="PrometheusAway", message="The server is unreachable.")
    assert "The server is unreachable." in viewer.get(PAGES).text
    AlertWatch.objects.update(reason="Looking", message="")
    assert "No alert receivers configured." in viewer.get(PAGES).text
    one = Receiver.objects.create(name="on-call", kind="email", config={"to": "a@example.org"})
    Route.objects.create(receiver=one)
    config_file.sync()
    assert "data-trouble" not in viewer.get(PAGES).text
    present = settings.EMBERLINE
    AlertWatch.objects.update(reason="AlertmanagerUnreachable", message="Connection refused.")
    assert "Alertmanager does not respond." in viewer.get(PAGES).text
    settings.EMBERLINE = dataclasses.replace(present, alertmanager_url="")
    assert "No Alertmanager is configured. No alert is sent." in viewer.get(PAGES).text


@pytest.mark.parametrize("url", [PAGES, "/alerts/silences/", API, ROUTES, "/api/v1/silences/"])
def test_queries_do_not_grow_with_rows(url: str) -> None:
    for number in range(8):
        one = Receiver.objects.create(name=f"r{number}", kind="email", config={"to": "a@b.example"})
        Route.objects.create(receiver=one)
    check(browser("viewer"), url, KEPT)


def test_settings_name_the_sender_of_alerts() -> None:
    ada = browser("admin")

    def delivered_by() -> str:
        return ada.get("/settings/").text.partition("Receivers")[2][:400]

    assert "No alert receivers configured" in delivered_by()
    made = {"name": "mail", "kind": "email", "to": ["a@example.org"], "everything": True}
    api = program("admin")
    assert api.post(API, made, format="json").status_code == 201
    assert "1 receiver" in delivered_by()
    assert "Alertmanager" not in delivered_by()
    source = {"name": "west", "url": "http://west:9090", "alertmanager_url": "http://west:9093"}
    assert api.post("/api/v1/metrics-sources/", source, format="json").status_code == 201
    assert "Alertmanager of west" in delivered_by()
    assert api.patch(f"{API}mail/", {"enabled": False}, format="json").status_code == 200
    assert "1 receiver" not in delivered_by()
