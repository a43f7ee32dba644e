"""Bars, heat maps and large figures: ones Plotly accepts, of honest numbers and bounded size."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

import plotly.graph_objects as go
import pytest

from dashboards.boards.charts import figure as charts_figure
from dashboards.boards.charts import units
from dashboards.boards.charts.kinds import MAX_COLUMNS
from dashboards.boards.charts.styled_series import MAX_LINES, style_series
from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import Panel, Unit
from dashboards.boards.panels.overview import GOOD, NOW, SHARE
from dashboards.boards.panels.routing import ERRORS
from dashboards.boards.panels.workers import PROMPT_LENGTHS
from dashboards.prometheus.http.client import MAX_POINTS, Series, Window

WINDOW = Window(1_700_000_000, 1_700_000_020, 5)
EVERY = {
    panel.id: panel
    for board in BOARDS.values()
    for one in (True, False)
    for panel in board.panels(one=one)
}


def series(values: list[float | None], **labels: str) -> Series:
    return Series(tuple(sorted(labels.items())), tuple(values))


def figure(panel: Panel, *found: Series, window: Window = WINDOW) -> dict[str, Any]:
    made = charts_figure.figure(panel, style_series(panel, [(panel.lines[0], found)]), window)
    assert made is not None
    again: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    go.Figure(again)  # raises for anything Plotly does not know
    return again


def lengths() -> list[Series]:
    """Cumulated, out of order: none up to 10, two up to 100, five more up to 1000, none above."""
    counts = {"+Inf": 7.0, "10.0": 0.0, "100.0": 2.0, "1000.0": 7.0}
    return [series([value] * 5, le=edge) for edge, value in counts.items()]


def test_every_panel_can_be_drawn() -> None:
    for panel in EVERY.values():
        found = []
        for line in panel.lines:
            key = "100" if panel.kind == "heatmap" else next(iter(panel.legend), "demo-worker-0")
            found.append((line, (series([1, 2, None, 3, 4], **{line.by or "x": key}),)))
        drawn = style_series(panel, found)
        made = charts_figure.figure(panel, drawn, WINDOW)
        json.dumps(made, allow_nan=False)
        assert charts_figure.table(panel, drawn)["rows"]
        assert panel.title in charts_figure.make_text_alternative(panel, drawn)


def test_lengths_are_not_counted_again_with_longer_ones() -> None:
    drawn = style_series(PROMPT_LENGTHS, [(PROMPT_LENGTHS.lines[0], tuple(lengths()))])
    assert [(item.style.label, item.values[0]) for item in drawn] == [
        ("up to 10", 0.0),
        ("10 to 100", 2.0),
        ("100 to 1,000", 5.0),
        ("over 1,000", 0.0),
    ]
    assert charts_figure.make_text_alternative(PROMPT_LENGTHS, drawn).endswith(
        "Most have 100 to 1,000 tokens."
    )


def test_a_heat_map_leaves_out_lengths_nobody_sent() -> None:
    (trace,) = figure(PROMPT_LENGTHS, *lengths())["data"]
    assert (trace["type"], trace["colorscale"][0][1]) == ("heatmap", "#00224e"), "cividis"
    assert trace["y"] == ["10 to 100", "100 to 1,000"]
    assert trace["z"] == [[2.0] * 5, [5.0] * 5]


def test_two_moments_of_a_scrape_make_no_negative_requests() -> None:
    found = [series([3.0], le="10"), series([2.0], le="100"), series([None], le="+Inf")]
    drawn = style_series(PROMPT_LENGTHS, [(PROMPT_LENGTHS.lines[0], tuple(found))])
    assert [item.values for item in drawn] == [(3.0,), (0.0,), (None,)]


def test_a_long_heat_map_has_as_many_columns_as_a_screen() -> None:
    window = Window(0, (MAX_POINTS - 1) * 5, 5)
    values: list[float | None] = [float(n % 4) for n in range(window.points)]
    (trace,) = figure(PROMPT_LENGTHS, series(values, le="10"), window=window)["data"]
    assert len(trace["z"][0]) <= MAX_COLUMNS
    assert set(trace["z"][0]) == {1.5}, "the mean of four points"
    assert trace["dx"] == 4 * 5000
    assert trace["x0"] == 7500, "the middle of the first four"


def test_bars_are_stacked_and_what_never_happened_needs_no_name() -> None:
    made = figure(ERRORS, series([1.0] * 5, reason="a"), series([0.0] * 5, reason="b"))
    assert [(trace["type"], trace["name"]) for trace in made["data"]] == [("bar", "a")]
    assert made["layout"]["barmode"] == "stack"
    nothing = figure(ERRORS, series([0.0] * 5, reason="a"), series([0.0] * 5, reason="b"))
    assert nothing["layout"]["showlegend"] is False


def test_large_figures_say_the_latest_value_of_each() -> None:
    found = [(line, (series([0.1, 0.25]),)) for line in GOOD.lines]
    made = charts_figure.figure(GOOD, style_series(GOOD, found), Window(0, 5, 5))
    assert made is not None
    texts = [note["text"] for note in made["layout"]["annotations"]]
    assert texts[0::2] == ["<b>25.0 %</b>"] * 3
    assert set(texts[1::2]) == {style.label for style in GOOD.legend.values()}
    assert len({trace["xaxis"] for trace in made["data"]}) == 3


def test_a_large_figure_of_what_is_not_measured_now_says_of_when_it_is() -> None:
    """A dash would hide the only number there is; the number alone would pass for now's."""
    found = [(line, (series([0.25, None, None]),)) for line in GOOD.lines]
    for step, when in ((60, "at 22:13"), (86400, "at Nov 14, 22:13")):
        window = Window(1_700_000_000, 1_700_000_000 + 2 * step, step)
        made = charts_figure.figure(GOOD, style_series(GOOD, found), window)
        assert made is not None
        texts = [note["text"] for note in made["layout"]["annotations"]]
        assert texts[0::3] == ["<b>25.0 %</b>"] * 3
        assert texts[2::3] == [when] * 3
    assert made["layout"]["xaxis4"]["domain"][1] <= 1
    assert made["layout"]["xaxis"]["type"] != "date", "boards mark the first time axis"


def test_a_large_figure_of_nothing_is_a_zero() -> None:
    found = [(line, (series([0.0]),)) for line in NOW.lines]
    made = charts_figure.figure(NOW, style_series(NOW, found), Window(0, 5, 5))
    assert made is not None
    assert [n["text"] for n in made["layout"]["annotations"]][0::2] == ["<b>0</b>"] * 3


def test_of_large_figures_a_zero_among_others_is_told_too() -> None:
    found = [(line, (series([float(place)]),)) for place, line in enumerate(NOW.lines)]
    drawn = style_series(NOW, found)
    made = charts_figure.figure(NOW, drawn, Window(0, 5, 5))
    assert made is not None
    shown = [note["text"] for note in made["layout"]["annotations"]][0::2]
    assert shown == ["<b>0</b>", "<b>1</b>", "<b>2</b>"]
    assert "Workers up 0" in charts_figure.make_text_alternative(NOW, drawn)


def test_too_many_lines_are_counted_not_drawn() -> None:
    found = [series([float(n)] * 5, worker=f"w{n:03}") for n in range(MAX_LINES + 7)]
    drawn = style_series(SHARE, [(SHARE.lines[0], tuple(found))])
    assert [item.key for item in drawn] == [f"w{n:03}" for n in range(7, MAX_LINES + 7)] + [""]
    assert charts_figure.table(SHARE, drawn)["rows"][-1][0] == "7 smaller ones are not shown"
    assert len(figure(SHARE, *found)["data"]) == MAX_LINES


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("count", 3, "3"),
        ("count", 2.5, "2.50"),
        ("count", 0, "0"),
        ("tokens", 12_345, "12.3 k"),
        ("tokens_per_s", 1_250_000, "1.2 M tokens/s"),
        ("per_s", 3.1e14, "310.0 T/s"),
        ("bytes", 512, "512 B"),
        ("bytes", 3 * 1024**3, "3.0 GiB"),
        ("bytes_per_s", 1536, "1.5 kB/s"),
        ("usd", 1.5, "1.50 USD"),
        ("usd", 0.0123, "0.012 USD"),
        ("usd", -0.5, "-0.50 USD"),
        ("usd_hour", 7.09, "7.09 USD/h"),
        ("celsius", 63.4, "63 °C"),
        ("watts", 412.3, "412 W"),
    ],
)
def test_values_in_words(unit: Unit, value: float, words: str) -> None:
    assert charts_figure.format_value(unit, value) == words


def test_every_unit_has_an_axis_and_words() -> None:
    for unit in get_args(Unit):
        figure(replace(SHARE, unit=unit), series([1.0] * 5, worker="w"))
        assert units.format_value(unit, None) == "–"


def test_ticks_are_small_numbers_as_such_and_large_ones_shortened() -> None:
    assert units.axis_format("per_s", 0.5)["tickformat"] == "~g"
    assert units.axis_format("per_s", 40_000)["tickformat"] == "~s"
    assert units.axis_format("seconds", 0.5)["tickformat"] == "~s", "milliseconds"
