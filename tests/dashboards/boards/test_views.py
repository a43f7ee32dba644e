"""Both dashboards through their views, with a real Prometheus."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

import dashboards
from dashboards.boards import panels, queries
from dashboards.boards.panels.declarations import DEFAULT_RANGE
from dashboards.boards.panels.styles import QUANTILES
from dashboards.boards.queries import Scope
from dashboards.boards.results import board as results_board
from dashboards.prometheus.config.scrape_config import render
from dashboards.prometheus.http import client as http_client
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.dashboards.fixtures import Scraping
from tests.support.http_stub import HANG, http_stub
from tests.support.ports import free_ports
from tests.support.prometheus import Exporter, running_prometheus
from tests.support.waiting import until

pytestmark = pytest.mark.django_db

FLEET = "/dashboards/data"
Configure = Callable[[str], None]
Data = dict[str, Any]


@pytest.fixture
def viewer() -> Client:
    return browser("viewer")


@pytest.fixture
def use_prometheus(settings: Any) -> Configure:
    """Let the console ask the Prometheus at this address."""

    def configure(url: str) -> None:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)

    return configure


def get_board_data(client: Client, url: str) -> Data:
    """The answer, its panels by id."""
    response = client.get(url)
    assert response.status_code == 200
    data: Data = response.json()
    return data | {"panels": {panel["id"]: panel for panel in data["panels"]}}


def of(client: Client, name: str) -> Data:
    make_endpoint(name)
    return get_board_data(client, f"/dashboards/endpoints/{name}/data")


def of_board(
    scraping: Scraping, key: str, scope: Scope, factors: results_board.Factors | None = None
) -> Data:
    """What a board of one endpoint, or of many, has to say now."""
    client = http_client.connect(scraping.url)
    shown = panels.BOARDS[key].panels(one=bool(scope.endpoint))
    found = results_board.collect(client, shown, scope, DEFAULT_RANGE, time.time(), factors or {})
    return found | {"panels": {panel["id"]: panel for panel in found["panels"]}}


def latest(panel: Data) -> dict[str, str]:
    """The table's names and newest values."""
    return {row[0]: row[1] for row in panel["table"]["rows"]}


def states(data: Data) -> dict[str, str]:
    return {name: panel["state"] for name, panel in data["panels"].items()}


def unlike(data: Data, state: str) -> set[str]:
    """The panels which are in another state."""
    return {name for name, found in states(data).items() if found != state}


class TestNumbers:
    def test_a_busy_endpoint(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        use_prometheus(scraping.url)
        data = of(viewer, "demo")
        assert data["fault"] is None
        assert set(states(data).values()) == {"ok"}
        panels_ = data["panels"]
        board = panels.BOARDS[panels.FIRST].panels(one=True)
        assert set(panels_) == {panel.id for panel in board}
        shares = latest(panels_["sources"])
        assert shares.pop("L1 or L2") == "0.0 %", "every tier is named by this version"
        assert shares == {"Device": "40.0 %", "L1": "30.0 %", "L2": "20.0 %", "Computed": "10.0 %"}
        assert latest(panels_["share"]) == {"demo-worker-0": "75.0 %", "demo-worker-1": "25.0 %"}
        assert {line["name"] for line in panels_["decisions"]["figure"]["data"]} == {
            "Prefix match",
            "No cached prefix",
        }
        assert len(latest(panels_["ttft"])) == len(QUANTILES)
        assert latest(panels_["ttft"])["p50"] == "100 ms"
        assert data["scraped"] == "workers 1 of 1, routers 1 of 1"

    def test_the_fleet(self, viewer: Client, use_prometheus: Configure, scraping: Scraping) -> None:
        use_prometheus(scraping.url)
        data = get_board_data(viewer, FLEET)
        assert unlike(data, "ok") == {"failed"}, "none did"
        requests = latest(data["panels"]["requests"])
        assert set(requests) == {"demo", "idle", "left", "old"}
        assert requests["idle"] == "0.00/s"
        assert latest(data["panels"]["reuse"])["demo"] == "90.0 %"
        assert data["scraped"] == "workers 3 of 5, routers 3 of 5, cache nodes 3 of 5"
        assert latest(data["panels"]["l2"])["Hit rate"] == "75.0 %"

    @pytest.mark.parametrize("key", panels.RANGES)
    def test_every_range(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping, key: str
    ) -> None:
        use_prometheus(scraping.url)
        data = get_board_data(viewer, f"{FLEET}?range={key}")
        assert data["range"] == key
        assert data["fault"] is None
        assert not {"bad_query", "too_slow", "prometheus"} & set(states(data).values())
        for panel in data["panels"].values():
            for line in panel["figure"]["data"] if panel["figure"] else []:
                assert 150 < len(line["y"]) <= http_client.MAX_POINTS

    def test_unknown_range_is_the_default(self, viewer: Client, use_prometheus: Configure) -> None:
        use_prometheus("")
        assert get_board_data(viewer, f"{FLEET}?range=1y%22")["range"] == "15m"


class TestEmptyPanels:
    """Four different reasons, from a real Prometheus; each is a different sentence."""

    def test_idle_endpoint_has_quiet_panels(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        use_prometheus(scraping.url)
        make_endpoint("idle")

        def quiet() -> Data | None:
            """Its worker is up, its queue is measured; on a busy machine a scrape may time out."""
            found = get_board_data(viewer, "/dashboards/endpoints/idle/data")
            return found if unlike(found, "quiet") == {"now", "queue"} else None

        data = until(quiet, what="all panels but two are quiet")
        assert states(data)["queue"] == "zero"
        assert "Send a request" in data["panels"]["requests"]["message"]["fix"]

    def test_endpoint_unknown_to_prometheus(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        use_prometheus(scraping.url)
        data = of(viewer, "unheard-of")
        assert set(states(data).values()) == {"not_scraped"}
        assert data["scraped"] == "no workers, no routers"
        assert "scrapes no routers" in data["panels"]["ttft"]["message"]["text"]

    def test_endpoint_never_scraped(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        use_prometheus(scraping.url)
        data = of(viewer, "gone")
        assert unlike(data, "not_scraped") == {"now"}, "that none is up is known"
        assert "cannot reach the router" in data["panels"]["ttft"]["message"]["text"]
        assert data["scraped"] == "workers 0 of 1, routers 0 of 1"

    def test_endpoint_stopped_responding(
        self, viewer: Client, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        use_prometheus(scraping.url)
        data = of(viewer, "left")
        requests = data["panels"]["requests"]
        assert requests["state"] == "stale"
        assert requests["message"]["title"].startswith("No data since ")
        assert requests["figure"] is not None, "what was measured stays on show"

    def test_metric_not_in_this_version(
        self, use_prometheus: Configure, scraping: Scraping
    ) -> None:
        data = of_board(scraping, "cache", Scope("demo"))
        chunks = data["panels"]["chunks"]
        assert chunks["state"] == "absent"
        assert "vllm:kv_offload_tiering_chunk_queries_total" in chunks["message"]["text"]
        assert "0.28" in chunks["message"]["fix"]

    def test_older_worker_shows_available_metrics(self, scraping: Scraping) -> None:
        sources = of_board(scraping, "overview", Scope("old"))["panels"]["sources"]
        assert sources["state"] == "ok"
        shares = {name: share for name, share in latest(sources).items() if share != "0.0 %"}
        assert shares == {"Device": "40.0 %", "L1 or L2": "50.0 %", "Computed": "10.0 %"}

    def test_without_the_exporter(self, scraping: Scraping) -> None:
        panels_ = of_board(scraping, "workers", Scope("demo"))["panels"]
        for name, needed in (("gpu-util", "DCGM"), ("restarts", "kube-state-metrics")):
            assert panels_[name]["state"] == "needs"
            assert needed in panels_[name]["message"]["title"]
            assert "nstall" in panels_[name]["message"]["fix"]

    def test_without_a_price(self, scraping: Scraping) -> None:
        bare = of_board(scraping, "cost", Scope("demo"))["panels"]["usd-hour"]
        assert (bare["state"], bare["message"], bare["title"]) == ("ok", None, "Workers")
        assert bare["figure"] is not None, "workers in place of USD"
        titles = {p["title"] for p in of_board(scraping, "cost", Scope("demo"))["panels"].values()}
        assert {"Cached prompt tokens per hour by tier", "Worker hours per 1M tokens"} <= titles
        priced = {"worker_usd_hour": {"demo": 1.5}}
        hour = of_board(scraping, "cost", Scope("demo"), priced)["panels"]["usd-hour"]
        assert hour["state"] == "ok"
        assert latest(hour) == {"demo": "$1.50/h"}


class TestPrometheusFailures:
    def check(self, client: Client, title: str) -> Data:
        data = get_board_data(client, FLEET)
        assert data["fault"]["title"] == title
        assert data["fault"]["fix"]
        assert set(states(data).values()) == {"prometheus"}
        assert all(panel["figure"] is None for panel in data["panels"].values())
        return data

    def test_no_prometheus_configured(self, viewer: Client, use_prometheus: Configure) -> None:
        use_prometheus("")
        assert "PROMETHEUS_URL" in self.check(viewer, "No Prometheus configured")["fault"]["fix"]

    def test_prometheus_unreachable(self, viewer: Client, use_prometheus: Configure) -> None:
        (port,) = free_ports(1)
        use_prometheus(f"http://127.0.0.1:{port}")
        self.check(viewer, "Prometheus is unreachable")

    def test_prometheus_hanging(
        self, viewer: Client, use_prometheus: Configure, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quick = (0.5, 0.5, 2.0, 5.0, 0.5)
        monkeypatch.setattr(http_client.Deadlines.__init__, "__defaults__", quick)
        paths = ("/api/v1/query", "/api/v1/query_range")
        with http_stub(dict.fromkeys(paths, (HANG, ""))) as stub:
            use_prometheus(stub.url)
            self.check(viewer, "Prometheus is unreachable")

    def test_other_server_is_reported(self, viewer: Client, use_prometheus: Configure) -> None:
        with http_stub({}) as stub:
            use_prometheus(stub.url)
            self.check(viewer, "Not a Prometheus server")

    def test_rejected_query_affects_only_its_panel(
        self,
        viewer: Client,
        use_prometheus: Configure,
        scraping: Scraping,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(queries.QUERIES, "l2_fill", lambda *_: "sum(")
        use_prometheus(scraping.url)
        data = get_board_data(viewer, FLEET)
        assert data["fault"] is None
        bad = data["panels"].pop("l2")
        assert bad["state"] == "bad_query"
        assert unlike(data, "ok") == {"failed"}


class TestPages:
    @pytest.mark.parametrize("path", ["/dashboards/", "/dashboards/endpoints/demo/"])
    def test_page_does_not_wait_for_prometheus(
        self, viewer: Client, use_prometheus: Configure, path: str
    ) -> None:
        make_endpoint("demo")
        use_prometheus("http://127.0.0.1:9")
        page = viewer.get(f"{path}?range=6h")
        html = page.content.decode()
        assert page.status_code == 200
        board = panels.BOARDS[panels.FIRST].panels(one="demo" in path)
        assert all(f'data-panel="{panel.id}"' in html for panel in board)
        assert f'data-url="{path}data?range=6h"' in html
        assert 'href="?range=6h" aria-current="true"' in html
        assert "<script>" not in html

    @pytest.mark.parametrize(
        "path", ["/dashboards/endpoints/nobody/", "/dashboards/endpoints/nobody/data"]
    )
    def test_unknown_endpoint(self, viewer: Client, path: str) -> None:
        assert viewer.get(path).status_code == 404

    def test_response_is_not_cached_by_browsers(
        self, viewer: Client, use_prometheus: Configure
    ) -> None:
        use_prometheus("")
        assert "no-store" in viewer.get(FLEET)["Cache-Control"]

    def test_scripts_are_small_modules_and_use_no_other_host(self) -> None:
        for script in (Path(dashboards.__file__).parent / "static" / "dashboards").glob("*.js"):
            reported = script.read_text()
            assert len(reported.splitlines()) <= 150, f"{script.name} has grown: split it"
            assert max(len(line) for line in reported.splitlines()) <= 200, script.name
            assert "://" not in reported, f"{script.name} names an address"
            assert "innerHTML" not in reported, f"{script.name} could take data for markup"


@pytest.mark.django_db(transaction=True)
def test_from_a_created_endpoint_to_a_chart(
    live_server: Any, settings: Any, tmp_path: Path, use_prometheus: Configure
) -> None:
    """Prometheus learns of the worker from this console, with the token, and the page shows it."""
    exporter = Exporter("fresh")
    token = tmp_path / "targets_token"
    token.write_text("let-prometheus-in")
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, targets_token_file=token)
    paths = {job: {"/metrics": exporter.answers()[f"/{job}"]} for job in ("vllm", "router")}
    with http_stub(paths["vllm"]) as worker, http_stub(paths["router"]) as router:
        endpoint = make_endpoint("fresh")
        pretend_ready(endpoint, admin_url=router.url, workers={"fresh-worker-0": worker.url})
        config = render(live_server.url, str(token), interval_s=1)
        with running_prometheus(tmp_path, config) as url:
            use_prometheus(url)
            client = browser("viewer")

            def all_drawn() -> bool:
                data = get_board_data(client, "/dashboards/endpoints/fresh/data")
                return set(states(data).values()) == {"ok"}

            until(all_drawn, deadline_s=60)
