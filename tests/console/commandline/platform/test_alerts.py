"""`emberline alert`, `emberline silence` and `emberline receiver`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from dashboards.alerts.alertmanager import config_file, silences
from dashboards.alerts.alertmanager.models import AlertRecord
from dashboards.alerts.alertmanager.silences import Silence
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from tests.console.commandline.test_parser import refused, run
from tests.support.console import make_endpoint, person
from tests.support.http_stub import http_stub

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("alertmanager")]


def active() -> Silence:
    (row,) = (one for one in silences.list_silences(person("viewer")).rows if one.state == "active")
    return row


def test_silences() -> None:
    make_endpoint("demo")
    assert "No silences" in run("silence", "list")
    content = run(
        "silence", "add", "endpoint=demo", "severity!=page", "--for", "1d", "--comment", "x"
    )
    one = active()
    assert one.id in content
    assert 'severity!="page"' in run("silence", "list")
    assert refused("silence", "add", "endpoint", "--comment", "x")[0] == 3
    assert "ended" in run("silence", "expire", one.id)
    assert "No silences" in run("silence", "list")
    assert run("silence", "list", "--all", "-o", "name") == f"{one.id}\n"
    assert refused("silence", "expire", "00000000-0000-0000-0000-000000000001")[0] == 4


def test_receivers_and_routes(tmp_path: Path) -> None:
    assert "No alert receivers configured" in run("receiver", "list")
    with http_stub({"/T0KEN": (200, "")}) as stub:
        url = tmp_path / "url"
        url.write_text(f"{stub.url}/T0KEN\n")
        made = run("receiver", "create", "chat", "kind=slack", "--url-from", str(url))
        assert "Receiver chat created" in made
        assert "No alert routes" in run("receiver", "routes")
        routed = run("receiver", "route", "chat", "severity=page")
        assert 'sends severity="page" to chat' in routed
        assert "chat" in run("receiver", "routes")
        assert "deleted" in run("receiver", "unroute", routed.split()[1], "--yes")
        assert "No alert routes" in run("receiver", "routes")
        assert "changed" in run("receiver", "update", "chat", "send_resolved=false")
        assert refused("receiver", "update", "chat")[0] == 2
        listed = run("receiver", "list")
        assert "chat" in listed
        assert "T0KEN" not in listed
        assert "api_url: " in run("receiver", "file")
        assert "key: chat-url" in run("receiver", "file", "--object")
        config_file.sync()
        assert "accepted the test" in run("receiver", "test", "chat")
        stub.answers["/T0KEN"] = (403, "")
        with pytest.raises(SystemExit) as failed:
            run("receiver", "test", "chat")
        assert failed.value.code == 1
    assert "routes deleted" in run("receiver", "delete", "chat", "--yes")
    assert refused("receiver", "test", "chat")[0] == 4
    assert refused("receiver", "create", "b", "kind=pigeon")[0] == 3
    assert refused("receiver", "create", "b", "--url-from", "-", "--secret-from", "-")[0] == 2


def test_alerts_are_acknowledged_and_the_acknowledgement_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_endpoint("demo")
    path = "dashboards.alerts.evaluation.firing_alerts.query_firing"
    monkeypatch.setattr(path, lambda *_: FiringAlerts(why="unknown"))
    content = run("alert", "acknowledge", "HighTTFT", "--endpoint", "demo", "--note", "on it")
    row = active()
    assert content.startswith(f"{row.id} acknowledges")
    assert (row.acknowledges, row.reason) == (True, "on it")
    assert "acknowledgement" in run("silence", "list")
    assert refused("alert", "acknowledge", "HighTTFT", "--endpoint", "demo")[0] != 0
    assert "undone" in run("alert", "unacknowledge", row.id)
    assert "No silences" in run("silence", "list")


def test_list_names_the_subject_of_each_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"alertname": "EngineTargetDown", "endpoint": "demo", "pod": "demo-worker-1"}
    alert = FiringAlert("EngineTargetDown", "demo", "", "ticket", None, "down", "", labels)
    path = "dashboards.alerts.settings.api.views.query_active"
    monkeypatch.setattr(path, lambda *_: FiringAlerts((alert,)))
    assert " demo pod=demo-worker-1 " in run("alert", "list")


def test_history_lists_intervals() -> None:
    now = timezone.now()
    AlertRecord.objects.create(
        fingerprint="x",
        rule="HighTTFT",
        endpoint="demo",
        severity="page",
        labels={"alertname": "HighTTFT", "endpoint": "demo", "pod": "demo-worker-1"},
        started_at=now - timedelta(minutes=5),
        seen_at=now,
    )
    listed = run("alert", "history", "--range", "1h", "--endpoint", "demo")
    assert "HighTTFT  demo pod=demo-worker-1" in listed
    assert "ongoing" in listed
    assert "No alerts in this range" in run("alert", "history", "--alert", "Other")


def test_secrets_are_read_from_files(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("T0KEN\n")
    run("receiver", "create", "pd", "kind=pagerduty", "--from", f"routing_key={key}")
    assert "pagerduty" in run("receiver", "list")
    code, text = refused("receiver", "create", "b", "kind=pagerduty", "--from", "routing_key")
    assert (code, "FIELD=FILE" in text) == (2, True)
