"""Step sizes of large fleets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dashboards.boards import answers
from dashboards.boards.panels.declarations import RANGES
from dashboards.boards.queries import Scope
from dashboards.boards.results import board, targets
from dashboards.prometheus.http.client import QueryResult, Question, Series
from tests.support.console import browser

NOW = 1_800_000_000.0


class Fleet:
    """A Prometheus with so many targets, scraped every five seconds."""

    def __init__(self, targets: int) -> None:
        self.targets = targets
        self.windows: set[int] = set()

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.windows |= {one.window.step for one in questions.values() if one.window}
        reported = {"scraped": float(self.targets), "scraped_every": 5.0}
        points = {name: one.window.points if one.window else 1 for name, one in questions.items()}
        return {
            name: QueryResult((Series((), (reported.get(name, 1.0),) * points[name]),))
            for name in questions
        }


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    targets.clear_memory()
    yield
    targets.clear_memory()


@pytest.mark.parametrize(
    ("target_count", "steps"),
    [
        (0, {"15m": 5, "1h": 10, "6h": 60}),  # nothing was reported
        (9, {"15m": 5, "1h": 10, "6h": 60}),
        (44, {"15m": 5, "1h": 20, "6h": 60}),
        (84, {"15m": 10, "1h": 60, "6h": 120}),
        (250, {"15m": 60, "1h": 60, "6h": 300, "24h": 1800, "7d": 14_400, "30d": 43_200}),
        (100_000, {"15m": 60, "1h": 300, "6h": 1800, "30d": 86_400}),
    ],
)
def test_samples_stay_below_the_limit(target_count: int, steps: dict[str, int]) -> None:
    found = {key: targets.fit_range(RANGES[key], target_count) for key in steps}
    assert {key: one.step_s for key, one in found.items()} == steps
    assert all(
        dataclasses.replace(one, step_s=RANGES[k].step_s) == RANGES[k] for k, one in found.items()
    )


def test_other_scope_has_another_size() -> None:
    small, large = Scope(among=("a",)), Scope()
    for scope, count, step_s in ((small, 9, 5), (large, 250, 60)):
        request = board.BoardRequest(Fleet(count), (), scope, RANGES["15m"], NOW)
        assert request.fit().chosen.step_s == step_s


@pytest.mark.django_db
def test_large_fleet_uses_a_coarser_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(250)
    monkeypatch.setattr(answers.connections, "fleet", lambda: fleet)
    document: Any = browser("viewer").get("/dashboards/data?from=1795000000&to=1795000900").json()
    assert document["window"]["step"] == 60
    assert fleet.windows == {60}
    csv = browser("viewer").get("/dashboards/csv?from=1795000000&to=1795000900")
    assert csv.status_code == 200
    assert fleet.windows == {60}
