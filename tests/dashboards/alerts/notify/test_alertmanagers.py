"""With an Alertmanager at the metrics source: it delivers and holds the silences."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts.evaluation import firing_alerts as firing_module
from dashboards.alerts.evaluation.firing_alerts import FiringAlerts
from dashboards.alerts.notify import dispatcher, receivers, selectors
from dashboards.alerts.notify import routes as notify_routes
from dashboards.alerts.notify.models import Receiver, Silence
from dashboards.prometheus.sources import selectors as connections
from dashboards.prometheus.sources.selectors import Alertmanager
from endpoints.models import Endpoint
from tests.support import teams as made
from tests.support.console import browser, make_endpoint, person, program
from tests.support.http_stub import HANG, Stub, http_stub
from tests.support.people import client_of
from tests.support.ports import free_port
from tests.support.teams import OURS

pytestmark = pytest.mark.django_db
API = "/api/v1/silences/"
WISH = {"matchers": ['endpoint="demo"', "alertname!~A.*"], "comment": "works"}
AMTOOL = shutil.which("amtool")


def row(identity: str, state: str = "active", **facts: Any) -> dict[str, Any]:
    """Silence as in Alertmanager 0.25 and 0.28."""
    return {
        "id": identity,
        "status": {"state": state},
        "matchers": [
            {"name": "severity", "value": "page|x", "isRegex": True, "isEqual": False},
            {"name": "alertname", "value": "A", "isRegex": False},
        ],
        "startsAt": "2026-11-21T12:00:00.000Z",
        "endsAt": "2026-11-21T14:00:00.000Z",
        "updatedAt": "2026-11-21T12:00:00.000Z",
        "createdBy": "amtool",
        "comment": "from a terminal",
        **facts,
    }


@pytest.fixture
def manager(settings: Any) -> Iterator[Stub]:
    answers: dict[str, Any] = {
        "/api/v2/silences": lambda _path, body: (
            (200, {"silenceID": "s-1"}) if body else (200, [row("other")])
        ),
        "/api/v2/silence/s-1": (200, ""),
    }
    with http_stub(answers) as stub:
        use(settings, stub.url)
        yield stub


def use(settings: Any, url: str) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, alertmanager_url=url)


def test_silence_is_created_and_ended_in_alertmanager(manager: Stub) -> None:
    make_endpoint("demo")
    client = program("operator")
    made_one = client.post(API, WISH, format="json")
    assert made_one.status_code == 201
    sent = json.loads(manager.seen[0][2])
    assert sent["matchers"] == [
        {"name": "endpoint", "value": "demo", "isRegex": False, "isEqual": True},
        {"name": "alertname", "value": "A.*", "isRegex": True, "isEqual": False},
    ]
    assert (sent["createdBy"], sent["comment"]) == ("one-operator", "works")
    assert Silence.objects.get().remote == {"console": "s-1"}
    assert client.delete(f"{API}{made_one.json()['id']}/").status_code == 204
    assert manager.seen[-1][:2] == ("DELETE", "/api/v2/silence/s-1")


class Kept:
    """Alertmanager's silences; each change assigns a new id."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[str, Any]] = {}
        self.broken = False
        self.answers: dict[str, Any] = {"/api/v2/silences": self.posted}
        self.answers |= {f"/api/v2/silence/k-{n}": self.deleted for n in range(9)}
        self._made = 0

    def posted(self, _path: str, body: bytes) -> Any:
        if self.broken:
            return 500, "no"
        wanted = json.loads(body)
        if wanted.get("id") and wanted["id"] not in self.bodies:
            return 404, "silence not found"
        self.bodies.pop(wanted.pop("id", ""), None)
        self._made += 1
        self.bodies[f"k-{self._made}"] = wanted
        return 200, {"silenceID": f"k-{self._made}"}

    def deleted(self, path: str, _body: bytes) -> Any:
        return (200, "") if self.bodies.pop(path.rpartition("/")[2], None) else (404, "")

    @property
    def comments(self) -> list[str]:
        return [one["comment"] for one in self.bodies.values()]


def test_edited_silence_replaces_the_old_one(settings: Any) -> None:
    make_endpoint("demo")
    client, kept = program("operator"), Kept()
    with http_stub(kept.answers) as stub:
        use(settings, stub.url)
        at = f"{API}{client.post(API, WISH, format='json').json()['id']}/"
        assert client.patch(at, {"comment": "longer"}).status_code == 200
        assert kept.comments == ["longer"]
        assert Silence.objects.get().remote == {"console": "k-2"}
        kept.bodies.clear()  # forgotten, as after a disk loss
        assert client.patch(at, {"comment": "anew"}).status_code == 200
        assert kept.comments == ["anew"]
        kept.broken = True
        refused = client.patch(at, {"comment": "never"})
        assert (refused.status_code, refused.json()["code"]) == (502, "alertmanager")
        row = Silence.objects.get()
        assert (row.comment, kept.comments) == ("anew", ["anew"])
        assert row.remote == {"console": next(iter(kept.bodies))}


def test_failure_of_one_of_two_alertmanagers_reverts_both(monkeypatch: Any) -> None:
    """And one that the silence no longer concerns expires it."""
    make_endpoint("demo")
    client, east, west = program("operator"), Kept(), Kept()
    with http_stub(east.answers) as first, http_stub(west.answers) as second:
        both = [Alertmanager("east", None, first.url), Alertmanager("west", None, second.url)]
        concerned = list(both)
        monkeypatch.setattr(
            "dashboards.alerts.notify.alertmanagers.alertmanagers_of",
            lambda _endpoint: list(concerned),
        )
        monkeypatch.setattr(connections, "alertmanagers", lambda: tuple(both))
        at = f"{API}{client.post(API, WISH, format='json').json()['id']}/"
        west.broken = True
        assert client.patch(at, {"comment": "never"}).status_code == 502
        assert (east.comments, west.comments) == (["works"], ["works"])
        row = Silence.objects.get()
        assert row.comment == "works"
        assert row.remote == {"east": next(iter(east.bodies)), "west": next(iter(west.bodies))}
        west.broken = False
        concerned.pop()
        assert client.patch(at, {"comment": "here only"}).status_code == 200
        assert (east.comments, west.comments) == (["here only"], [])
        assert list(Silence.objects.get().remote) == ["east"]
        concerned[:] = both
        east.broken = True
        assert client.patch(at, {"comment": "never"}).status_code == 502
        assert (east.comments, west.comments) == (["here only"], [])


def test_page_lists_silences_created_in_alertmanager(manager: Stub) -> None:
    page = browser("viewer").get("/alerts/silences/").text
    assert "from a terminal" in page
    assert "severity!~&quot;page|x&quot;" in page
    assert "alertname=&quot;A&quot;" in page
    teams = made.teams()
    assert "from a terminal" not in client_of(teams.erin).get("/alerts/silences/").text


def test_silence_ended_in_alertmanager_ends_here(manager: Stub) -> None:
    make_endpoint("demo")
    program("operator").post(API, WISH, format="json")
    manager.answers["/api/v2/silences"] = (200, [row("s-1", "expired")])
    assert "No silences" in browser("viewer").get("/alerts/silences/").text


def test_unreachable_alertmanager_is_reported_and_nothing_stored(
    manager: Stub, settings: Any
) -> None:
    make_endpoint("demo")
    client = program("operator")
    program("operator").post(API, WISH, format="json")
    (kept,) = Silence.objects.all()
    for answer in ((500, "no"), (200, "<html>"), (200, {}), (HANG, "")):
        manager.answers["/api/v2/silences"] = answer
        if answer[0] != HANG:
            refused = client.post(API, WISH, format="json")
            assert refused.status_code == 502, answer
            assert "Alertmanager of console" in refused.json()["detail"]
    use(settings, f"http://127.0.0.1:{free_port()}")
    assert client.post(API, WISH, format="json").status_code == 502
    assert client.delete(f"{API}{kept.pk}/").status_code == 502
    assert Silence.objects.get().pk == kept.pk
    page = browser("viewer").get("/alerts/silences/")
    assert page.status_code == 200
    assert "The server is unreachable." in page.text
    assert browser("operator").post(f"/alerts/silences/{kept.pk}/expire/").status_code == 302
    teams = {"matchers": ["team=ours"], "comment": "x"}
    use(settings, manager.url)
    assert "no label team" in client.post(API, teams, format="json").json()["detail"]


def test_console_sends_no_notifications_with_an_alertmanager(
    manager: Stub, monkeypatch: Any
) -> None:
    make_endpoint("demo")
    labels = {"alertname": "Slow", "endpoint": "demo", "severity": "page"}
    alert = firing_module.FiringAlert("Slow", "demo", "", "page", None, "s", "r", labels)
    monkeypatch.setattr(
        "dashboards.alerts.evaluation.firing_alerts.query_firing", lambda *_: FiringAlerts((alert,))
    )
    monkeypatch.setattr(connections, "any_known", lambda: True)
    assert dispatcher.read_firing().alerts == ()
    monkeypatch.setattr(connections, "alertmanagers", tuple)
    assert len(dispatcher.read_firing().alerts) == 1


def test_one_unreachable_source_of_several_ends_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "dashboards.alerts.evaluation.firing_alerts.query_firing",
        lambda *_: FiringAlerts((), missing="west is away"),
    )
    monkeypatch.setattr(connections, "any_known", lambda: True)
    seen = dispatcher.read_firing()
    assert (seen.unknown, seen.why) == (True, "west is away")


def test_exported_configuration_is_equivalent(tmp_path: Path, settings: Any) -> None:
    teams = made.teams()
    make_endpoint(OURS)
    Endpoint.objects.filter(name=OURS).update(team=teams.ours)
    ada = person("admin")
    url = "https://hooks.example.org/T0KEN"
    for facts in (
        {"name": "hook", "kind": "webhook", "url": url, "everything": True},
        {"name": "chat", "kind": "slack", "url": url},
        {"name": "mail", "kind": "email", "to": ["a@example.org", "b@example.org"]},
    ):
        receivers.create(ada, facts)
    fields = {"receiver": "chat", "matchers": ["team!=ours", 'severity="page"'], "group_by": []}
    notify_routes.create(ada, fields)
    notify_routes.create(
        ada, {"receiver": "mail", "matchers": ["team=ours"], "send_resolved": False}
    )
    text = browser("viewer").get("/alerts/receivers/alertmanager.yml").text
    assert text == selectors.alertmanager_export().yml()
    assert "T0KEN" not in text
    found = yaml.safe_load(text)
    routes = {one["receiver"]: one for one in found["route"]["routes"]}
    assert routes["chat"]["matchers"] == [f'endpoint!~"{OURS}"', 'severity="page"']
    assert routes["mail"]["matchers"] == [f'endpoint=~"{OURS}"']
    assert all(one["continue"] for one in routes.values())
    by_name = {one["name"]: one for one in found["receivers"]}
    assert by_name["mail"]["email_configs"][0]["send_resolved"] is False
    assert by_name["hook"]["webhook_configs"][0]["url"] == "https://hooks.example.org/REPLACE"
    assert len(by_name) == Receiver.objects.count() + 1
    if AMTOOL:  # validated by amtool if installed
        file = tmp_path / "alertmanager.yml"
        file.write_text(text)
        message = subprocess.run(
            [AMTOOL, "check-config", str(file)], capture_output=True, text=True, check=False
        )
        assert message.returncode == 0, message.stdout + message.stderr
