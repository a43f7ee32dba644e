"""PromQL panels: time variables, and names of series."""

from __future__ import annotations

import pytest

from dashboards.boards.panels.declarations import RANGES
from dashboards.custom_boards.documents import BoardPanel
from dashboards.custom_boards.query_panels import fill_in, name_series
from dashboards.prometheus.http.client import Series


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rate(x[$__rate_interval])", "rate(x[1200s])"),
        ("rate(x[${__interval}])", "rate(x[300s])"),
        ("increase(x[$__range])", "increase(x[86400s])"),
        ("x{a='$__ranger'}", "x{a='$__ranger'}"),
    ],
)
def test_time_variables_follow_the_range(query: str, expected: str) -> None:
    assert fill_in(query, RANGES["24h"]) == expected


@pytest.mark.parametrize(
    ("legend", "labels", "name"),
    [
        ("{{pod}} of {{ job }}", {"pod": "a", "job": "b"}, "a of b"),
        ("{{missing}}", {"pod": "a"}, "Title"),
        ("", {"__name__": "up", "pod": "a", "job": "b"}, 'up{job="b", pod="a"}'),
        ("", {"__name__": "up"}, "up"),
        ("", {"pod": "a", "metrics_source": "east"}, '{pod="a"}'),
        ("", {}, "Title"),
    ],
)
def test_names_of_series(legend: str, labels: dict[str, str], name: str) -> None:
    panel = BoardPanel("q", "promql", title="Title", query="up", legend=legend)
    assert name_series(panel, Series(tuple(sorted(labels.items())), (1.0,))) == name
