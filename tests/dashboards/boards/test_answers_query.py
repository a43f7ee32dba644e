"""Query parameters of boards, and the URL of a selection."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from dashboards.boards import answers
from dashboards.boards.answers import BoardQuery
from dashboards.boards.panels.declarations import DEFAULT_RANGE, RANGES
from dashboards.prometheus.http import client

NOW = 1_795_000_000.7


def read(query: str) -> BoardQuery:
    found, problems = answers.parse_query(dict(parse_qsl(query)), NOW)
    assert problems == ()
    return found


def refused(query: str) -> str:
    found, problems = answers.parse_query(dict(parse_qsl(query)), NOW)
    assert found == BoardQuery(), "what is not understood is as if it were not said"
    (problem,) = problems
    assert problem.remedy
    return problem.field


@pytest.mark.parametrize(
    "query",
    [
        "range=15m",
        "range=30d&refresh=off",
        "range=6h&refresh=30&compare=previous&worker=demo-0&panel=ttft",
        "from=1794990000&to=1794993600",
        "from=1794990000&to=1794993600&refresh=5&compare=previous",
    ],
)
def test_url_reproduces_the_view(query: str) -> None:
    assert read(query).query() == query


def test_empty_query_is_the_default_range_up_to_now() -> None:
    found = read("")
    assert (found.range, found.end(NOW), found.poll_s) == (DEFAULT_RANGE, NOW, DEFAULT_RANGE.poll_s)
    assert not found.fixed


def test_fixed_times_are_polled_only_on_request() -> None:
    assert read("from=1794990000&to=1794993600").poll_s == 0
    assert read("from=1794990000&to=1794993600&refresh=10").poll_s == 10
    assert read("range=1h&refresh=off").poll_s == 0


def test_times_are_seconds_or_browser_input() -> None:
    typed = read("from=2026-11-18T08:00&to=2026-11-18T09:30:00")
    assert typed.range.length_s == 5400
    assert typed.query() == read(typed.query()).query()
    assert "Nov 18, 08:00 to Nov 18, 09:30 UTC" in typed.range.label


def test_open_or_future_end_is_now() -> None:
    for query in ("from=1794999000", "from=1794999000&to=1900000000"):
        found = read(query)
        assert found.until == int(NOW)
        assert found.range.length_s == 1000


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("range=1y", "range"),
        ("refresh=1", "refresh"),
        ("compare=yesterday", "compare"),
        ("from=soon&to=1794993600", "from"),
        ("from=1794990000&to=late", "to"),
        ("to=1794990000", "from"),
        ("from=99999999999999999999999&to=1794993600", "from"),
        ("from=1794993600&to=1794990000", "from"),
        ("from=1794993600&to=1794993610", "from"),
        ("from=1700000000&to=1794990000", "from"),
        ("from=1899990000&to=1900000000", "from"),
    ],
)
def test_invalid_parameter_names_the_field(query: str, field: str) -> None:
    assert refused(query) == field


@pytest.mark.parametrize("length", [60, 61, 299, 3601, 86_400, 7 * 86_400 + 5, answers.LONGEST_S])
def test_any_range_fits_the_points_of_a_line(length: int) -> None:
    chosen = answers.make_fixed_range(int(NOW) - length, int(NOW))
    window = client.Window.ending(NOW, chosen.length_s, chosen.step_s)
    assert 1 < window.points <= client.MAX_POINTS


@pytest.mark.parametrize("choice", RANGES.values(), ids=list(RANGES))
def test_every_range_has_a_suitable_number_of_points(choice: answers.Range) -> None:
    assert 150 < choice.length_s // choice.step_s < client.MAX_POINTS


def test_nul_bytes_are_rejected() -> None:
    assert read("worker=a%00b&panel=%00ttft").worker == "ab"
