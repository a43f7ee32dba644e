"""Receivers, routes and delivery history on pages and over REST, and their permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from dashboards.alerts.notify.models import Delivery, DeliveryState, Dispatch, Receiver, Route
from endpoints.models import Endpoint
from tests.support import teams as made
from tests.support.console import browser, make_endpoint, program
from tests.support.http_stub import Stub, http_stub
from tests.support.people import client_of
from tests.support.query_counts import check
from tests.support.teams import CANARY, OURS

pytestmark = pytest.mark.django_db
PAGES, API, ROUTES = "/alerts/receivers/", "/api/v1/receivers/", "/api/v1/alert-routes/"
KEPT = Path(__file__).with_name("query_counts.json")


@pytest.fixture
def hook() -> Iterator[Stub]:
    with http_stub({"/T0KEN": (200, "ok")}) as stub:
        yield stub


def test_admin_creates_tests_edits_and_removes_a_receiver(hook: Stub) -> None:
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
    tried = ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert "on-call accepted the test" in tried
    assert json.loads(hook.seen[0][2])["commonLabels"]["alertname"] == "EmberlineTest"
    hook.answers["/T0KEN"] = (404, "")
    tried = ada.post(f"{PAGES}on-call/test/", follow=True).text
    assert "The receiver returned HTTP 404." in tried
    assert ada.post(f"{PAGES}on-call/", {"url": "", "secret": "x" * 20}).status_code == 302
    one = Receiver.objects.get()
    assert (one.signed, one.enabled, one.generation) == (True, False, 2)
    for path in (PAGES, f"{PAGES}on-call/", "/alerts/history/", f"{API}on-call/", "/audit/"):
        answer = ada.get(path)
        assert answer.status_code == 200
        assert "T0KEN" not in answer.text, path
    assert "T0KEN" not in str(list(AuditEvent.objects.values()))
    assert ada.post(f"{PAGES}on-call/delete/").status_code == 302
    assert not Receiver.objects.exists()
    assert not Route.objects.exists()
    assert "on-call" in ada.get("/alerts/history/").text  # its deliveries stay


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
    assert "Examples: 30m" in wrong.text
    assert ada.post("/alerts/routes/new/", typed).status_code == 302
    one = Route.objects.get()
    assert (one.wait_s, one.repeat_s, one.send_resolved) == (10, 86400, False)
    assert "severity=&quot;page&quot;" in ada.get(f"/alerts/routes/{one.pk}/").text
    ada.post(f"/alerts/routes/{one.pk}/", {**typed, "send_resolved": "on", "matchers": ""})
    one.refresh_from_db()
    assert (one.send_resolved, one.matchers, one.generation) == (True, [], 2)
    assert ada.post(f"/alerts/routes/{one.pk}/delete/").status_code == 302
    assert not Route.objects.exists()


def test_rest_equals_the_pages(hook: Stub) -> None:
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
    assert ada.post(f"{API}on-call/test/").json()["state"] == "sent"
    route = ada.post(ROUTES, {"receiver": "on-call", "matchers": ["severity=page"]}, format="json")
    assert route.status_code == 201
    assert route.json()["matchers"] == ['severity="page"']
    assert (route.json()["group_wait"], route.json()["repeat_interval"]) == ("30s", "4h")
    one = f"{ROUTES}{route.json()['id']}/"
    longer = ada.patch(one, {"repeat_interval": "12h"}, format="json").json()
    assert longer["repeat_interval"] == "12h"
    for body in ({"receiver": "nobody"}, {"group_by": ["no label"]}, {"matchers": "x"}, {"a": 1}):
        assert ada.patch(one, body, format="json").status_code in (400, 404), body
    (sent,) = ada.get("/api/v1/deliveries/?receiver=on-call&state=sent").json()["results"]
    assert ada.get(f"/api/v1/deliveries/{sent['id']}/").json()["body"]["version"] == "4"
    assert ada.delete(one).status_code == 204
    assert ada.delete(f"{API}on-call/").status_code == 204
    assert ada.get(f"{API}on-call/").status_code == 404


def owed(endpoint: str) -> Delivery:
    about = {"alertname": "Slow", "endpoint": endpoint}
    return Delivery.objects.create(
        receiver_name="on-call",
        kind="webhook",
        endpoint=Endpoint.objects.get(name=endpoint),
        title=f"[FIRING:1] Slow {endpoint}",
        body={"commonLabels": about},
        state=DeliveryState.SENT,
    )


def test_only_admins_write_and_only_platform_roles_read() -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    Receiver.objects.create(name="on-call", kind="email", to=["secret@example.org"])
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
    owed(OURS)
    theirs = owed(CANARY)
    whole = owed(OURS)
    Delivery.objects.filter(pk=whole.pk).update(endpoint=None, title="of all")
    for path in ("/alerts/history/", "/api/v1/deliveries/"):
        text = erin.get(path).text
        assert f"Slow {OURS}" in text
        assert CANARY not in text
        assert "of all" not in text
    assert erin.get(f"/alerts/history/{theirs.pk}/").status_code == 404
    assert erin.get(f"/api/v1/deliveries/{theirs.pk}/").status_code == 404


def test_page_states_whether_notifications_are_evaluated() -> None:
    viewer = browser("viewer")
    assert "background worker is not running" in viewer.get(PAGES).text
    Dispatch.objects.create(pk=1, looked_at=timezone.now(), reason="NoPrometheus")
    assert "No Prometheus configured" in viewer.get(PAGES).text
    Dispatch.objects.update(reason="PrometheusAway", message="The server is unreachable.")
    assert "The server is unreachable." in viewer.get(PAGES).text
    Dispatch.objects.update(reason="Looking", message="")
    assert "No alert receivers configured." in viewer.get(PAGES).text
    one = Receiver.objects.create(name="on-call", kind="email", to=["a@example.org"])
    Route.objects.create(receiver=one)
    assert "data-trouble" not in viewer.get(PAGES).text


@pytest.mark.parametrize(
    "url", [PAGES, "/alerts/history/", "/alerts/silences/", API, ROUTES, "/api/v1/deliveries/"]
)
def test_queries_do_not_grow_with_rows(url: str) -> None:
    endpoint = make_endpoint("demo")
    for number in range(8):
        one = Receiver.objects.create(name=f"r{number}", kind="email", to=["a@example.org"])
        Route.objects.create(receiver=one)
        Delivery.objects.create(
            receiver=one, receiver_name=one.name, kind="email", title="t", body={},
            endpoint=endpoint, state=DeliveryState.SENT,
        )  # fmt: skip
        program("operator").post(
            "/api/v1/silences/",
            {"matchers": ['endpoint="demo"'], "comment": "x"},
            format="json",
        )
    check(browser("viewer"), url, KEPT)


def test_settings_name_the_sender_of_alerts() -> None:
    ada = browser("admin")

    def delivered_by() -> str:
        return ada.get("/settings/").text.partition("Receivers")[2][:400]

    assert "No alert receivers configured" in delivered_by()
    made = {"name": "mail", "kind": "email", "to": ["a@example.org"], "everything": True}
    api = program("admin")
    assert api.post(API, made, format="json").status_code == 201
    assert "1 receiver of the console" in delivered_by()
    assert "Alertmanager" not in delivered_by()
    source = {"name": "west", "url": "http://west:9090", "alertmanager_url": "http://west:9093"}
    assert api.post("/api/v1/metrics-sources/", source, format="json").status_code == 201
    assert "Alertmanager of west" in delivered_by()
    assert api.patch(f"{API}mail/", {"enabled": False}, format="json").status_code == 200
    assert "receiver of the console" not in delivered_by()
