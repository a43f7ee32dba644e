"""`emberline alert`, `emberline silence` and `emberline receiver`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.test import override_settings

from dashboards.alerts.evaluation.firing_alerts import FiringAlerts
from dashboards.alerts.notify.models import Silence
from tests.console.commandline.test_parser import refused, run
from tests.support.console import make_endpoint
from tests.support.http_stub import http_stub

pytestmark = pytest.mark.django_db


def test_silences() -> None:
    make_endpoint("demo")
    assert "No silences" in run("silence", "list")
    content = run(
        "silence", "add", "endpoint=demo", "severity!=page", "--for", "1d", "--comment", "x"
    )
    one = Silence.objects.get()
    assert str(one.pk) in content
    assert 'severity!="page"' in run("silence", "list")
    assert refused("silence", "add", "endpoint", "--comment", "x")[0] == 3
    assert "ended" in run("silence", "expire", str(one.pk))
    assert "No silences" in run("silence", "list")
    assert run("silence", "list", "--all", "-o", "name") == f"{one.pk}\n"
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
        assert "changed" in run("receiver", "update", "chat", "enabled=false")
        assert refused("receiver", "update", "chat")[0] == 2
        listed = run("receiver", "list")
        assert "chat" in listed
        assert "T0KEN" not in listed
        assert "api_url: " in run("receiver", "file")
        assert "key: chat-url" in run("receiver", "file", "--object")
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
    row = Silence.objects.get()
    assert content.startswith(f"{row.pk} acknowledges")
    assert (row.acknowledges, row.comment) == (True, "on it")
    assert "acknowledgement" in run("silence", "list")
    assert refused("alert", "acknowledge", "HighTTFT", "--endpoint", "demo")[0] != 0
    assert "undone" in run("alert", "unacknowledge", str(row.pk))
    assert "No silences" in run("silence", "list")


def test_history_lists_intervals_with_notifications() -> None:
    def answers(path: str, _body: bytes) -> Any:
        ranged = "query_range" in path
        labels = {"alertname": "HighTTFT", "endpoint": "demo", "alertstate": "firing"}
        query = parse_qs(urlsplit(path).query)
        at = int(query["end" if ranged else "time"][0])  # a clock of its own may be a step ahead
        sample = [at, "1"]
        one = {"metric": labels, **({"values": [sample]} if ranged else {"value": sample})}
        kind = "matrix" if ranged else "vector"
        return 200, {"status": "success", "data": {"resultType": kind, "result": [one]}}

    with http_stub({"/api/v1/query": answers, "/api/v1/query_range": answers}) as stub:
        found = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        with override_settings(EMBERLINE=found):
            listed = run("alert", "history", "--range", "1h", "--endpoint", "demo")
            assert "HighTTFT" in listed
            assert "ongoing" in listed
            assert "No alerts in this range" in run("alert", "history", "--alert", "Other")
