"""Figures are ones Plotly accepts, mean the same everywhere, and say it in words too."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboards.boards.charts import figure as charts_figure
from dashboards.boards.charts import units
from dashboards.boards.charts.styled_series import StyledSeries, style_series
from dashboards.boards.panels import overview, styles
from dashboards.boards.panels.declarations import Panel, PanelLine
from dashboards.prometheus.http.client import Series, Window

WINDOW = Window(1_700_000_000, 1_700_000_020, 5)


def series(values: list[float | None], **labels: str) -> Series:
    return Series(tuple(sorted(labels.items())), tuple(values))


def drawn(panel: Panel, *found: Series, line: PanelLine | None = None) -> list[StyledSeries]:
    return style_series(panel, [(line or panel.lines[0], found)])


def tiers() -> list[StyledSeries]:
    found = [
        series([0.1, 0.2, None, 0.1, share], tier=tier)
        for tier, share in (("computed", 0.1), ("device", 0.5), ("l1", 0.3), ("l2", 0.1))
    ]
    return drawn(overview.SOURCES, *found)


def figure(panel: Panel, items: list[StyledSeries]) -> dict[str, Any]:
    made = charts_figure.figure(panel, items, WINDOW)
    assert made is not None
    return made


def test_a_figure_is_json_that_plotly_accepts_whole() -> None:
    for panel in overview.BOARD.panels(one=True):
        keys = list(panel.legend) or ["demo-worker-0", "demo-worker-1"]
        line = panel.lines[0]
        found = [series([1, 2, None, 3, 4], **{line.by or "x": key}) for key in keys]
        made = figure(panel, drawn(panel, *found))
        again = json.loads(json.dumps(made, allow_nan=False))
        go.Figure(again)  # raises for anything Plotly does not know
        assert again["layout"]["uirevision"] == "emberline"


def test_tiers_keep_their_colour_their_order_and_a_second_sign() -> None:
    made = figure(overview.SOURCES, tiers())
    shown = {trace["name"]: trace["line"]["color"] for trace in made["data"]}
    assert list(shown.values()) == ["#0072B2", "#009E73", "#E69F00", "#999999"]
    assert [name.split()[0] for name in shown] == ["Device", "L1", "L2", "Computed"]
    assert len({trace["line"]["dash"] for trace in made["data"]}) == 4
    assert {trace["stackgroup"] for trace in made["data"]} == {"all"}


def test_a_tier_alone_has_the_colour_it_has_among_others() -> None:
    made = figure(overview.SOURCES, drawn(overview.SOURCES, series([1.0] * 5, tier="l2")))
    assert [trace["line"]["color"] for trace in made["data"]] == ["#E69F00"]


def test_a_missing_number_is_a_gap() -> None:
    (trace,) = figure(
        overview.SHARE, drawn(overview.SHARE, series([1, None, 1, 1, 1], worker="w"))
    )["data"]
    assert trace["y"][1] is None
    assert trace["connectgaps"] is False
    assert (trace["x0"], trace["dx"]) == (WINDOW.start * 1000, 5000)


def test_backgrounds_are_transparent_for_both_themes() -> None:
    layout = figure(overview.SOURCES, tiers())["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"


def test_what_never_happened_is_in_the_table_but_not_in_the_legend() -> None:
    panel = overview.REASONS_PANEL
    items = drawn(panel, series([0.0] * 5, reason="retry"), series([1.0] * 5, reason="prefix_hit"))
    assert [trace["name"] for trace in figure(panel, items)["data"]] == ["Prefix known"]
    rows = charts_figure.table(panel, items)["rows"]
    assert [row[0] for row in rows] == ["Prefix known", "Sent again"]
    assert "Sent again" not in charts_figure.make_text_alternative(panel, items)


def test_all_zero_is_drawn_as_zero() -> None:
    panel = overview.REASONS_PANEL
    assert len(figure(panel, drawn(panel, series([0.0] * 5, reason="retry")))["data"]) == 1


def test_without_numbers_there_is_no_figure() -> None:
    assert charts_figure.figure(overview.TTFT, [], WINDOW) is None
    empty = drawn(overview.SHARE, series([None] * 5, worker="w"))
    assert charts_figure.figure(overview.SHARE, empty, WINDOW) is None
    assert (
        charts_figure.make_text_alternative(overview.SHARE, empty)
        == "Share of each worker. No data."
    )
    assert charts_figure.table(overview.SHARE, empty)["rows"] == [["w", "–", "–", "–", "–"]]


def test_names_we_cannot_know_are_told_apart_by_more_than_colour() -> None:
    found = [series([1.0] * 5, worker=f"w{n:02}") for n in range(12)]
    signs = {(item.style.colour, item.style.dash) for item in drawn(overview.SHARE, *found)}
    assert len(signs) == 12
    colours = {item.style.colour for item in drawn(overview.SHARE, *found)}
    assert not colours & {styles.RED, styles.GREY}, "these mean failed and computed"


def test_the_table_and_the_spoken_text_say_what_the_lines_show() -> None:
    rows = charts_figure.table(overview.SOURCES, tiers())["rows"]
    assert rows[0] == ["Device", "50.0 %", "22.5 %", "10.0 %", "50.0 %"]
    assert "L1 host memory 30.0 %" in charts_figure.make_text_alternative(overview.SOURCES, tiers())


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("share", 0.1234, "12.3 %"),
        ("share", 0.0, "0.0 %"),
        ("share", 0.0004, "0.04 %"),
        ("share", 1e-9, "under 0.001 %"),
        ("seconds", 0.0, "0 ms"),
        ("seconds", 0.00005, "50 µs"),
        ("seconds", 0.0014, "1.4 ms"),
        ("seconds", 0.0123, "12 ms"),
        ("seconds", 1.5, "1.50 s"),
        ("seconds", 90.0, "90.00 s"),
        ("seconds", 5400.0, "90.0 min"),
        ("seconds", 7 * 86400.0, "7.0 days"),
        ("per_s", 0.0041, "0.004/s"),
        ("bytes_per_s", 4.4e9, "4.4 GB/s"),
        ("bytes", 4 * 1024.0**3, "4.0 GiB"),
        ("per_s", 0.25, "0.25/s"),
        ("per_s", 1234.5, "1234/s"),
        ("per_s", None, "–"),
    ],
)
def test_values_in_words(unit: Any, value: float | None, words: str) -> None:
    assert charts_figure.format_value(unit, value) == words


@pytest.mark.parametrize(
    ("unit", "highest", "words"),
    [
        ("seconds", 3599.0, ["0", "10 min", "20 min", "30 min", "40 min", "50 min"]),
        ("seconds", 400 * 86400.0, ["0", "70 days", "140 days"]),
        ("bytes", 3.1 * 1024**3, ["0", "1 GiB", "2 GiB", "3 GiB"]),
    ],
)
def test_an_axis_counts_as_people_do(unit: Any, highest: float, words: list[str]) -> None:
    told = units.axis_format(unit, highest)
    assert told["ticktext"][: len(words)] == words
    assert len(told["tickvals"]) == len(told["ticktext"]) <= 8


def test_a_short_axis_is_left_to_plotly() -> None:
    assert "tickvals" not in units.axis_format("seconds", 2.5)
    assert "tickvals" not in units.axis_format("per_s", 1e6)


def test_a_gap_in_a_stack_has_no_edge() -> None:
    """Plotly stacks it as zero: a line there would say that nothing was measured as 0 %."""
    whole = drawn(overview.SOURCES, series([0.5, 0.5], tier="l1"))
    broken = drawn(overview.SOURCES, series([0.5, None, 0.5], tier="l1"))
    assert figure(overview.SOURCES, whole)["data"][0]["line"]["width"] > 0
    assert figure(overview.SOURCES, broken)["data"][0]["line"]["width"] == 0


def test_a_number_between_two_gaps_is_a_dot() -> None:
    alone = drawn(overview.TTFT, series([None, 1, None, 1, 1]), line=overview.TTFT.lines[0])
    (trace,) = figure(overview.TTFT, alone)["data"]
    assert trace["mode"] == "lines+markers"
    assert list(trace["marker"]["size"]) == [0, 5, 0, 0, 0]
    whole = drawn(overview.TTFT, series([1, 1, 1, 1, 1]), line=overview.TTFT.lines[0])
    assert figure(overview.TTFT, whole)["data"][0]["mode"] == "lines"
