"""Exported price metrics and their use in Grafana expressions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from console.catalogue.instance_types import INSTANCE_TYPES
from console.core import counters
from console.processkit.metrics import Registry, parse_samples
from dashboards.boards.panels.declarations import PanelLine
from dashboards.costs import metrics
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.grafana.export import panel
from tests.dashboards.costs.prices.test_factors import PRICE, endpoint, measured
from tests.support.people import cast
from tests.support.prometheus import PROMTOOL

pytestmark = pytest.mark.django_db


def render_metrics(prices: metrics.PriceMetrics) -> str:
    registry = Registry()
    prices(registry)
    return registry.render()


def test_known_prices_are_exported_and_unknown_ones_are_not() -> None:
    endpoint("unpriced")
    assert render_metrics(metrics.PriceMetrics()) == ""
    INSTANCE_TYPES.save(cast().ada, THIS_MACHINE, PRICE)
    measured(endpoint("chat", resources={"cpus": 1, "memory_gib": 1, "gpus": 0}), 0.0036)
    prices = metrics.PriceMetrics()
    text = render_metrics(prices)
    found = {(one.name, one.labels["endpoint_name"]): one.value for one in parse_samples(text)}
    assert found["emberline_worker_usd_hour", "chat"] == pytest.approx(0.2)  # one CPU of ten
    assert found["emberline_saved_usd_per_token", "chat"] == pytest.approx(0.0036 * 0.2 / 3600)
    endpoint("later")
    assert render_metrics(prices) == text, "they are not read for every scrape"


def test_unavailable_database_affects_only_these_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Any:
        raise DatabaseError("no secret of the connection")

    monkeypatch.setattr(metrics, "factors", away)
    before = counters.total("prices_unknown")
    assert render_metrics(metrics.PriceMetrics()) == ""
    assert counters.total("prices_unknown") == before + 1


def test_grafana_expressions_use_the_price_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each endpoint with its own price, however many consoles export it."""

    def tokens(*_: Any) -> str:
        return "sum by (endpoint_name, source) (cached)"

    monkeypatch.setitem(panel.queries.QUERIES, "tokens", tokens)
    line = PanelLine("tokens", by="source", factor="saved_usd_token")
    series = {
        'cached{endpoint_name="a",source="device",pod="a-0"}': 100,
        'cached{endpoint_name="a",source="host",pod="a-0"}': 50,
        'cached{endpoint_name="b",source="host",pod="b-0"}': 50,
        'cached{endpoint_name="unpriced",source="host",pod="u-0"}': 9,
        'emberline_saved_usd_per_token{endpoint_name="a",pod="console-0"}': 0.5,
        'emberline_saved_usd_per_token{endpoint_name="a",pod="console-1"}': 0.5,
        'emberline_saved_usd_per_token{endpoint_name="b",pod="console-0"}': 2,
    }
    wanted = {'{endpoint_name="a",source="device"}': 50, '{endpoint_name="a",source="host"}': 25}
    wanted['{endpoint_name="b",source="host"}'] = 100
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": str(at)} for name, at in series.items()],
        "promql_expr_test": [
            {
                "expr": panel.export_line(line, one=False),
                "eval_time": "0m",
                "exp_samples": [{"labels": k, "value": v} for k, v in wanted.items()],
            }
        ],
    }
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"tests": [test]}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
