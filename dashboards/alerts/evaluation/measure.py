"""Measure of a rule: its queries, and a chart with the threshold.

The chart has a text alternative and at most `MOST_LINES` series. A threshold that is not a single
number is reported as not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dashboards.alerts.rules.comparison import parse_comparison, parse_number
from dashboards.alerts.rules.parameter import format_value
from dashboards.alerts.rules.rule import EndpointSelection, Rule, Setting
from dashboards.boards.charts.inline_chart import Chart, Values, make_line_chart
from dashboards.prometheus.http.client import QueryResult, Question, Series, Window

MOST_LINES = 6  # more lines cannot be distinguished
VALUE: Final = "value"
_ASKED = 2 * MOST_LINES  # at each point: the ranking changes over time
_THRESHOLD = "Threshold"
_OWN = ("__name__", "alertname", "alertstate", "severity", "job", "instance", "endpoint_name")


@dataclass(frozen=True, slots=True)
class MeasureChart:
    """Chart of a rule's measure. `left`: number of series not drawn, of the lowest values if
    `falls`. `undrawn`: there is a threshold, but not as a single number.
    """

    chart: Chart | None = None
    left: int = 0
    falls: bool = False
    undrawn: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """Measured value of a rule. `thresholds`: numbers, or PromQL that may evaluate to one. `falls`:
    low values are bad. `heavy`: user-written and possibly expensive.
    """

    value: str
    thresholds: tuple[float | str, ...] = ()
    unit: str = ""
    falls: bool = False
    heavy: bool = False

    def questions(self, window: Window) -> dict[str, Question]:
        questions = {VALUE: self.value}
        for place, threshold in enumerate(self.thresholds):
            if isinstance(threshold, str):
                questions[f"threshold{place}"] = threshold
        return {
            key: Question(text, window.end, window, heavy=self.heavy)
            for key, text in questions.items()
        }

    def drawn(self, answers: Mapping[str, QueryResult], window: Window) -> MeasureChart:
        lines = answers[VALUE].series
        levels: list[Values] = []
        for place, threshold in enumerate(self.thresholds):
            if not isinstance(threshold, str):
                levels.append((threshold,) * window.points)
            elif len(series := answers[f"threshold{place}"].series) == 1:
                levels.append(series[0].values)
        left = max(0, len(lines) - MOST_LINES)
        undrawn = len(levels) < len(self.thresholds)
        return MeasureChart(self._chart(lines, levels, window), left, self.falls, undrawn)

    def _chart(
        self, lines: Sequence[Series], levels: Sequence[Values], window: Window
    ) -> Chart | None:
        """Draw the most relevant series, ranked by their latest value."""

        def format_measured(value: float | None) -> str:
            return "–" if value is None else format_value(self.unit, value)

        sign = 1 if self.falls else -1
        ranked = sorted(
            (line for line in lines if line.latest is not None),
            key=lambda one: sign * (one.latest or 0.0),
        )
        if not ranked:
            return None
        curves = [
            (series_label(line), f"n{n}", line.values) for n, line in enumerate(ranked[:MOST_LINES])
        ]
        curves += [(_THRESHOLD, "threshold", tuple(level)) for level in levels]
        marks = [_clock(window, part / 4) for part in range(5)]
        return make_line_chart("measured", "Measured value", curves, marks, format_measured)


def built_in_measure(rule: Rule, setting: Setting, only: EndpointSelection) -> Measure:
    threshold = setting.values.get("threshold")
    levels = () if threshold is None else (threshold,)
    falls = rule.condition.startswith("<measured> <")
    return Measure(rule.value(setting, only), levels, rule.unit, falls)


def user_rule_measure(condition: str) -> Measure:
    """Return the measure of a user-written rule, limited to the top series."""
    comparison = parse_comparison(condition)
    levels = [(threshold, parse_number(threshold)) for threshold in comparison.thresholds]
    most = f"{'bottomk' if comparison.falls else 'topk'}({_ASKED}, {comparison.value})"
    thresholds = tuple(text if number is None else number for text, number in levels)
    return Measure(most, thresholds, falls=comparison.falls, heavy=True)


def _clock(window: Window, share: float) -> str:
    moment = datetime.fromtimestamp(window.start + share * window.length_s, UTC)
    return moment.strftime("%b %-d" if window.length_s > 2 * 86_400 else "%H:%M")


def series_label(series: Series) -> str:
    """Return a short text of the labels that identify the series."""
    pairs = [(key, value) for key, value in series.labels if key not in _OWN and value]
    whose = series.label("endpoint") or series.label("endpoint_name")
    words = [value for key, value in pairs if key not in ("endpoint", "namespace")]
    return ", ".join([*([whose] if whose else []), *words]) or "all"
