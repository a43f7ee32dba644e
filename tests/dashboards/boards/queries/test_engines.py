"""Queries of engines, evaluated by Prometheus' own rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.boards.queries import QUERIES, Scope, Times
from tests.dashboards.prometheus.config.test_recording_rules import expression_test, of
from tests.support.prometheus import PROMTOOL

TIMES = Times(60, 900)
ENGINE = 'job="vllm",namespace="default",endpoint_name="demo",pod="demo-0"'
ROUTER = 'job="router",namespace="default",endpoint="demo",instance="{}"'


@pytest.mark.parametrize("counted_by_engine", ["0x30", "0+60x30"])
def test_requests_cancelled_by_callers_are_those_of_the_routers(
    tmp_path: Path, counted_by_engine: str
) -> None:
    """An engine counts none, or those whose connection it saw closed."""
    metric = "emberline_router_request_errors_total"
    series = {
        f'vllm:request_success_total{{{ENGINE},finished_reason="stop"}}': "0+600x30",
        f'vllm:request_success_total{{{ENGINE},finished_reason="abort"}}': counted_by_engine,
        f'{metric}{{{ROUTER.format("a")},reason="client_cancelled"}}': "0+120x30",
        f'{metric}{{{ROUTER.format("b")},reason="client_cancelled"}}': "0+60x30",
        f'{metric}{{{ROUTER.format("b")},reason="timeout"}}': "0+600x30",
    }
    values = (('{finished_reason="abort"}', 3.0), ('{finished_reason="stop"}', 10.0))
    question = expression_test(QUERIES["finished_by_reason"](Scope("demo"), TIMES), *values)
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [of(series, question)]}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
