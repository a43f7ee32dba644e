"""Plots of docs/benchmarks/scaling.md."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench import plots

TABLE = (
    "| workers | one | two (µs) |\n|---|---|---|\n| 8 | 1,200 µs | −3 |\n| 1,000 | – | +4.5 % |\n"
)


def test_images_show_the_tables_of_the_page() -> None:
    drawn = dict(plots.plots(plots.PAGE.read_text()))
    assert len(drawn) > 5
    for name, svg in drawn.items():
        assert (plots.IMAGES / name).read_text() == svg, f"{name}: run python -m bench.plots"
    stored = {path.name for path in plots.IMAGES.glob("scaling-*.svg")}
    assert stored == set(drawn), "an image without a table"


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,200 µs", 1200.0), ("−3", -3.0), ("+4.5 %", 4.5), ("0.2–0.5", 0.2), ("–", None)],
)
def test_a_cell_counts_by_its_first_number(cell: str, value: float | None) -> None:
    assert plots.number(cell) == value


def test_a_missing_value_is_left_out() -> None:
    ((name, svg),) = plots.plots(f"![CPU & memory](../images/a.svg)\n\n{TABLE}\n")
    drawn = ElementTree.fromstring(svg)
    circles = [one for one in drawn.iter() if one.tag.endswith("circle")]
    assert name == "a.svg"
    assert len(circles) == 3


def test_names_on_the_axis_make_bars() -> None:
    page = f"![a](../images/a.svg)\n\n{TABLE.replace('| 8 |', '| kill |')}\n"
    ((_, svg),) = plots.plots(page)
    assert "<circle" not in svg
    assert svg.count("<rect") == 1 + 2 + 3  # background, legend, bars


def test_axes_are_logarithmic_where_values_differ_much() -> None:
    _, ticks = plots.scale([0.5, 200.0])
    assert ticks == [0.1, 1.0, 10.0, 100.0, 1000.0]


def test_linear_axes_include_zero() -> None:
    place, ticks = plots.scale([-4.0, 7.0])
    assert ticks[0] <= -4.0
    assert 0.0 in ticks
    assert ticks[-1] >= 7.0
    assert place(ticks[0]) == 0.0
