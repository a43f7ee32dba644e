"""With an Alertmanager beside Prometheus: it tells, it keeps the silences, the console does not."""

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

from dashboards import firing as firing_module
from dashboards.firing import Firing
from dashboards.notify import dispatching, receiving, routing, selectors
from dashboards.notify.models import Receiver, Silence
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
    """As Alertmanager 0.25 and 0.28 tell a silence."""
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


def test_a_silence_is_made_and_ended_there(manager: Stub) -> None:
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


def test_the_page_shows_what_others_silenced_there(manager: Stub) -> None:
    page = browser("viewer").get("/alerts/silences/").text
    assert "from a terminal" in page
    assert "severity!~&quot;page|x&quot;" in page
    assert "alertname=&quot;A&quot;" in page
    teams = made.teams()
    assert "from a terminal" not in client_of(teams.erin).get("/alerts/silences/").text


def test_what_was_ended_there_is_over_here(manager: Stub) -> None:
    make_endpoint("demo")
    program("operator").post(API, WISH, format="json")
    manager.answers["/api/v2/silences"] = (200, [row("s-1", "expired")])
    assert "Nothing is silenced" in browser("viewer").get("/alerts/silences/").text


def test_one_that_is_away_is_said_and_nothing_is_kept_here(manager: Stub, settings: Any) -> None:
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
    assert "It cannot be reached." in page.text
    assert browser("operator").post(f"/alerts/silences/{kept.pk}/expire/").status_code == 302
    teams = {"matchers": ["team=ours"], "comment": "x"}
    use(settings, manager.url)
    assert "knows no teams" in client.post(API, teams, format="json").json()["detail"]


def test_the_console_sends_nothing_of_its_alerts(manager: Stub, monkeypatch: Any) -> None:
    make_endpoint("demo")
    labels = {"alertname": "Slow", "endpoint": "demo", "severity": "page"}
    alert = firing_module.Alert("Slow", "demo", "", "page", None, "s", "r", labels)
    monkeypatch.setattr(dispatching, "firing", lambda *_: Firing((alert,)))
    monkeypatch.setattr(dispatching.sources, "any_known", lambda: True)
    assert dispatching.read().alerts == ()
    monkeypatch.setattr(dispatching.managers.sources, "alertmanagers", tuple)
    assert len(dispatching.read().alerts) == 1


def test_one_of_several_sources_away_ends_nothing(monkeypatch: Any) -> None:
    monkeypatch.setattr(dispatching, "firing", lambda *_: Firing((), missing="west is away"))
    monkeypatch.setattr(dispatching.sources, "any_known", lambda: True)
    seen = dispatching.read()
    assert (seen.unknown, seen.why) == (True, "west is away")


def test_its_configuration_says_the_same(tmp_path: Path, settings: Any) -> None:
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
        receiving.create(ada, facts)
    wish = {"receiver": "chat", "matchers": ["team!=ours", 'severity="page"'], "group_by": []}
    routing.create(ada, wish)
    routing.create(ada, {"receiver": "mail", "matchers": ["team=ours"], "send_resolved": False})
    text = browser("viewer").get("/alerts/receivers/alertmanager.yml").text
    assert text == selectors.for_alertmanager().yml()
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
    if AMTOOL:  # where Alertmanager is installed, its own word
        file = tmp_path / "alertmanager.yml"
        file.write_text(text)
        said = subprocess.run(
            [AMTOOL, "check-config", str(file)], capture_output=True, text=True, check=False
        )
        assert said.returncode == 0, said.stdout + said.stderr
