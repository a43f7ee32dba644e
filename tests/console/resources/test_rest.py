"""What every resource has: dry runs, and If-Match with or without a generation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import Team
from console.audit.models import AuditEvent
from console.vault.models import SealedText
from dashboards.alerts.alertmanager.models import Receiver, Route
from endpoints.models import KeyGroup
from tests.support import teams
from tests.support.console import browser, make_endpoint
from tests.support.people import client_of

pytestmark = pytest.mark.django_db
HOOK = {"name": "hook", "kind": "webhook", "url": "https://hooks.example.org/T0KEN"}


def send(client: Client, verb: str, path: str, data: Any = None, **headers: str) -> Any:
    body = {"data": json.dumps(data), "content_type": "application/json"} if data else {}
    return getattr(client, verb)(f"/api/v1/{path}", **body, headers=headers)


@pytest.mark.parametrize(
    ("path", "body", "change", "model"),
    [
        ("receivers/", HOOK, {"send_resolved": False}, Receiver),
        ("alert-routes/", {"receiver": "first"}, {"repeat_interval": "8h"}, Route),
        ("teams/", {"name": "Search"}, {"description": "Ranks."}, Team),
    ],
)
def test_dry_runs_show_changes_and_make_none(
    path: str, body: dict[str, Any], change: dict[str, Any], model: Any
) -> None:
    ada = browser("admin")
    assert send(ada, "post", "receivers/", {**HOOK, "name": "first"}).status_code == 201

    def stored() -> list[Any]:
        rows = model.objects.order_by("pk").values()
        return [*rows, SealedText.objects.count(), AuditEvent.objects.count()]

    before = stored()
    preview = send(ada, "post", f"{path}?dry_run=true", body)
    assert (preview.status_code, preview.json()["action"]) == (200, "create")
    assert "T0KEN" not in preview.text
    assert stored() == before
    document = send(ada, "post", path, body).json()
    key = document.get("id") or document.get("slug") or document["name"]
    before = stored()
    ((name, value),) = change.items()
    (row,) = send(ada, "patch", f"{path}{key}/?dry_run=true", change).json()["changes"]
    assert (row["field"], row["before"], row["after"]) == (name, document[name], value)
    same = send(ada, "patch", f"{path}{key}/?dry_run=true", {name: document[name]})
    assert same.json()["action"] == "unchanged"
    assert send(ada, "delete", f"{path}{key}/?dry_run=true").json()["action"] == "delete"
    assert stored() == before
    assert send(ada, "patch", f"{path}{key}/", change).json()[name] == value
    assert send(ada, "delete", f"{path}{key}/").status_code == 204


def test_another_secret_is_a_change_without_its_value() -> None:
    ada = browser("admin")
    send(ada, "post", "receivers/", HOOK)
    change = {"url": "https://hooks.example.org/OTHER"}
    answer = send(ada, "patch", "receivers/hook/?dry_run=true", change)
    assert "OTHER" not in answer.text
    assert "url" in {row["field"] for row in answer.json()["changes"]}


def test_an_object_without_a_generation_is_compared_as_a_whole() -> None:
    ada = browser("admin")
    group = {"name": "partners", "endpoints": [make_endpoint().name]}
    path = f"key-groups/{send(ada, 'post', 'key-groups/', group).json()['id']}/"
    first = {"If-Match": send(ada, "get", path).headers["ETag"]}
    assert send(ada, "put", path, {**group, "name": "friends"}, **first).status_code == 200
    assert send(ada, "put", path, group, **first).status_code == 412
    assert send(ada, "delete", path, **first).status_code == 412
    assert KeyGroup.objects.get().name == "friends"


def test_a_platform_resource_is_hidden_from_members_of_a_team() -> None:
    erin = client_of(teams.teams().erin)
    for path in ("receivers/", "alert-routes/", "metrics-sources/", "receivers/hook/"):
        assert send(erin, "get", path).status_code == 403
