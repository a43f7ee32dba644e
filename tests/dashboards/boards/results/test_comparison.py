"""Comparison of a panel with the previous period."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dashboards.boards.charts import figure
from dashboards.boards.charts.series import StyledSeries
from dashboards.boards.panels.declarations import Panel, Style
from dashboards.boards.panels.overview import SHARE, SOURCES, TTFT
from dashboards.boards.panels.styles import TIERS
from dashboards.boards.results import comparison
from dashboards.prometheus.http.client import Window

WINDOW = Window(1000, 1010, 5)


def line(key: str, *values: float | None, style: Style | None = None) -> StyledSeries:
    return StyledSeries(key, style or Style(key, "#111"), values)


def compared(panel: Panel, drawn: list[StyledSeries], before: list[StyledSeries]) -> dict[str, Any]:
    document = {"figure": figure.figure(panel, drawn, WINDOW), "table": figure.table(panel, drawn)}
    return comparison.add_previous_period(document, panel, drawn, before, WINDOW)


def ghosts(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [trace for trace in found["figure"]["data"] if trace.get("meta") == "before"]


def test_ghost_line_matches_time_and_colour() -> None:
    p50 = TTFT.legend["p50"]
    found = compared(TTFT, [line("p50", 1, 2, 3, style=p50)], [line("p50", 4, None, 6)])
    (ghost,) = ghosts(found)
    real = found["figure"]["data"][0]
    assert (ghost["x0"], ghost["dx"]) == (real["x0"], real["dx"])
    assert ghost["line"]["color"] == real["line"]["color"]
    assert ghost["name"] == "p50 (previous)"
    assert ghost["y"] == [4, None, 6]
    assert not ghost["showlegend"]


def test_table_has_the_previous_mean_and_the_change() -> None:
    found = compared(TTFT, [line("p50", 1, 2, 3)], [line("p50", 4, None, 4)])
    assert found["table"]["head"][-2:] == ["Mean (previous)", "Change"]
    assert found["table"]["rows"][0][-2:] == ["4.00 s", "-50.0 %"]


def test_values_over_the_range_are_compared_instead_of_means() -> None:
    now = [replace(line("p50", 1, 2, 3), total=6.0)]
    found = compared(TTFT, now, [replace(line("p50", 4, None, 4), total=3.0)])
    assert found["table"]["head"][1:3] == ["Whole range", "Last"]
    assert found["table"]["head"][-2:] == ["Whole range (previous)", "Change"]
    assert found["table"]["rows"][0][-2:] == ["3.00 s", "+100.0 %"]


def test_shares_change_by_percentage_points() -> None:
    found = compared(SHARE, [line("a", 0.75, 0.75, 0.75)], [line("a", 0.5, 0.5, 0.5)])
    assert found["table"]["rows"][0][-1] == "+25.0 pp"


def test_ghosts_of_areas_are_lines() -> None:
    device, l1 = TIERS["device"], TIERS["l1"]
    now = [line("device", 0.5, 0.5, 0.5, style=device), line("l1", 0.1, 0.1, 0.1, style=l1)]
    before = [line("device", 0.2, 0.2, 0.2), line("l1", 0.3, None, 0.3)]
    found = compared(SOURCES, now, before)
    assert [ghost["y"] for ghost in ghosts(found)] == [[0.2, 0.2, 0.2], [0.5, 0.2, 0.5]]


def test_new_and_removed_series_are_in_the_table() -> None:
    found = compared(SHARE, [line("new", 1, 1, 1)], [line("gone", 1, 1, 1), line("odd", 0, 0, 0)])
    rows = {row[0]: row[1:] for row in found["table"]["rows"]}
    assert rows["new"][-2:] == ["–", "–"]
    assert rows["gone"][:4] == ["–"] * 4
    assert [ghost["name"] for ghost in ghosts(found)] == ["gone (previous)"]


def test_growth_from_zero_is_new() -> None:
    found = compared(SHARE, [line("a", 1, 1, 1)], [line("a", 0, 0, 0)])
    assert found["table"]["rows"][0][-1] == "+100.0 pp"
    found = compared(TTFT, [line("p50", 1, 1, 1)], [line("p50", 0, 0, 0)])
    assert found["table"]["rows"][0][-1] == "new"


def test_no_current_values_draw_no_figure() -> None:
    found = compared(TTFT, [], [line("p50", 1, 1, 1)])
    assert found["figure"] is None
    assert found["table"]["rows"][0][-2] == "1.00 s"


def test_previous_period_ends_where_the_current_begins() -> None:
    before = Window(1000, 1600, 10).previous
    assert before == Window(400, 1000, 10)
