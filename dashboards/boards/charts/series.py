"""Series with names and styles, the input of every chart kind. Equal names get equal styles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dashboards.boards.panels.declarations import Panel, PanelLine, Style
from dashboards.boards.panels.styles import BLUE, DASHES, GREEN, ORANGE, PURPLE, SKY
from dashboards.prometheus.http.client import Series
from routing.analysis.label_names import get_name

MAX_LINES = 40
Values = tuple[float | None, ...]
Named = list[tuple[str, Values]]

# For names without a declared style; red and grey keep their meaning.
CYCLE = (SKY, PURPLE, BLUE, ORANGE, GREEN)
_HATCHES = ("", "/", "x", "-", "|", "+", "\\", ".")


@dataclass(frozen=True, slots=True)
class StyledSeries:
    """A series with name and style. `key` is the name in the data. `total`: the value over the
    whole range, if the series is a counter and a total was requested.
    """

    key: str
    style: Style
    values: Values
    total: float | None = None

    @property
    def numbers(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def mean(self) -> float:
        numbers = self.numbers
        return sum(numbers) / len(numbers) if numbers else -math.inf


def style_series(
    panel: Panel, found: list[tuple[PanelLine, tuple[Series, ...]]]
) -> list[StyledSeries]:
    rows = [(_key(line, one), line, one) for line, answer in found for one in answer]
    if panel.kind == "heatmap":
        return _split_buckets([(key, one.values) for key, _, one in rows])
    known = list(panel.legend)
    rows.sort(key=lambda row: (known.index(row[0]) if row[0] in known else len(known), row[0]))
    turn = 0
    drawn = []
    for key, line, one in rows:
        style = panel.legend.get(key)
        if style is None:
            style, turn = _assign_styles(_make_label(line, one), turn), turn + 1
        drawn.append(StyledSeries(key, style, one.values))
    return _limit_lines(drawn)


def add_totals(
    drawn: Sequence[StyledSeries], found: Sequence[tuple[PanelLine, tuple[Series, ...]]]
) -> list[StyledSeries]:
    totals = {_key(line, one): one.latest for line, answer in found for one in answer}
    return [replace(item, total=totals.get(item.key)) for item in drawn]


def _key(line: PanelLine, series: Series) -> str:
    """Return the name in the data."""
    return _append_source(line.name or series.label(line.by) or "(no name)", series)


def _make_label(line: PanelLine, series: Series) -> str:
    """Return the display name."""
    value = series.label(line.by)
    named = get_name(line.by, value) if value else line.name or "(no name)"
    return _append_source(named, series)


def _append_source(name: str, series: Series) -> str:
    """Append the source if several sources have a series of that name."""
    source = series.label("metrics_source")
    return f"{name} ({source})" if source else name


def _limit_lines(drawn: list[StyledSeries]) -> list[StyledSeries]:
    """Keep the largest series, and add one without values that states how many were omitted."""
    left = len(drawn) - MAX_LINES
    if left <= 0:
        return drawn
    kept = {id(item) for item in sorted(drawn, key=lambda item: -item.mean)[:MAX_LINES]}
    more = Style(f"{left} smaller series not shown", SKY)
    return [*(item for item in drawn if id(item) in kept), StyledSeries("", more, ())]


def _assign_styles(label: str, turn: int) -> Style:
    colour = CYCLE[turn % len(CYCLE)]
    # The dash changes with each line, and its offset with each round of colours.
    dash = DASHES[(turn % len(CYCLE) + turn // len(CYCLE)) % len(DASHES)]
    return Style(label, colour, dash, _HATCHES[turn % len(_HATCHES)])


def _split_buckets(named: Named) -> list[StyledSeries]:
    """Convert cumulative histogram buckets to separate ones, lowest first."""
    edges = sorted((edge, values) for key, values in named if (edge := _edge(key)) is not None)
    drawn = []
    for place, (edge, values) in enumerate(edges):
        below = edges[place - 1] if place else None
        own = values if below is None else _subtract(values, below[1])
        label = _between(below[0] if below else None, edge)
        drawn.append(StyledSeries(label, Style(label, SKY), own))
    return drawn


def _edge(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _subtract(values: Values, below: Values) -> Values:
    """Subtract, with a minimum of 0: the buckets may come from different scrapes."""
    return tuple(
        None if upper is None or lower is None else max(0.0, upper - lower)
        for upper, lower in zip(values, below, strict=True)
    )


def _between(below: float | None, edge: float) -> str:
    if math.isinf(edge):
        return f"over {_whole(below or 0)}"
    return f"up to {_whole(edge)}" if below is None else f"{_whole(below)} to {_whole(edge)}"


def _whole(edge: float) -> str:
    return f"{edge:,.0f}" if edge == int(edge) else f"{edge:g}"


def keep_with_values(drawn: Sequence[StyledSeries]) -> list[StyledSeries]:
    return [item for item in drawn if item.numbers]


def rounded(values: Values) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]
