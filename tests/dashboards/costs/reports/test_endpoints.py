"""Costs of a day with known tokens in a real Prometheus, on page, REST and CSV."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs.formulas.counts import count_usage
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.costs.reports.endpoints import COLUMNS
from dashboards.models import Calibration
from dashboards.prometheus.http.client import Prometheus
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.costs.formulas.test_calibration import serving_endpoint
from tests.support.people import cast, client_of
from tests.support.prometheus import PROMTOOL, running_prometheus

DAY, STEP = 86_400, 60
START_LINE = "# TYPE {0} {1}"
# For each second: prompt tokens, generated tokens, requests; and prompt tokens by tier.
PROMPT, GENERATED, REQUESTS, LOAD = 100.0, 20.0, 0.5, 0.01
CACHED = {"device": 60.0, "host": 40.0, "disk": 20.0}  # half of them by a benchmark
ROUTED = {
    "cached_prompt_tokens": 60.0,
    "computed_prompt_tokens": PROMPT - 60.0,
    "completion_tokens": GENERATED,
}


def a_day(now: int) -> str:
    """Two workers of demo for a day, one always busy, the other idle."""
    lines: dict[str, list[str]] = {}

    def add(name: str, kind: str, labels: str, at: int, value: float) -> None:
        lines.setdefault(START_LINE.format(name.removesuffix("_total"), kind), []).append(
            f'{name}{{job="vllm",endpoint_name="demo",{labels}}} {value} {at}'
        )

    for at in range(now - DAY - 600, now + 1, STEP):
        passed = at - (now - DAY - 600)
        for pod, busy in (("w-0", 1), ("w-1", 0)):
            where = f'pod="{pod}"'
            add("up", "gauge", where, at, 1)
            add("vllm:num_requests_running", "gauge", where, at, busy)
        where = 'pod="w-0"'
        of_router = "emberline_router_{}_total"
        for counter, each in ROUTED.items():
            add(of_router.format(counter), "counter", 'endpoint="demo"', at, each * passed)
        console = 'endpoint="demo",traffic="console"'
        add(of_router.format("completion_tokens"), "counter", console, at, 999 * passed)
        ok = 'endpoint="demo",code="200"'
        add(of_router.format("requests"), "counter", ok, at, REQUESTS * passed)
        add("vllm:request_prefill_time_seconds_sum", "counter", where, at, 0.1 * passed)
        add("vllm:request_decode_time_seconds_sum", "counter", where, at, 0.3 * passed)
        add("vllm:kv_offload_load_time_total", "counter", where, at, LOAD * passed)
        for source, each in CACHED.items():
            name = "vllm:prompt_tokens_cached_by_source_total"
            add(name, "counter", f'{where},source="{source}"', at, each * passed)
    parts = [line for head, rows in lines.items() for line in (head, *_by_series(rows))]
    return "\n".join([*parts, "# EOF", ""])


def _by_series(rows: list[str]) -> list[str]:
    return sorted(rows, key=lambda row: row.partition("}")[0])


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tsdb")
    text = folder / "day.om"
    text.write_text(a_day(int(time.time()) // STEP * STEP))
    made = folder / "data"
    command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(text), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    with running_prometheus(folder, "scrape_configs: []\n") as url:
        yield url
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def costs_prometheus(yesterday: str, settings: Any) -> str:
    settings.EMBERLINE = replace(django_settings.EMBERLINE, prometheus_url=yesterday)
    return yesterday


def test_daily_tokens_are_exact(yesterday: str) -> None:
    found = count_usage(Prometheus(yesterday), DAY, time.time())
    assert found.fault is None
    demo = found.by_endpoint["demo"]
    assert demo.worker_s == pytest.approx(2 * DAY, rel=0.01)
    assert demo.busy_s == pytest.approx(DAY, rel=0.01)
    assert demo.prompt == pytest.approx(PROMPT * DAY, rel=0.01)
    assert demo.generated == pytest.approx(GENERATED * DAY, rel=0.01)
    assert demo.requests == pytest.approx(REQUESTS * DAY, rel=0.01)
    assert demo.load_s == pytest.approx(LOAD * DAY, rel=0.01)
    tiers = {"device": 30.0, "l1": 20.0, "l2": 10.0}
    assert demo.cached == pytest.approx({t: each * DAY for t, each in tiers.items()}, rel=0.01)


def test_unreachable_prometheus_is_an_error_and_no_zero(free_port: int) -> None:
    found = count_usage(Prometheus(f"http://127.0.0.1:{free_port}"), DAY, time.time())
    assert found.fault is not None
    assert not found.by_endpoint


def test_page_without_prometheus_states_no_saving(
    measured_endpoint: Any, settings: Any, free_port: int
) -> None:
    url = f"http://127.0.0.1:{free_port}"
    settings.EMBERLINE = replace(django_settings.EMBERLINE, prometheus_url=url)
    alice = client_of(measured_endpoint.alice)
    page = alice.get("/costs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "is unreachable" in text
    assert "Formula" not in text
    (demo,) = alice.get("/api/v1/costs/").json()["endpoints"]
    assert (demo["saved_usd"], demo["saved_before_cache_usd"]) == (None, None)


def test_calibrated_endpoint_without_a_sample_in_the_range_has_a_row(
    costs_prometheus: str, measured_endpoint: Any
) -> None:
    Endpoint.objects.update(name="paused")
    page = client_of(measured_endpoint.alice).get("/costs/?range=1h")
    assert page.status_code == 200
    assert "0 ms device + 0 ms L1" in page.content.decode()


@pytest.fixture
def free_port() -> int:
    from tests.support.ports import free_ports

    return free_ports(1)[0]


@pytest.fixture
def measured_endpoint(transactional_db: None) -> Any:
    people = cast()
    endpoint = serving_endpoint()
    Calibration.objects.create(
        endpoint=endpoint, settings_hash="h1", state=RunState.DONE, seconds_per_token=0.001
    )
    # The endpoint requests 1 of 10 CPUs and little memory: 0.2 USD/h for a worker.
    price = {"price_usd_hour": 2.0, "price_date": "2026-11-01", "gpus": 0}
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, {"vcpus": 10, "memory_gib": 500, **price})
    return people


def test_over_rest(costs_prometheus: str, measured_endpoint: Any) -> None:
    answer = client_of(measured_endpoint.charlie).get("/api/v1/costs/?range=24h")
    assert answer.status_code == 200
    found = answer.json()
    assert found["problem"] == ""
    assert found["cost_usd"] == pytest.approx(48 * 0.2, rel=0.01)
    (demo,) = found["endpoints"]
    assert demo["usd_hour_now"] == 0.0, "no worker was ready when it was last looked at"
    assert demo["idle_usd"] == pytest.approx(24 * 0.2, rel=0.01)
    assert demo["usd_per_million_input"] == pytest.approx(9.6 / 8.64 / 4, rel=0.02)
    assert demo["usd_per_million_output"] == pytest.approx(9.6 / 1.728 * 3 / 4, rel=0.02)
    saved_s = 60 * DAY * 0.001 - LOAD * DAY
    assert demo["saved_usd"] == pytest.approx(saved_s / 3600 * 0.2, rel=0.02)
    assert not demo["calibration_stale"]
    filtered = client_of(measured_endpoint.charlie).get("/api/v1/costs/?range=24h&endpoint=demo")
    (same,) = filtered.json()["endpoints"]
    # A minute may begin between the two requests.
    assert (same["endpoint"], same["cost_usd"]) == ("demo", pytest.approx(9.6, rel=0.01))
    assert filtered.json()["cost_usd"] == pytest.approx(9.6, rel=0.01)
    none = client_of(measured_endpoint.charlie).get("/api/v1/costs/?range=24h&endpoint=other")
    assert (none.json()["cost_usd"], none.json()["endpoints"]) == (None, [])


def test_csv_has_a_row_per_endpoint(costs_prometheus: str, measured_endpoint: Any) -> None:
    answer = client_of(measured_endpoint.charlie).get("/costs/table.csv?range=24h")
    assert answer["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [row["endpoint"] for row in rows] == ["demo"]
    assert list(rows[0]) == list(COLUMNS)
    assert float(rows[0]["cost_usd"]) == pytest.approx(9.6, rel=0.01)


def test_page_states_missing_data(costs_prometheus: str, measured_endpoint: Any) -> None:
    alice = client_of(measured_endpoint.alice)
    page = alice.get("/costs/").content.decode()
    assert "9.6" in page
    assert "$2.00/h for this machine × 10% of the machine" in page
    Calibration.objects.update(settings_hash="older")
    assert "outdated settings" in alice.get("/costs/").content.decode()
    INSTANCE_TYPES.remove(measured_endpoint.alice, THIS_MACHINE)
    bare = alice.get("/costs/?range=nonsense").content.decode()
    assert "This machine has no price" in bare


def test_calibration_needs_an_operator(measured_endpoint: Any) -> None:
    charlie = client_of(measured_endpoint.charlie)
    assert charlie.post("/costs/demo/calibrate/").status_code == 403
    assert charlie.post("/api/v1/endpoints/demo/calibration/").status_code == 403
    alice = client_of(measured_endpoint.alice)
    assert alice.post("/api/v1/endpoints/demo/calibration/").status_code == 202
    assert alice.post("/api/v1/endpoints/demo/calibration/").status_code == 409
