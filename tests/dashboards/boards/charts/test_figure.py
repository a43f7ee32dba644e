"""Figures: valid for Plotly, consistent styles, and a text alternative."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import plotly.graph_objects as go
import pytest

import dashboards
from dashboards.boards.charts import figure as charts_figure
from dashboards.boards.charts import series as charts_series
from dashboards.boards.charts.figure import MAX_COLUMNS
from dashboards.boards.charts.series import CYCLE, MAX_LINES, StyledSeries, style_series
from dashboards.boards.panels import BOARDS, overview, styles
from dashboards.boards.panels.declarations import Panel, PanelLine, Unit
from dashboards.boards.panels.overview import GOOD, NOW, SHARE
from dashboards.boards.panels.routing import ERRORS, STRATEGIES
from dashboards.boards.panels.workers import PROMPT_LENGTHS
from dashboards.prometheus.http.client import MAX_POINTS, Series, Window

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


@pytest.mark.parametrize("board", BOARDS)
def test_a_figure_is_json_that_plotly_accepts_whole(board: str) -> None:
    panels = {p.id: p for one in (True, False) for p in BOARDS[board].panels(one=one)}
    for panel in panels.values():
        keys = list(panel.legend) or ["demo-worker-0", "demo-worker-1"]
        keys = ["100", "1000"] if panel.kind == "heatmap" else keys
        line = panel.lines[0]
        found = [series([1, None, 2, None, 4], **{line.by or "x": key}) for key in keys]
        made = figure(panel, drawn(panel, *found))
        again = json.loads(json.dumps(made, allow_nan=False))
        valid = go.Figure(again)  # raises for anything Plotly does not know
        assert json.loads(json.dumps(valid.to_plotly_json())) == again, panel.id
        assert again["layout"]["uirevision"] == "emberline"


def test_tiers_have_a_fixed_colour_order_and_dash() -> None:
    made = figure(overview.SOURCES, tiers())
    shown = {trace["name"]: trace["line"]["color"] for trace in made["data"]}
    assert list(shown.values()) == ["#0072B2", "#009E73", "#E69F00", "#999999"]
    assert [name.split()[0] for name in shown] == ["Device", "L1", "L2", "Computed"]
    assert len({trace["line"]["dash"] for trace in made["data"]}) == 4
    assert {trace["stackgroup"] for trace in made["data"]} == {"all"}


def test_single_tier_keeps_its_colour() -> None:
    made = figure(overview.SOURCES, drawn(overview.SOURCES, series([1.0] * 5, tier="l2")))
    assert [trace["line"]["color"] for trace in made["data"]] == ["#E69F00"]


def test_missing_value_is_a_gap() -> None:
    (trace,) = figure(
        overview.SHARE, drawn(overview.SHARE, series([1, None, 1, 1, 1], worker="w"))
    )["data"]
    assert trace["y"][1] is None
    assert trace["connectgaps"] is False
    assert (trace["x0"], trace["dx"]) == (WINDOW.start * 1000, 5000)


def test_backgrounds_are_transparent_for_both_themes() -> None:
    layout = figure(overview.SOURCES, tiers())["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"


def test_zero_series_are_in_the_table_but_not_in_the_legend() -> None:
    panel = overview.REASONS_PANEL
    items = drawn(panel, series([0.0] * 5, reason="retry"), series([1.0] * 5, reason="prefix_hit"))
    assert [trace["name"] for trace in figure(panel, items)["data"]] == ["Prefix match"]
    rows = charts_figure.table(panel, items)["rows"]
    assert [row[0] for row in rows] == ["Prefix match", "Retried"]
    assert "Retried" not in charts_figure.make_text_alternative(panel, items)


def test_all_zero_series_are_drawn_at_zero() -> None:
    panel = overview.REASONS_PANEL
    assert len(figure(panel, drawn(panel, series([0.0] * 5, reason="retry")))["data"]) == 1


def test_without_values_there_is_no_figure() -> None:
    assert charts_figure.figure(overview.TTFT, [], WINDOW) is None
    empty = drawn(overview.SHARE, series([None] * 5, worker="w"))
    assert charts_figure.figure(overview.SHARE, empty, WINDOW) is None
    assert (
        charts_figure.make_text_alternative(overview.SHARE, empty)
        == "Request share by worker. No data."
    )
    assert charts_figure.table(overview.SHARE, empty)["rows"] == [["w", "–", "–", "–", "–"]]


def test_unknown_names_differ_by_more_than_colour() -> None:
    found = [series([1.0] * 5, worker=f"w{n:02}") for n in range(12)]
    signs = {(item.style.colour, item.style.dash) for item in drawn(overview.SHARE, *found)}
    assert len(signs) == 12
    colours = {item.style.colour for item in drawn(overview.SHARE, *found)}
    assert not colours & {styles.RED, styles.GREY}, "these mean failed and computed"


def test_table_and_description_state_the_values_of_the_lines() -> None:
    rows = charts_figure.table(overview.SOURCES, tiers())["rows"]
    assert rows[0] == ["Device", "50.0 %", "22.5 %", "10.0 %", "50.0 %"]
    assert "L1 30.0 %" in charts_figure.make_text_alternative(overview.SOURCES, tiers())


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
def test_formatted_values(unit: Any, value: float | None, words: str) -> None:
    assert charts_figure.format_value(unit, value) == words


@pytest.mark.parametrize(
    ("unit", "highest", "words"),
    [
        ("seconds", 3599.0, ["0", "10 min", "20 min", "30 min", "40 min", "50 min"]),
        ("seconds", 400 * 86400.0, ["0", "70 days", "140 days"]),
        ("bytes", 3.1 * 1024**3, ["0", "1 GiB", "2 GiB", "3 GiB"]),
    ],
)
def test_axis_ticks_are_round_numbers(unit: Any, highest: float, words: list[str]) -> None:
    reported = charts_series.axis_format(unit, highest)
    assert reported["ticktext"][: len(words)] == words
    assert len(reported["tickvals"]) == len(reported["ticktext"]) <= 8


def test_short_axis_uses_the_default_of_plotly() -> None:
    assert "tickvals" not in charts_series.axis_format("seconds", 2.5)
    assert "tickvals" not in charts_series.axis_format("per_s", 1e6)


def test_gap_in_a_stack_has_no_edge() -> None:
    """Plotly stacks it as zero: a line there would say that nothing was measured as 0 %."""
    whole = drawn(overview.SOURCES, series([0.5, 0.5], tier="l1"))
    broken = drawn(overview.SOURCES, series([0.5, None, 0.5], tier="l1"))
    assert figure(overview.SOURCES, whole)["data"][0]["line"]["width"] > 0
    assert figure(overview.SOURCES, broken)["data"][0]["line"]["width"] == 0


def test_single_value_between_gaps_is_a_dot() -> None:
    alone = drawn(overview.TTFT, series([None, 1, None, 1, 1]), line=overview.TTFT.lines[0])
    (trace,) = figure(overview.TTFT, alone)["data"]
    assert trace["mode"] == "lines+markers"
    assert list(trace["marker"]["size"]) == [0, 5, 0, 0, 0]
    whole = drawn(overview.TTFT, series([1, 1, 1, 1, 1]), line=overview.TTFT.lines[0])
    assert figure(overview.TTFT, whole)["data"][0]["mode"] == "lines"


EVERY = {
    panel.id: panel
    for board in BOARDS.values()
    for one in (True, False)
    for panel in board.panels(one=one)
}


def figure_of(panel: Panel, *found: Series, window: Window = WINDOW) -> dict[str, Any]:
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


def test_length_buckets_are_not_counted_cumulatively() -> None:
    drawn = style_series(PROMPT_LENGTHS, [(PROMPT_LENGTHS.lines[0], tuple(lengths()))])
    assert [(item.style.label, item.values[0]) for item in drawn] == [
        ("up to 10", 0.0),
        ("10 to 100", 2.0),
        ("100 to 1,000", 5.0),
        ("over 1,000", 0.0),
    ]
    assert charts_figure.make_text_alternative(PROMPT_LENGTHS, drawn).endswith(
        "Most frequent: 100 to 1,000 tokens."
    )


def test_heat_map_omits_empty_lengths() -> None:
    (trace,) = figure_of(PROMPT_LENGTHS, *lengths())["data"]
    assert (trace["type"], trace["colorscale"][0][1]) == ("heatmap", "#00224e"), "cividis"
    assert trace["y"] == ["10 to 100", "100 to 1,000"]
    assert trace["z"] == [[2.0] * 5, [5.0] * 5]


def test_partial_scrape_gives_no_negative_counts() -> None:
    found = [series([3.0], le="10"), series([2.0], le="100"), series([None], le="+Inf")]
    drawn = style_series(PROMPT_LENGTHS, [(PROMPT_LENGTHS.lines[0], tuple(found))])
    assert [item.values for item in drawn] == [(3.0,), (0.0,), (None,)]


def test_long_heat_map_has_a_bounded_number_of_columns() -> None:
    window = Window(0, (MAX_POINTS - 1) * 5, 5)
    values: list[float | None] = [float(n % 4) for n in range(window.points)]
    (trace,) = figure_of(PROMPT_LENGTHS, series(values, le="10"), window=window)["data"]
    assert len(trace["z"][0]) <= MAX_COLUMNS
    assert set(trace["z"][0]) == {1.5}, "the mean of four points"
    assert trace["dx"] == 4 * 5000
    assert trace["x0"] == 7500, "the middle of the first four"


def test_bars_are_stacked_and_empty_series_have_no_legend() -> None:
    made = figure_of(ERRORS, series([1.0] * 5, reason="a"), series([0.0] * 5, reason="b"))
    assert [(trace["type"], trace["name"]) for trace in made["data"]] == [("bar", "a")]
    assert made["layout"]["barmode"] == "stack"
    nothing = figure_of(ERRORS, series([0.0] * 5, reason="a"), series([0.0] * 5, reason="b"))
    assert len(nothing["data"]) == 2


def test_codes_have_labels_everywhere() -> None:
    """Without a declared style, and where two labels are joined; the key stays for programs."""
    found = drawn(ERRORS, series([1.0] * 5, reason="no_healthy_worker"))
    assert [(item.key, item.style.label) for item in found] == [
        ("no_healthy_worker", "No healthy worker")
    ]
    joined = series([1.0] * 5, strategy_reason="prefixaware fallback_least_loaded")
    items = drawn(STRATEGIES, joined)
    (trace,) = figure(STRATEGIES, items)["data"]
    assert trace["name"] == "prefixaware: Diverted by load"
    assert charts_figure.table(STRATEGIES, items)["rows"][0][0] == trace["name"]
    assert trace["name"] in charts_figure.make_text_alternative(STRATEGIES, items)
    sources = series([1.0] * 5, reason="queue_full", metrics_source="east")
    assert [item.style.label for item in drawn(ERRORS, sources)] == ["Queue full (east)"]


def test_all_charts_have_one_height_and_no_plotly_legend() -> None:
    one = figure(SHARE, drawn(SHARE, series([1.0] * 5, worker="w")))["layout"]
    many = [series([1.0] * 5, worker=f"w{n:02}") for n in range(12)]
    assert figure(SHARE, drawn(SHARE, *many))["layout"]["height"] == one["height"]
    assert (
        figure(PROMPT_LENGTHS, drawn(PROMPT_LENGTHS, *lengths()))["layout"]["height"]
        == one["height"]
    )
    assert one["showlegend"] is False


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("theme", "card"), [(":root", "#ffffff"), ("dark", "#262626")])
def test_every_colour_has_contrast_in_both_themes(theme: str, card: str) -> None:
    """WCAG 1.4.11: 3:1 between a line and its card."""
    sheet = Path(dashboards.__file__).parent / "static" / "dashboards" / "panels.css"
    rules = re.findall(r"^([^\n{}]*) \{\n([^}]*)", sheet.read_text(), re.MULTILINE)
    (block,) = (body for head, body in rules if theme in head and "--chart-" in body)
    shades = dict(re.findall(r"--chart-([0-9a-f]{6}): (#[0-9a-f]{6})", block))
    used = {
        style.colour.removeprefix("#").lower()
        for panel in EVERY.values()
        for style in panel.legend.values()
    } | {colour.removeprefix("#").lower() for colour in CYCLE}
    assert used <= set(shades)
    assert len(set(shades.values())) == len(shades)
    ground = _luminance(card)
    for shade in shades.values():
        lighter, darker = sorted((_luminance(shade), ground), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, shade


def test_single_values_show_the_latest_value_of_each_series() -> None:
    found = [(line, (series([0.1, 0.25]),)) for line in GOOD.lines]
    made = charts_figure.figure(GOOD, style_series(GOOD, found), Window(0, 5, 5))
    assert made is not None
    texts = [note["text"] for note in made["layout"]["annotations"]]
    assert texts[0::2] == ["<b>25.0 %</b>"] * 3
    assert set(texts[1::2]) == {style.label for style in GOOD.legend.values()}
    assert len({trace["xaxis"] for trace in made["data"]}) == 3


def test_outdated_single_value_states_its_time() -> None:
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


def test_single_value_without_series_is_zero() -> None:
    found = [(line, (series([0.0]),)) for line in NOW.lines]
    made = charts_figure.figure(NOW, style_series(NOW, found), Window(0, 5, 5))
    assert made is not None
    assert [n["text"] for n in made["layout"]["annotations"]][0::2] == ["<b>0</b>"] * 3


def test_zero_among_single_values_is_shown() -> None:
    found = [(line, (series([float(place)]),)) for place, line in enumerate(NOW.lines)]
    drawn = style_series(NOW, found)
    made = charts_figure.figure(NOW, drawn, Window(0, 5, 5))
    assert made is not None
    shown = [note["text"] for note in made["layout"]["annotations"]][0::2]
    assert shown == ["<b>0</b>", "<b>1</b>", "<b>2</b>"]
    assert "Workers up 0" in charts_figure.make_text_alternative(NOW, drawn)


def test_excess_series_are_counted_and_not_drawn() -> None:
    found = [series([float(n)] * 5, worker=f"w{n:03}") for n in range(MAX_LINES + 7)]
    drawn = style_series(SHARE, [(SHARE.lines[0], tuple(found))])
    assert [item.key for item in drawn] == [f"w{n:03}" for n in range(7, MAX_LINES + 7)] + [""]
    assert charts_figure.table(SHARE, drawn)["rows"][-1][0] == "7 smaller series not shown"
    assert len(figure_of(SHARE, *found)["data"]) == MAX_LINES


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
        ("usd", 1.5, "$1.50"),
        ("usd", 0.0123, "$0.012"),
        ("usd", -0.5, "-$0.50"),
        ("usd_hour", 7.09, "$7.09/h"),
        ("celsius", 63.4, "63 °C"),
        ("watts", 412.3, "412 W"),
    ],
)
def test_every_unit_is_formatted(unit: Unit, value: float, words: str) -> None:
    assert charts_figure.format_value(unit, value) == words


def test_every_unit_has_an_axis_and_a_format() -> None:
    for unit in get_args(Unit):
        figure_of(replace(SHARE, unit=unit), series([1.0] * 5, worker="w"))
        assert charts_series.format_value(unit, None) == "–"


def test_small_ticks_are_plain_and_large_ones_abbreviated() -> None:
    assert charts_series.axis_format("per_s", 0.5)["tickformat"] == "~g"
    assert charts_series.axis_format("per_s", 40_000)["tickformat"] == "~s"
    assert charts_series.axis_format("seconds", 0.5)["tickformat"] == "~s", "milliseconds"
