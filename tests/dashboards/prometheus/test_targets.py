"""Scrape targets and their access token."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client

from cachetier.models import CacheNode, CacheTier
from console.clusters import actions as clusters
from console.launcher import processes
from console.launcher.layout import Layout, write_facts
from console.launcher.processes import Services
from console.processkit.metrics import Registry
from dashboards import tasks
from dashboards.prometheus.config.scrape_config import TARGETS_FILE
from dashboards.prometheus.sources import actions as metrics
from dashboards.prometheus.targets import Phases, TargetsFile, Transitions
from endpoints.models import EndpointStatus
from tests.support.console import browser, make_endpoint, person, pretend_ready

pytestmark = pytest.mark.django_db

URL = "/prometheus/targets"
TOKEN = "a-token-of-44-characters"
SERVICES = Services("127.0.0.1", 8000, "simulated", None, prometheus=Path("prometheus"))
WITH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def token_file(settings: Any, tmp_path: Path) -> Path:
    file = tmp_path / "targets_token"
    file.write_text(f"{TOKEN}\n")
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, targets_token_file=file)
    return file


def groups() -> list[dict[str, Any]]:
    response = Client().get(URL, headers=WITH)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    found: list[dict[str, Any]] = response.json()
    return found


def test_console_metrics_need_the_token_too() -> None:
    assert Client().get("/prometheus/console").status_code == 401
    response = Client().get("/prometheus/console", headers=WITH)
    assert response.status_code == 200
    assert b"emberline_console_info" in response.content
    assert Client().post("/prometheus/console", headers=WITH).status_code == 405


def test_console_metrics_name_endpoints_that_start() -> None:
    make_endpoint("fresh")
    pretend_ready(make_endpoint("served"))
    registry = Registry()
    Transitions()(registry)
    shown = registry.render()
    assert 'emberline_endpoint_transition{endpoint_name="fresh",kind="start"} 1' in shown
    assert 'endpoint_name="served"' not in shown


def test_console_metrics_have_the_phase_of_each_endpoint() -> None:
    make_endpoint("fresh")
    pretend_ready(make_endpoint("served"))
    registry = Registry()
    Phases()(registry)
    shown = registry.render()
    assert 'namespace="default",endpoint="fresh",phase="Pending"' in shown
    assert 'namespace="default",endpoint="served",phase="Ready"' in shown


def test_own_prometheus_reads_targets_from_a_file(tmp_path: Path, settings: Any) -> None:
    assert TargetsFile.of_installation() is None
    tasks.update_targets()
    layout = Layout(tmp_path / "var")
    layout.prepare()
    write_facts(layout, prometheus_port=19099)
    settings.EMBERLINE = dataclasses.replace(
        settings.EMBERLINE, var=layout.var, prometheus_url="http://127.0.0.1:19099"
    )
    assert tasks.update_targets.has_work()
    tasks.update_targets()
    file = layout.prometheus / TARGETS_FILE
    assert json.loads(file.read_text()) == []
    assert not tasks.update_targets.has_work()
    pretend_ready(make_endpoint("demo"), admin_url="http://127.0.0.1:9090")
    assert tasks.update_targets.has_work()
    tasks.update_targets()
    assert json.loads(file.read_text()) == groups() != []
    assert not tasks.update_targets.has_work()
    processes.write_config(layout, SERVICES)
    config = yaml.safe_load((layout.prometheus / "prometheus.yml").read_text())
    job = config["scrape_configs"][0]
    assert job["file_sd_configs"] == [{"files": [str(file)]}]
    assert "http_sd_configs" not in job


class TestTargetAccess:
    @pytest.mark.parametrize(
        "header",
        [
            "",
            "Bearer",
            "Bearer ",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            TOKEN,
            "Bearer töken",
            "Bearer \udcff",
        ],
    )
    def test_targets_require_the_token(self, header: str) -> None:
        response = Client().get(URL, headers={"Authorization": header})
        assert response.status_code == 401
        assert response["WWW-Authenticate"].startswith("Bearer")
        assert TOKEN not in response.content.decode()

    def test_session_does_not_replace_the_token(self) -> None:
        assert browser("admin").get(URL).status_code == 401

    @pytest.mark.parametrize("content", [None, "", "\n"])
    def test_targets_are_closed_without_a_configured_token(
        self, token_file: Path, content: str | None
    ) -> None:
        token_file.unlink()
        if content is not None:
            token_file.write_text(content)
        for header in ("Bearer ", "Bearer", f"Bearer {TOKEN}"):
            assert Client().get(URL, headers={"Authorization": header}).status_code == 401

    def test_new_token_is_valid_at_once(self, token_file: Path) -> None:
        assert Client().get(URL, headers=WITH).status_code == 200
        token_file.write_text("another")
        assert Client().get(URL, headers=WITH).status_code == 401

    def test_targets_reject_writes(self) -> None:
        assert Client().post(URL, headers=WITH).status_code == 405


class TestTargetContents:
    def test_targets_are_empty_without_endpoints(self) -> None:
        make_endpoint()
        assert groups() == []

    def test_every_addressable_process_is_a_target(self) -> None:
        pretend_ready(
            make_endpoint("demo"),
            url="http://127.0.0.1:9000",
            admin_url="http://127.0.0.1:9001",
            workers={"demo-worker-0": "http://127.0.0.1:20001", "demo-worker-1": ""},
        )
        tier = CacheTier.objects.create(name="default")
        CacheNode.objects.create(
            tier=tier, name="cache-default-0", index=0, admin_url="http://127.0.0.1:6401"
        )
        of_demo = {"namespace": "default", "endpoint_name": "demo"}
        assert groups() == [
            {
                "targets": ["127.0.0.1:6401"],
                "labels": {"job": "l2", "pool": "default", "pod": "cache-default-0"},
            },
            {
                "targets": ["127.0.0.1:9001"],
                "labels": {"job": "router", **of_demo, "pod": "demo-router-0"},
            },
            {
                "targets": ["127.0.0.1:20001"],
                "labels": {"job": "vllm", **of_demo, "pod": "demo-worker-0"},
            },
        ]

    def test_each_of_several_routers_is_a_target_of_its_own(self) -> None:
        made = pretend_ready(make_endpoint("demo"), admin_url="http://127.0.0.1:9001")
        urls = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
        parts = {"router": {"admin_urls": urls}}
        EndpointStatus.objects.filter(pk=made.pk).update(parts=parts)
        found = {one["labels"]["pod"]: one["targets"] for one in groups()}
        assert found == {"demo-router-0": ["127.0.0.1:9001"], "demo-router-1": ["127.0.0.1:9002"]}

    def test_path_interval_and_disabled_metrics_of_an_endpoint_apply(self) -> None:
        clusters.add_cluster(person("admin"), "eu", {"kind": "in-cluster"})
        for name, monitoring in (
            ("plain", {"enabled": True, "interval_s": 30}),
            ("other", {"enabled": True, "path": "/v2/metrics", "interval_s": 5}),
            ("off", {"enabled": False}),
        ):
            pretend_ready(
                make_endpoint(name, placement={"cluster": "eu"}, monitoring=monitoring),
                admin_url="http://127.0.0.1:9001",
                workers={f"{name}-worker-0": "http://127.0.0.1:20001"},
            )
        paths = {one["labels"]["pod"]: one["labels"].get("__metrics_path__") for one in groups()}
        assert paths == {
            "plain-router-0": None,
            "plain-worker-0": "/metrics",
            "other-router-0": None,
            "other-worker-0": "/v2/metrics",
        }
        intervals = {
            one["labels"]["pod"]: (
                one["labels"].get("__scrape_interval__"),
                one["labels"].get("__scrape_timeout__"),
            )
            for one in groups()
        }
        assert intervals["plain-router-0"] == (None, None)
        assert intervals["plain-worker-0"] == ("30s", "10s")
        assert intervals["other-worker-0"] == ("5s", "5s")

    def test_queries_do_not_grow_with_endpoints(self, django_assert_num_queries: Any) -> None:
        for name in ("a", "b", "c"):
            workers = {f"{name}-worker-{n}": f"http://127.0.0.1:2000{n}" for n in range(3)}
            pretend_ready(make_endpoint(name), admin_url="http://127.0.0.1:9001", workers=workers)
        with django_assert_num_queries(3):
            assert len(groups()) == 12


def test_source_gets_only_its_own_targets() -> None:
    clusters.add_cluster(person("admin"), "eu", {"kind": "in-cluster"})
    for name, spec in (("here", {}), ("there", {"placement": {"cluster": "eu"}})):
        workers = {f"{name}-worker-0": "http://127.0.0.1:9001"}
        pretend_ready(make_endpoint(name, **spec), workers=workers)

    def scraped_jobs(source: str) -> set[str]:
        response = Client().get(f"{URL}?source={source}", headers=WITH)
        return {group["labels"]["endpoint_name"] for group in response.json()}

    assert scraped_jobs("console") == scraped_jobs("") == {"here", "there"}
    metrics.add(person("admin"), "of-eu", {"url": "http://b", "cluster": "eu"})
    assert (scraped_jobs("console"), scraped_jobs("of-eu")) == ({"here"}, {"there"})
    assert Client().get(f"{URL}?source=nobody", headers=WITH).status_code == 404
