"""Receivers and routes as an AlertmanagerConfig: valid by the published schema, without secrets."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from console.core.environment import Mail
from dashboards.alerts.notify import receivers as notify_receivers
from dashboards.alerts.notify import routes as notify_routes
from dashboards.alerts.notify import selectors
from dashboards.alerts.notify.protocol.alertmanager_config import (
    AlertmanagerExport,
    MailFacts,
    ReceiverFacts,
    RouteFacts,
)
from dashboards.alerts.notify.protocol.matchers import Matcher
from tests.support import teams as made
from tests.support.console import browser, person, program
from tests.support.kube.cluster import Cluster
from tests.support.people import client_of

RECEIVERS = (
    ReceiverFacts("hook", "webhook", "https://hooks.example.org/…"),
    ReceiverFacts("chat", "slack", "https://chat.example.org/…", send_resolved=False),
    ReceiverFacts("mail", "email", to=("a@example.org", "b@example.org")),
)
ROUTE = RouteFacts("hook", (), ("alertname", "endpoint"), 30, 300, 14400)
TEAMS = {"ours": ["chat", "code"], "theirs": ["bot"]}
MAIL = MailFacts("smtp.example.org:587", "console@example.org", True, "console")
EXPORT = AlertmanagerExport(RECEIVERS, (ROUTE,), TEAMS, MAIL)


def test_cluster_accepts_the_published_configuration(cluster: Cluster) -> None:
    conditions = (Matcher("severity", "=~", "page|ticket"), Matcher("team", "!=", "ours"))
    routes = (ROUTE, dataclasses.replace(ROUTE, receiver="chat", conditions=conditions))
    export = dataclasses.replace(EXPORT, routes=routes)
    body = yaml.safe_load(export.object())
    space = cluster.namespace()
    made = cluster.api.apply("AlertmanagerConfig", space, body, fieldValidation="Strict")
    assert made["spec"] == export.spec()
    first, second = made["spec"]["route"]["routes"]
    assert "matchers" not in first
    assert first["groupBy"] == ["alertname", "endpoint"]
    assert (first["groupWait"], first["repeatInterval"], first["continue"]) == (
        "30s",
        "14400s",
        True,
    )
    assert second["matchers"] == [
        {"name": "severity", "matchType": "=~", "value": "page|ticket"},
        {"name": "endpoint", "matchType": "!~", "value": "chat|code"},
    ]


def test_every_routed_receiver_exists_and_reads_its_secret() -> None:
    found = EXPORT.spec()
    by_name = {one.pop("name"): one for one in found["receivers"]}
    assert by_name.pop("nobody") == {}  # receiver of unmatched alerts
    key = {"name": "emberline-receivers", "key": "hook-url"}
    assert by_name["hook"] == {"webhookConfigs": [{"urlSecret": key, "sendResolved": True}]}
    assert by_name["chat"]["slackConfigs"][0]["apiURL"]["key"] == "chat-url"
    assert by_name["chat"]["slackConfigs"][0]["sendResolved"] is False
    (letter,) = by_name["mail"]["emailConfigs"]
    assert letter["to"] == "a@example.org, b@example.org"
    assert letter["authPassword"]["key"] == "smtp-password"
    assert EXPORT.keys == ("hook-url", "chat-url", "smtp-password")
    assert dataclasses.replace(EXPORT, mail=MailFacts()).keys == ("hook-url", "chat-url")


@pytest.mark.django_db
def test_page_api_and_command_line_are_equal_without_secrets(settings: Any) -> None:
    settings.MAIL = Mail("smtp.example.org", 587, "none", "", "", "console@example.org")
    ada, url = person("admin"), "https://hooks.example.org/T0KEN"
    notify_receivers.create(
        ada, {"name": "hook", "kind": "webhook", "url": url, "everything": True}
    )
    notify_receivers.create(ada, {"name": "mail", "kind": "email", "to": ["a@example.org"]})
    notify_routes.create(ada, {"receiver": "mail", "matchers": ["severity=page"]})
    text = browser("viewer").get("/alerts/receivers/alertmanagerconfig.yml").text
    document = program("viewer").get("/api/v1/alertmanager-config/").json()
    assert text == document["alertmanager_config"] == selectors.alertmanager_export().object()
    assert document["alertmanager_yml"] == selectors.alertmanager_export().yml()
    assert "T0KEN" not in str(document)
    assert "kubectl create secret generic emberline-receivers --from-file=hook-url=FILE" in text
    receivers = {one["name"]: one for one in yaml.safe_load(text)["spec"]["receivers"]}
    (letter,) = receivers["mail"]["emailConfigs"]
    assert (letter["requireTLS"], letter["smarthost"]) == (False, "smtp.example.org:587")
    assert "authPassword" not in letter


@pytest.mark.django_db
def test_team_members_get_neither() -> None:
    member = client_of(made.teams().gina)
    assert member.get("/alerts/receivers/alertmanagerconfig.yml").status_code == 403
    assert member.get("/api/v1/alertmanager-config/").status_code == 403
