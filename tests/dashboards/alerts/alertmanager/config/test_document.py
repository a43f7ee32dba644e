"""Configuration of Alertmanager: accepted by amtool and by a cluster, with a form for each kind."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.core.mail import Mail
from console.launcher.alertmanager import find_amtool
from console.launcher.layout import ROOT, Layout
from dashboards.alerts.alertmanager import receivers, routes, selectors
from dashboards.alerts.alertmanager.config.document import (
    TEMPLATES,
    AlertmanagerConfig,
    MailServer,
    ReceiverConfig,
    RouteConfig,
)
from dashboards.alerts.alertmanager.config.matchers import Matcher
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS
from tests.support import teams as made
from tests.support.console import browser, person, program
from tests.support.kube.cluster import Cluster
from tests.support.people import client_of

URL = "https://hooks.example.org/T0KEN"
RECEIVERS = (
    ReceiverConfig("hook", "webhook", {}, ("url",)),
    ReceiverConfig("chat", "slack", {"channel": "#ops"}, ("url",), send_resolved=False),
    ReceiverConfig("mail", "email", {"to": "a@example.org, b@example.org"}),
)
ROUTE = RouteConfig("hook", (), ("alertname", "endpoint"), 30, 300, 14400)
TEAMS = {"ours": ["chat", "code"], "theirs": ["bot"]}
MAIL = MailServer("smtp.example.org:587", "console@example.org", True, "console", "s3cret")
CONFIG = AlertmanagerConfig(RECEIVERS, (ROUTE,), TEAMS, MAIL)


def example(kind: str) -> ReceiverConfig:
    """Return a receiver with every field of its kind."""
    values: dict[str, Any] = {
        one.name: URL if one.url else -5 if one.number else "x@example.org"
        for one in KINDS[kind].fields
    }
    secrets = tuple(one.name for one in KINDS[kind].fields if one.secret)
    return ReceiverConfig(kind, kind, values, secrets)


def test_amtool_accepts_every_kind(tmp_path: Path) -> None:
    amtool = find_amtool(Layout(ROOT / "var"))
    assert amtool is not None, "No amtool: make test-tools"
    templates = tmp_path / "emberline.tmpl"
    templates.write_text(TEMPLATES)
    kinds = [example(name) for name, kind in KINDS.items() if kind.since <= (0, 25)]
    assert len(kinds) == len(KINDS) - 1  # Teams came with 0.26
    every = [RouteConfig(one.name, (), (), 0, 10, 60) for one in kinds]
    whole = AlertmanagerConfig(kinds, every, TEAMS, MAIL)
    for name, text in (("whole", whole.document(str(templates))), ("shown", whole.document())):
        file = tmp_path / f"{name}.yml"
        file.write_text(yaml.safe_dump(text))
        done = subprocess.run(
            [amtool, "check-config", str(file)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_cluster_accepts_receivers(cluster: Cluster) -> None:
    """Kinds that the definition at hand declares; see docs/limitations.md for the others."""
    kinds = [example(name) for name in ("webhook", "email", "slack")]
    body = yaml.safe_load(dataclasses.replace(CONFIG, receivers=kinds, routes=()).object())
    space = cluster.namespace()
    applied = cluster.api.apply("AlertmanagerConfig", space, body, fieldValidation="Strict")
    assert len(applied["spec"]["receivers"]) == len(kinds) + 1
    assert "T0KEN" not in str(body)


def test_cluster_accepts_routes(cluster: Cluster) -> None:
    conditions = (Matcher("severity", "=~", "page|ticket"), Matcher("team", "!=", "ours"))
    both = (ROUTE, dataclasses.replace(ROUTE, receiver="chat", conditions=conditions))
    config = dataclasses.replace(CONFIG, routes=both)
    body = yaml.safe_load(config.object())
    applied = cluster.api.apply(
        "AlertmanagerConfig", cluster.namespace(), body, fieldValidation="Strict"
    )
    assert applied["spec"] == config.spec()
    first, second = applied["spec"]["route"]["routes"]
    assert "matchers" not in first
    assert first["groupBy"] == ["alertname", "endpoint"]
    times = first["groupWait"], first["repeatInterval"], first["continue"]
    assert times == ("30s", "14400s", True)
    assert second["matchers"] == [
        {"name": "severity", "matchType": "=~", "value": "page|ticket"},
        {"name": "endpoint", "matchType": "!~", "value": "chat|code"},
    ]


def test_object_refers_to_secrets() -> None:
    by_name = {one.pop("name"): one for one in CONFIG.spec()["receivers"]}
    assert by_name.pop("nobody") == {}  # receiver of unmatched alerts
    key = {"name": "emberline-receivers", "key": "hook-url"}
    assert by_name["hook"] == {"webhookConfigs": [{"urlSecret": key, "sendResolved": True}]}
    (chat,) = by_name["chat"]["slackConfigs"]
    assert (chat["apiURL"]["key"], chat["channel"], chat["sendResolved"]) == (
        *("chat-url", "#ops"),
        False,
    )
    (letter,) = by_name["mail"]["emailConfigs"]
    assert letter["to"] == "a@example.org, b@example.org"
    assert letter["authPassword"]["key"] == "smtp-password"
    assert CONFIG.keys == ("hook-url", "chat-url", "smtp-password")
    assert dataclasses.replace(CONFIG, mail=MailServer()).keys == ("hook-url", "chat-url")


def test_tests_reach_their_receiver_only() -> None:
    tests = CONFIG.document()["route"]["routes"][: len(RECEIVERS)]
    assert [one["matchers"] for one in tests] == [
        [f'emberline_test="{one.name}"'] for one in RECEIVERS
    ]
    assert not any(one.get("continue") for one in tests)


@pytest.mark.django_db
def test_page_api_and_command_line_are_equal_without_secrets(settings: Any) -> None:
    settings.MAIL = Mail("smtp.example.org", 587, "none", "", "", "console@example.org")
    ada = person("admin")
    receivers.create(ada, {"name": "hook", "kind": "webhook", "url": URL, "everything": True})
    receivers.create(ada, {"name": "mail", "kind": "email", "to": ["a@example.org"]})
    routes.create(ada, {"receiver": "mail", "matchers": ["severity=page"]})
    text = browser("viewer").get("/alerts/receivers/alertmanagerconfig.yml").text
    document = program("viewer").get("/api/v1/alertmanager-config/").json()
    assert text == document["alertmanager_config"] == selectors.config().object()
    assert document["alertmanager_yml"] == selectors.config().yml()
    assert (
        document["alertmanager_yml"]
        == browser("viewer").get("/alerts/receivers/alertmanager.yml").text
    )
    assert "T0KEN" not in str(document)
    assert "kubectl create secret generic emberline-receivers --from-file=hook-url=FILE" in text
    found = {one["name"]: one for one in yaml.safe_load(text)["spec"]["receivers"]}
    (letter,) = found["mail"]["emailConfigs"]
    assert (letter["requireTLS"], letter["smarthost"]) == (False, "smtp.example.org:587")
    assert "authPassword" not in letter


@pytest.mark.django_db
def test_team_members_get_neither() -> None:
    member = client_of(made.teams().gina)
    assert member.get("/alerts/receivers/alertmanagerconfig.yml").status_code == 403
    assert member.get("/api/v1/alertmanager-config/").status_code == 403
