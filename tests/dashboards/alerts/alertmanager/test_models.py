"""Rows of a database before Alertmanager: receivers, routes, silences and alerts move over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from console.vault import store
from dashboards.alerts.alertmanager import selectors
from dashboards.alerts.alertmanager.models import AlertRecord, Receiver, StoredSilence

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def before() -> Any:
    """Return the models of the earlier version; the test's end migrates forwards again."""
    executor = MigrationExecutor(connection)
    latest = executor.loader.graph.leaf_nodes()
    executor.migrate([("notify", "0004_sent")])
    yield executor.loader.project_state([("notify", "0004_sent")]).apps
    MigrationExecutor(connection).migrate(latest)


def test_rows_of_an_earlier_version_are_kept(before: Any) -> None:
    now = timezone.now()
    receivers = before.get_model("notify", "Receiver").objects
    hook = receivers.create(name="hook", kind="webhook", shown="https://h.example/…", signed=True)
    chat = receivers.create(name="chat", kind="slack", shown="https://c.example/…", enabled=False)
    receivers.create(name="mail", kind="email", to=["a@b.example", "c@d.example"])
    store.put(f"notify/{hook.pk}/url", "https://h.example/T0KEN")
    store.put(f"notify/{hook.pk}/secret", "of-the-receiver-0")
    store.put(f"notify/{chat.pk}/url", "https://c.example/T0KEN")
    routes = before.get_model("notify", "Route").objects
    matcher = {"name": "team", "op": "=", "value": "ours"}
    routes.create(receiver=hook, matchers=[matcher], repeat_s=600, send_resolved=False)
    silences = before.get_model("notify", "Silence").objects
    common = {"matchers": [matcher], "comment": "x", "author": "ada"}
    silences.create(ends_at=now + timedelta(hours=1), **common)
    silences.create(ends_at=now - timedelta(hours=1), **common)
    silences.create(ends_at=now + timedelta(hours=1), remote={"west": "s-1"}, **common)
    labels = {"alertname": "HighTTFT", "endpoint": "demo", "severity": "page", "team": "ours"}
    before.get_model("notify", "SeenAlert").objects.create(
        fingerprint="f", labels=labels, started_at=now, seen_at=now
    )
    MigrationExecutor(connection).migrate([("notify", "0005_alertmanager")])
    rows = {row.name: row for row in Receiver.objects.all()}
    assert rows["hook"].secrets == ["secret", "url"]
    assert (rows["hook"].send_resolved, rows["chat"].send_resolved) == (False, True)
    assert rows["mail"].config == {"to": "a@b.example, c@d.example"}
    assert selectors.stored_secrets() == {
        ("hook", "secret"): "of-the-receiver-0",
        ("hook", "url"): "https://h.example/T0KEN",
    }
    assert store.get(rows["chat"].secret_name("url")) == "https://c.example/T0KEN"
    (route,) = rows["hook"].routes.all()
    assert (route.repeat_s, [str(one) for one in route.conditions]) == (600, ['team="ours"'])
    assert StoredSilence.objects.count() == 1
    record = AlertRecord.objects.get()
    assert (record.rule, record.endpoint, record.ended_at) == ("HighTTFT", "demo", None)
    assert "team" not in record.labels
