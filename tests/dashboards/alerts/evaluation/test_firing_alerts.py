"""Alerts of a real Prometheus with our rules, on endpoint and fleet pages."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client

from dashboards.alerts.evaluation.firing_alerts import describe, query_firing
from dashboards.alerts.rules.rule import Setting
from dashboards.alerts.rules.rule_file import RULES, Settings, UserRule, render
from dashboards.alerts.settings.models import RuleSetting
from dashboards.boards.queries import Scope
from dashboards.prometheus.http.client import Deadlines, Prometheus
from endpoints.models import Endpoint
from tests.support.console import browser, make_endpoint
from tests.support.http_stub import Stub, http_stub
from tests.support.ports import free_port
from tests.support.prometheus import running_prometheus, write_blocks
from tests.support.waiting import until

LAG = "emberline_router_index_event_lag_seconds"


def metrics(lag: float) -> str:
    """Routers of two endpoints behind one address."""
    return "".join(
        f'{LAG}{{namespace="default",endpoint="{name}",worker="{name}-worker-0"}} {seconds}\n'
        for name, seconds in (("demo", lag), ("well", 0.01))
    )


@dataclasses.dataclass
class Watched:
    url: str
    router: Stub


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("alerts")
    (folder / "alerts.yml").write_text(at_once(render()))
    with ExitStack() as stack:
        router = stack.enter_context(http_stub({"/metrics": (200, metrics(45))}))
        target = {
            "targets": [router.address],
            "labels": {"job": "router", "namespace": "default", "endpoint_name": "demo"},
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "alerts.yml")],
            "scrape_configs": [
                {"job_name": "all", "honor_labels": True, "static_configs": [target]}
            ],
        }
        url = stack.enter_context(running_prometheus(folder, json.dumps(config)))
        yield Watched(url, router)


def at_once(rules: str, after: str = "0s") -> str:
    """Shorten `for` durations, which have their own test."""
    data: Any = yaml.safe_load(rules)
    for rule in data["groups"][0]["rules"]:
        rule["for"] = after
    return yaml.safe_dump(data)


def client(url: str) -> Prometheus:
    return Prometheus(url, Deadlines(cache_s=0.1))


def test_alerts_fire_with_their_labels_and_resolve(watched: Watched) -> None:
    prometheus = client(watched.url)
    found = until(lambda: query_firing(prometheus, Scope("demo")).alerts, what="an alert")
    (alert,) = found
    assert (alert.name, alert.endpoint, alert.worker) == ("IndexStale", "demo", "demo-worker-0")
    assert alert.since is not None
    assert (alert.summary, alert.value) == ("", None)
    patient = {"demo": Setting({"threshold": 40.0})}
    for changed, summary in (({}, "above 30 s"), ({"IndexStale": patient}, "above 40 s")):
        settings = Settings(of_endpoints=changed)
        (described,) = describe(prometheus, (alert,), settings)
        assert summary in described.summary
        assert "doctor" in described.remedy
        assert described.value == 45
    expr = f"max by (endpoint, worker) ({LAG}) > 1"
    own = UserRule("Mine", expr, 0, "ticket", "{{ $labels.worker }} {{ $value }}")
    mine = dataclasses.replace(alert, name="Mine")
    (described,) = describe(prometheus, (mine,), Settings(own=(own,)))
    assert (described.summary, described.value) == ("demo-worker-0 45", 45)
    assert describe(prometheus, (mine,), Settings()) == (mine,), "the viewer may not see the rule"
    assert query_firing(prometheus, Scope("well")).alerts == ()
    assert len(query_firing(prometheus, Scope()).alerts) == 1
    watched.router.answers["/metrics"] = (200, metrics(0.1))
    until(lambda: not query_firing(prometheus, Scope("demo")).alerts, what="its end")
    watched.router.answers["/metrics"] = (200, metrics(45))
    prometheus.close()


def get_page_with_alert(viewer: Client, path: str) -> str:
    text = viewer.get(path).text
    return text if "IndexStale" in text else ""


@pytest.mark.django_db
def test_pages_show_firing_alerts(watched: Watched, settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=watched.url)
    make_endpoint("demo")
    make_endpoint("well")
    RuleSetting.objects.create(rule="IndexStale", endpoint=None, values={"threshold": 40.0})
    viewer = browser("viewer")
    path = "/dashboards/endpoints/demo/alerts"
    text = until(lambda: get_page_with_alert(viewer, path), what="the alert")
    assert "above 40 s" in text
    assert "demo-worker-0" in text
    assert "Compare the clocks" in text
    assert viewer.get("/dashboards/endpoints/well/alerts").text.strip() == ""
    assert 'href="/endpoints/demo/"' in viewer.get("/dashboards/alerts").text
    assert viewer.get("/dashboards/endpoints/nope/alerts").status_code == 404
    assert f'hx-get="{path}"' in viewer.get("/endpoints/demo/").text
    assert 'hx-get="/dashboards/alerts"' in viewer.get("/").text
    Endpoint.objects.filter(name="demo").delete()
    for url in ("/dashboards/alerts", "/alerts/"):
        text = until(lambda url=url: get_page_with_alert(viewer, url), what="the alert")
        assert "demo" in text
        assert "/endpoints/demo/" not in text, "a deleted endpoint has no page"


@pytest.mark.django_db
def test_pages_report_unknown_state_without_prometheus(settings: Any) -> None:
    make_endpoint("demo")
    for url in ("", f"http://127.0.0.1:{free_port()}"):
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)
        page = browser("viewer").get("/dashboards/endpoints/demo/alerts")
        assert page.status_code == 200
        assert "Alert state unknown" in page.text


@pytest.mark.django_db
def test_rules_can_be_exported_for_another_prometheus(tmp_path: Path) -> None:
    answer = browser("viewer").get("/dashboards/alerts.yml")
    assert answer["content-type"] == "application/yaml"
    groups = yaml.safe_load(answer.content)["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == [rule.name for rule in RULES]


def test_alerts_are_unknown_where_nothing_is_stored(tmp_path: Path) -> None:
    """As with a full disk: alerts vanish from Prometheus together with the samples."""
    now = int(time.time())
    write_blocks({"up": [f'up{{job="router"}} 1 {now - age_s}' for age_s in (900, 600)]}, tmp_path)
    with running_prometheus(tmp_path, "{}") as url:
        prometheus = client(url)
        why = until(lambda: query_firing(prometheus, Scope()).why, what="the reason")
        assert "stored no samples" in why
        prometheus.close()
