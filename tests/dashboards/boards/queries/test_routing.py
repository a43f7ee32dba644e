"""Queries of routers, evaluated by Prometheus: with two routers each worker counts once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards import queries
from dashboards.boards.queries import Scope, Times
from dashboards.boards.queries import metric_names as n
from tests.support.prometheus import PROMTOOL

# By router: worker -> up, circuit (0 closed, 2 open), blocks in the index, requests in flight.
ROUTERS = {
    "router-0": {"a": (1, 0, 100, 2), "b": (0, 2, 40, 0), "c": (1, 0, 7, 1)},
    "router-1": {"a": (1, 0, 100, 3), "b": (0, 2, 40, 0), "c": (0, 0, 5, 0)},
}
METRICS = (n.WORKER_UP, n.CIRCUIT, n.INDEX_BLOCKS, n.IN_FLIGHT)


def series(endpoint: str) -> list[dict[str, str]]:
    return [
        {
            "series": f'{metric}{{job="router",namespace="default",endpoint="{endpoint}",'
            f'instance="{endpoint}-{router}",worker="{worker}"}}',
            "values": f"{value}x40",
        }
        for router, workers in ROUTERS.items()
        for worker, values in workers.items()
        for metric, value in zip(METRICS, values, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "by", "values"),
    [
        ("workers_healthy", "", {"": 2}),  # c is up for one of the routers
        ("circuits_open", "", {"": 1}),
        ("index_blocks_by_worker", "worker", {"a": 100, "b": 40, "c": 7}),
        ("in_flight_by_worker", "worker", {"a": 5, "b": 0, "c": 1}),  # each router's own
    ],
)
@pytest.mark.parametrize("endpoints", [("demo",), ("demo", "other")])
def test_worker_is_counted_once(
    tmp_path: Path, endpoints: tuple[str, ...], name: str, by: str, values: dict[str, int]
) -> None:
    """Over all endpoints, workers of the same name are those of each endpoint."""
    scope = Scope(endpoint="demo", namespace="default") if len(endpoints) == 1 else Scope()
    query = queries.render_plain(name, scope, Times(300, 60))
    wanted: list[dict[str, Any]] = [
        {"labels": f'{{{by}="{key}"}}' if by else "{}", "value": value * len(endpoints)}
        for key, value in values.items()
    ]
    given = [one for endpoint in endpoints for one in series(endpoint)]
    requested = {"expr": query, "eval_time": "5m", "exp_samples": wanted}
    test = {"interval": "15s", "input_series": given, "promql_expr_test": [requested]}
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"tests": [test]}))
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
