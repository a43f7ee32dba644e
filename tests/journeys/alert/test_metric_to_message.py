"""From a metric to a message: real Prometheus, rules, the console's task, real receiver."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts.notify import deliveries, dispatcher, receivers, routes, tasks
from dashboards.alerts.notify.models import Delivery, Route
from dashboards.alerts.rules.rule_file import render
from dashboards.prometheus.http import client
from tests.dashboards.alerts.evaluation.test_firing_alerts import at_once, metrics
from tests.support.console import make_endpoint, person
from tests.support.http_stub import Stub, http_stub
from tests.support.ports import free_port
from tests.support.prometheus import running_prometheus
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
_next = [0.0]


def test_rising_metric_sends_a_message_and_falling_another(
    tmp_path: Path, settings: Any, monkeypatch: Any
) -> None:
    """Configurable durations are shortened, and one fixed duration."""
    (tmp_path / "alerts.yml").write_text(at_once(render()))
    make_endpoint("demo")
    monkeypatch.setattr(
        "dashboards.alerts.notify.dispatcher.RESOLVED_AFTER", dispatcher.timedelta(seconds=2)
    )
    monkeypatch.setattr(
        "dashboards.alerts.notify.dispatcher.UNKNOWN_AFTER", dispatcher.timedelta(0)
    )
    monkeypatch.setattr(tasks.deliver, "nudge", lambda pk: deliveries.attempt_delivery(pk))
    with ExitStack() as stack:
        hook = stack.enter_context(http_stub({"/hook": (200, "")}))
        router = stack.enter_context(http_stub({"/metrics": (200, metrics(45))}))
        url = stack.enter_context(running_prometheus(tmp_path, config(tmp_path, router)))
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)
        receiver(hook)
        first = until(lambda: looked(hook), what="a message")[0]
        assert first["status"] == "firing"
        assert first["commonLabels"]["alertname"] == "IndexStale"
        assert first["commonLabels"]["endpoint"] == "demo"
        assert "above 30 s" in first["commonAnnotations"]["summary"]
        router.answers["/metrics"] = (200, metrics(0.1))
        Route.objects.get().groups.update(due_at="2000-01-01T00:00:00Z")
        end = until(lambda: looked(hook, but=1), what="its end")[0]
        assert end["status"] == "resolved"
        away = f"http://127.0.0.1:{free_port()}"
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=away)
        unknown = until(lambda: looked(hook, but=2), what="that nobody knows")[0]
        assert unknown["commonLabels"]["alertname"] == "NoMetrics"
        assert len(hook.seen) == Delivery.objects.filter(state="sent").count() == 3
    client.connect.cache_clear()


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
        tasks.dispatch_alerts()
    return [json.loads(body) for _, _, body in hook.seen[but:]]


def config(folder: Path, router: Stub) -> str:
    target = {
        "targets": [router.address],
        "labels": {"job": "router", "namespace": "default", "endpoint_name": "demo"},
    }
    return json.dumps(
        {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "all", "honor_labels": True, "static_configs": [target]}
            ],
        }
    )
