"""From a metric to a message: real Prometheus, rules, Alertmanager and receiver."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.utils.dateparse import parse_datetime

from dashboards.alerts.alertmanager import receivers, routes, tasks, transitions
from dashboards.alerts.alertmanager.models import AlertRecord
from dashboards.alerts.rules.rule_file import render
from dashboards.prometheus.http import client
from tests.dashboards.alerts.evaluation.test_firing_alerts import at_once, metrics
from tests.support.alertmanager import CONSOLE, RunningAlertmanager
from tests.support.console import make_endpoint, person
from tests.support.http_stub import Stub, http_stub
from tests.support.ports import free_port
from tests.support.prometheus import running_prometheus
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
_next = [0.0]


def test_rising_metric_sends_a_message_and_falling_another(
    tmp_path: Path, settings: Any, monkeypatch: Any, alertmanager: RunningAlertmanager
) -> None:
    """Prometheus sends to Alertmanager, and that to the receiver. Durations are shortened."""
    (tmp_path / "alerts.yml").write_text(at_once(render(), "4s"))
    make_endpoint("demo")
    monkeypatch.setattr(transitions, "ENDED_AFTER", timedelta(seconds=2))
    monkeypatch.setattr(transitions, "UNKNOWN_AFTER", timedelta(0))
    with ExitStack() as stack:
        hook = stack.enter_context(http_stub({"/hook": (200, "")}))
        router = stack.enter_context(http_stub({"/metrics": (200, metrics(45))}))
        prometheus = config(tmp_path, router, alertmanager)
        url = stack.enter_context(running_prometheus(tmp_path, prometheus))
        settings.EMBERLINE = dataclasses.replace(
            settings.EMBERLINE, prometheus_url=url, prometheus_embedded=True
        )
        receiver(hook)
        first = until(lambda: looked(hook), what="a message")[0]
        assert first["status"] == "firing"
        assert first["commonLabels"]["alertname"] == "IndexStale"
        assert first["commonLabels"]["endpoint"] == "demo"
        assert "above 30 s" in first["commonAnnotations"]["summary"]
        assert first["externalURL"] == f"{CONSOLE}/alerts"
        until(lambda: tasks.watch() or AlertRecord.objects.exists(), what="a record")
        begun = AlertRecord.objects.get(rule="IndexStale")
        router.answers["/metrics"] = (200, metrics(0.1))
        end = until(lambda: looked(hook, but=1), what="its end")[0]
        assert end["status"] == "resolved"
        (alert,) = end["alerts"]
        until(lambda: tasks.watch() or has_ended(begun), what="the end of the record")
        begun.refresh_from_db()
        assert abs(begun.started_at - parsed(alert["startsAt"])) <= timedelta(seconds=1.5)
        assert begun.ended_at is not None
        assert abs(begun.ended_at.timestamp() - last_evaluation(url)) < 0.01
        away = f"http://127.0.0.1:{free_port()}"
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=away)
        unknown = until(lambda: looked(hook, but=2), what="that nobody knows")[0]
        assert unknown["commonLabels"]["alertname"] == "NoMetrics"
    client.connect.cache_clear()


def has_ended(record: AlertRecord) -> bool:
    return AlertRecord.objects.filter(pk=record.pk).exclude(ended_at=None).exists()


def last_evaluation(url: str) -> float:
    """Return the time of the last evaluation at which the alert fired (s since the epoch)."""
    query = {"query": 'ALERTS{alertname="IndexStale",alertstate="firing"}[10m]'}
    answer = requests.get(f"{url}/api/v1/query", query, timeout=60).json()
    (series,) = answer["data"]["result"]
    return float(series["values"][-1][0])


def parsed(text: str) -> datetime:
    moment = parse_datetime(text)
    assert moment is not None
    return moment


def receiver(hook: Stub) -> None:
    ada = person("admin")
    facts = {"name": "on-call", "kind": "webhook", "url": f"{hook.url}/hook"}
    receivers.create(ada, facts)
    times = {"group_wait": 0, "group_interval": 10}
    routes.create(ada, {"receiver": "on-call", **times})


def looked(hook: Stub, but: int = 0) -> list[dict[str, Any]]:
    """Return the messages after the first `but`, once the console has evaluated again, at most
    every half second, as Prometheus' own clock ticks in seconds.
    """
    if time.monotonic() > _next[0]:
        _next[0] = time.monotonic() + 0.5
        tasks.watch()
    return [json.loads(body) for _, _, body in hook.seen[but:]]


def config(folder: Path, router: Stub, alertmanager: RunningAlertmanager) -> str:
    target = {
        "targets": [router.address],
        "labels": {"job": "router", "namespace": "default", "endpoint_name": "demo"},
    }
    return json.dumps(
        {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "alerting": {
                "alertmanagers": [
                    {
                        "static_configs": [{"targets": [alertmanager.url.removeprefix("http://")]}],
                        "basic_auth": {
                            "username": alertmanager.auth[0],
                            "password_file": str(alertmanager.password_file),
                        },
                    }
                ]
            },
            "rule_files": [str(folder / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "all", "honor_labels": True, "static_configs": [target]}
            ],
        }
    )
