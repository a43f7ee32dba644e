"""The admin port responds even while the process hangs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from django.test import Client

from console.core import counters
from console.processkit.metrics import parse_samples, total
from console.telemetry import meters
from console.telemetry.admin_server import AdminServer, AdminSubject, start


class Health:
    alive = ""
    ready = ""


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def port(health: Health) -> Iterator[str]:
    subject = AdminSubject(
        "worker",
        lambda: health.alive,
        lambda: health.ready,
        lambda: {"tasks_running": ("Under way.", 3)},
    )
    server = AdminServer("127.0.0.1:0", subject)
    yield f"http://127.0.0.1:{server.port}"
    server.close()


def test_health_states_its_reason(port: str, health: Health) -> None:
    assert httpx.get(f"{port}/healthz").status_code == 200
    assert httpx.get(f"{port}/readyz").json() == {"program": "worker", "ok": True, "why": ""}
    health.ready = "not yet"
    assert httpx.get(f"{port}/healthz").status_code == 200
    assert httpx.get(f"{port}/readyz").json()["why"] == "not yet"
    health.alive = "stuck"
    for path in ("healthz", "readyz"):
        answer = httpx.get(f"{port}/{path}")
        assert (answer.status_code, answer.json()["why"]) == (503, "stuck")


def test_metrics_have_counters_gauges_and_the_process(port: str) -> None:
    counters.increment("task_runs", task="tests.scraped", outcome="done")
    meters.task_ended("tests.scraped", 0.2)
    answer = httpx.get(f"{port}/metrics?x=1")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = parse_samples(answer.text)
    assert total(samples, "emberline_console_info", program="worker") == 1
    assert total(samples, "emberline_console_task_runs_total", task="tests.scraped") == 1
    assert total(samples, "emberline_console_tasks_running") == 3
    bucket = "emberline_console_task_seconds_bucket"
    assert total(samples, bucket, task="tests.scraped", le="0.1") == 0
    assert total(samples, bucket, task="tests.scraped", le="0.5") == 1
    assert (total(samples, "process_resident_memory_bytes") or 0) > 1e6
    assert "# TYPE emberline_console_task_runs_total counter" in answer.text


def test_other_paths_are_404(port: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert httpx.get(f"{port}/").status_code == 404
        assert httpx.get(f"{port}/metrics/../secrets").status_code == 404
        answer = httpx.post(f"{port}/healthz")
    assert answer.status_code == 501
    assert "Python" not in answer.headers["server"]
    assert not [r for r in caplog.records if r.name.startswith("console.")]


def test_missing_address_opens_no_port() -> None:
    assert start("", AdminSubject("web")) is None


def test_port_in_use_stops_the_start(port: str) -> None:
    with pytest.raises(OSError, match="in use"):
        start(port.removeprefix("http://"), AdminSubject("web"))


def _answered(**labels: str) -> float:
    samples = parse_samples(meters.render("web", {}))
    return total(samples, "emberline_console_http_requests_total", **labels) or 0


def test_requests_are_counted_by_route_not_by_path(client: Client, db: Any) -> None:
    before = _answered(route="healthz", code="200", method="GET")
    client.get("/healthz")
    assert _answered(route="healthz", code="200", method="GET") == before + 1
    client.get("/no/such/page/of/somebody")
    client.get("/endpoints/secret-name/")
    client.generic("BREW", "/healthz")
    text = meters.render("web", {})
    assert "somebody" not in text  # letters, because digits could be part of a timestamp
    assert "secret-name" not in text
    assert "BREW" not in text
    assert _answered(method="other") >= 1
