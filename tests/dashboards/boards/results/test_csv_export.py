"""CSV export of board values."""

from __future__ import annotations

import csv
from dataclasses import replace

from dashboards.boards.charts.figure import StyledSeries
from dashboards.boards.panels.declarations import RANGES, Style
from dashboards.boards.panels.overview import TTFT
from dashboards.boards.results import csv_export
from dashboards.boards.results.board import BoardResult, PanelResult
from dashboards.prometheus.http.client import Window

WINDOW = Window(1_794_999_990, 1_795_000_000, 5)


def line(label: str, *values: float | None) -> StyledSeries:
    return StyledSeries(label, Style(label, "#000"), values)


def found(*shown: PanelResult) -> BoardResult:
    return BoardResult(1_795_000_000, RANGES["15m"], WINDOW, None, "", shown)


def rows(measured: BoardResult) -> list[list[str]]:
    return list(csv.reader(csv_export.format_csv(measured).splitlines()))


ONE = PanelResult(
    TTFT, "ok", None, (line("p50", 0.1, None, 0.30000000000000004), line("p90", 1, 2, 3))
)


def test_csv_of_one_panel_has_a_column_per_series() -> None:
    assert rows(found(ONE)) == [
        ["time", "p50 (seconds)", "p90 (seconds)"],
        ["2026-11-18T11:06:30Z", "0.1", "1"],
        ["2026-11-18T11:06:35Z", "", "2"],
        ["2026-11-18T11:06:40Z", "0.30000000000000004", "3"],
    ]


def test_csv_of_several_panels_has_a_row_per_value() -> None:
    reported = rows(found(ONE, ONE))
    assert reported[0] == ["panel", "line", "unit", "time", "value"]
    assert reported[1] == ["ttft", "p50", "seconds", "2026-11-18T11:06:30Z", "0.1"]
    assert len(reported) == 1 + 2 * 5, "what was not measured has no row"


def test_previous_period_has_its_own_columns() -> None:
    both = replace(ONE, before=(line("p50", 9, 8, 7),))
    reported = rows(found(both))
    assert reported[0][3] == "p50 (previous period) (seconds)"
    assert [row[3] for row in reported[1:]] == ["9", "8", "7"]


def test_names_are_never_formulas() -> None:
    for name in ('=HYPERLINK("http://x")', "+1", "-1", "@SUM(A1)", "\t=1"):
        evil = replace(ONE, drawn=(line(name, 1, 2, 3),))
        assert rows(found(evil))[0][1].startswith("'")
        assert rows(found(evil, ONE))[1][1].startswith("'")


def test_negative_numbers_stay_numbers() -> None:
    assert rows(found(replace(ONE, drawn=(line("p50", -1.5, 0, 1),))))[1][1] == "-1.5"


def test_file_name_describes_the_content() -> None:
    assert csv_export.make_filename(found(ONE), "cache", "") == (
        "fleet-cache-ttft-15m-20261118T1106Z.csv"
    )
    assert csv_export.make_filename(found(ONE, ONE), "overview", "demo").startswith(
        "demo-overview-15m-"
    )
