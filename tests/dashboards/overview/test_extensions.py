"""Header figures of an endpoint from Prometheus, and their reasons without it."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.overview import extensions
from dashboards.prometheus.http.client import QueryResult, Series
from tests.support.console import make_endpoint

pytestmark = pytest.mark.django_db


def test_header_figures_without_prometheus_give_the_reason() -> None:
    figures = extensions.head_figures(make_endpoint())
    assert [one.label for one in figures] == ["TTFT p90", "Hit rate"]
    assert all(one.text == "" and "Prometheus" in one.why for one in figures)


def test_header_figures_are_queried_for_one_endpoint_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds: list[tuple[str, list[str]]] = []

    def ask(_asker: Any, scope: Any, names: list[str], _length_s: int) -> dict[str, QueryResult]:
        rounds.append((scope.endpoint, names))
        return {
            "ttft_p90": QueryResult(series=(Series((), (0.31,)),)),
            "reuse": QueryResult(series=()),
        }

    monkeypatch.setattr(extensions.evidence, "ask_recent_totals", ask)
    ttft, reuse = extensions.head_figures(make_endpoint())
    assert rounds == [("demo", ["ttft_p90", "reuse"])]
    assert ttft.text == "0.3 s"
    assert (reuse.text, reuse.why) == ("", "No prompts of callers in the last 15 minutes.")
