"""In-process API access as "system", which no network request can obtain."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client as Browser

from console import local_api
from console.accounts.credentials import LOCAL_PROOF_KEY
from console.accounts.models import User
from console.api.views import Me
from console.audit.models import AuditEvent
from console.client import Client, Conflict, NotFound, Refused, Watch
from console.client.errors import ServerFailed
from endpoints.models import Endpoint, InferenceKey, Revision

pytestmark = pytest.mark.django_db
SPEC = {"name": "demo", "model": "smollm2-135m-instruct", "engine": "simulated"}


@pytest.fixture
def local() -> Client:
    return local_api.client()


def test_local_client_is_the_system_user_and_stores_no_row(local: Client) -> None:
    assert local.get("me") == {"username": "system", "role": "admin", "token": None}
    local.post("endpoints", data=SPEC, once=True)
    made = Endpoint.objects.get()
    assert made.created_by is None
    assert Revision.objects.get().author == "system"
    assert InferenceKey.objects.get().created_by is None
    trail = AuditEvent.objects.get()
    assert (trail.actor, trail.actor_name, bool(trail.request_id)) == (None, "system", True)
    assert not User.objects.exists()


def test_every_kind_of_object_can_be_created(local: Client) -> None:
    """Rows that reference their creator store None, because "system" is not in the database."""
    local.post("cache-tiers", data={"name": "west", "memory_bytes": 1 << 30})
    local.patch("cache-tiers", "west", data={"memory_bytes": 1 << 29})
    local.delete("cache-tiers", "west")
    local.put("instance-types", "ml.test", data={"vcpus": 4, "memory_gib": 16})
    local.delete("instance-types", "ml.test")
    config = "apiVersion: v1\nkind: Config\nclusters: []\n"
    with pytest.raises(Refused):
        local.post("clusters", data={"name": "work", "kind": "kubeconfig", "kubeconfig": config})
    local.post("endpoints", data=SPEC, once=True)
    made = local.post("endpoints", "demo", "keys", data={"name": "mine"}, once=True)
    local.delete("endpoints", "demo", "keys", made["id"])
    assert set(AuditEvent.objects.values_list("actor_name", flat=True)) == {"system"}


def test_errors_keep_their_messages(local: Client) -> None:
    with pytest.raises(Refused) as refused:
        local.post("endpoints", data={**SPEC, "replicas": -1})
    assert (refused.value.field, refused.value.value) == ("replicas", -1)
    with pytest.raises(NotFound, match="Unknown endpoint other"):
        local.get("endpoints", "other")
    local.post("endpoints", data=SPEC, once=True)
    with pytest.raises(Conflict, match="changed meanwhile"):
        local.patch("endpoints", "demo", data={"replicas": 2}, generation=9)


@pytest.mark.parametrize("value", ["1", "true", "<object object>", object()])
def test_remote_requests_cannot_impersonate_it(value: Any) -> None:
    """Neither a header in any spelling, nor the right key with another value than the proof."""
    names = (LOCAL_PROOF_KEY, "HTTP_EMBERLINE_LOCAL", "HTTP_EMBERLINE.LOCAL", "emberline_local")
    for name in names:
        assert Browser().get("/api/v1/me/", **{name: value}).status_code == 401


@pytest.mark.parametrize(("code", "logged"), [(sqlite3.SQLITE_FULL, 0), (sqlite3.SQLITE_ERROR, 1)])
def test_traceback_is_logged_for_crashes_only(
    local: Client, code: int, logged: int, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cause = sqlite3.OperationalError("database or disk is full")
    cause.sqlite_errorcode = code

    def fail(*_: object) -> None:
        raise OperationalError from cause

    monkeypatch.setattr(Me, "get", fail)
    with local_api.without_request_log(), pytest.raises(ServerFailed):
        local.get("me")
    assert len([record for record in caplog.records if record.name == "django.request"]) == logged


def test_waiting_polls_locally(local: Client) -> None:
    local.post("endpoints", data=SPEC, once=True)
    watch = Watch(local, ("endpoints", "demo"))
    assert next(iter(watch))["name"] == "demo"
    assert "in this process" in watch.fallback
