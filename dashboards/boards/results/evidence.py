"""Totals of a range from raw counters, and the test that nothing happened.

A chart misses growth during failed scrapes and between the points of a gauge; recording rules lag
by one evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dashboards.boards import queries
from dashboards.boards.charts.series import format_value
from dashboards.boards.panels.declarations import Panel, PanelLine, Unit
from dashboards.boards.queries import SCRAPE_S, Scope, Times, growth, promql
from dashboards.boards.results import targets
from dashboards.boards.results.ranking import PREVIOUS
from dashboards.boards.results.verdicts import Evidence
from dashboards.prometheus.http.client import Asker, QueryResult, Question, Series, Window
from routing.analysis.label_names import get_name

MAX_WINDOWS_READ: Final = 5_000  # windows of all targets read for one total
_MAX_NEWEST_READ: Final = 30_000  # seconds of all targets read for the newest points of a line
_MAX_LATE_S: Final = 300  # s; longest interval of rules whose sums may lack the newest values
_TAIL_S: Final = 900  # s; possible lag of recording rules
_LAG: Final = 3  # the same in intervals of the rule
_MANY: Final = 12  # intervals of a rule in the range of a count
_MAX_PEAK_POINTS: Final = 20_000
_MAX_PEAK_READ: Final = 100_000  # points of all targets read for the peak of a gauge
LONG_TOTAL_S: Final = 3600  # s; totals of longer ranges read recording rules, if they cover them
_MAX_NAMED_SERIES: Final = 6
_TOTAL, _PLAIN, _TAIL, NEWEST = "total_", "plain_", "tail_", "newest_"
_MIDDLES: Final = ("middle_", "late_")
_KINDS: Final = (_TAIL, *reversed(_MIDDLES), _PLAIN, _TOTAL)
_EXPORTED: Final = "exported"
_SUMS: Final[Mapping[str, Unit]] = {
    "per_s": "count",
    "tokens_per_s": "tokens",
    "bytes_per_s": "bytes",
}


def is_counted(line: PanelLine) -> bool:
    """Return whether the line shows counters; otherwise it shows a gauge."""
    text = queries.render_plain(line.query, Scope(), Times(1, 1))
    return any(not call[6] for call in growth.GROWTH_CALL.finditer(text))


@dataclass(frozen=True, slots=True)
class EvidenceScope:
    """Scope in which absence is examined. `end` is the exact end of the range; the last point of a
    coarse chart is earlier. `covered`: intervals (s) of all recording rules that cover it.
    """

    scope: Scope
    times: Times
    end: float
    targets: int
    covered: tuple[int, ...] = ()

    @property
    def length_s(self) -> int:
        return self.times.range_s

    @property
    def recorded(self) -> tuple[int, ...]:
        """Intervals of the recording rules that counts read, the coarsest first, if they are
        needed and end late enough: none that would count much from before the range.
        """
        if not self.times.kept and not _is_expensive(self.targets, self.length_s):
            return ()
        short = [s for s in self.covered if _MANY * s <= self.length_s] or self.covered
        recordings = tuple(sorted(short, reverse=True))
        return recordings if recordings and recordings[-1] <= _MAX_LATE_S else ()

    @property
    def lengths(self) -> dict[str, int]:
        """Seconds before the end that each kind of count reads: recorded values are late by up to
        an interval of their rule, so that the finer rules, and samples, read the last ones.
        """
        if not self.recorded:
            return dict.fromkeys((_TOTAL, _PLAIN), self.length_s)
        spans = (self.length_s, *(_LAG * every_s for every_s in self.recorded))
        kinds = (*(_TOTAL, *_MIDDLES)[: len(self.recorded)], _TAIL)
        return dict(zip(kinds, spans, strict=True))


def plan_ranges(
    numbers: Sequence[Panel], percentiles: Sequence[str], at: EvidenceScope, *, before: bool
) -> dict[str, Question]:
    """Return the questions for values over the whole range, with `before` also over the previous
    range of equal length.
    """
    questions = plan_totals(numbers, at) | plan_percentiles(percentiles, at)
    if before:
        earlier = replace(at, end=at.end - at.length_s)
        previous = plan_totals(numbers, earlier) | plan_percentiles(percentiles, earlier)
        questions |= {PREVIOUS + name: question for name, question in previous.items()}
    return questions


def plan_totals(panels: Iterable[Panel], at: EvidenceScope) -> dict[str, Question]:
    """Return the questions for the totals that big numbers show."""
    lines = (line for panel in panels for line in panel.lines)
    names = [line.query for line in lines if is_counted(line)]
    rules = _choose_rules(at)
    if not rules and _is_expensive(at.targets, at.length_s):
        questions = _plan_estimated(names, at.scope, at.length_s, at.end)
    else:
        questions = _plan_exact(names, at.scope, at.length_s, at.end, rules, at.times.fleet)
    return {_TOTAL + name: question for name, question in questions.items()}


def plan_percentiles(names: Iterable[str], at: EvidenceScope) -> dict[str, Question]:
    """Return the questions for percentiles of the whole range, from its histogram: the mean of a
    chart's points is another number.
    """
    if rules := _choose_rules(at):
        questions = _plan_exact(names, at.scope, at.length_s, at.end, rules, at.times.fleet)
    else:
        questions = _plan_estimated(names, at.scope, at.length_s, at.end)
    return {_TOTAL + name: question for name, question in questions.items()}


def _choose_rules(at: EvidenceScope) -> tuple[int, ...]:
    """Return the intervals of the recording rules that totals read; () for samples."""
    rules = tuple(s for s in at.covered if s <= _MAX_LATE_S)
    if _is_expensive(at.targets, at.length_s):
        return rules
    return (min(rules),) if rules and at.length_s > LONG_TOTAL_S else ()


def plan_current(panels: Iterable[Panel], at: EvidenceScope) -> dict[str, Question]:
    """Return the questions for the current values of gauges shown as big numbers: the last point of
    a long range is minutes old.
    """
    lines = (line for panel in panels for line in panel.lines)
    names = [line.query for line in lines if not is_counted(line)]
    now = int(at.end) // SCRAPE_S * SCRAPE_S
    times = Times(at.times.scrape_s, at.length_s, at.times.scrape_s)
    return {
        NEWEST + name: Question(queries.render_plain(name, at.scope, times), now) for name in names
    }


def ask_recent_totals(
    asker: Asker, scope: Scope, names: Sequence[str], length_s: int
) -> dict[str, QueryResult]:
    return asker.ask(plan_recent_totals(asker, scope, names, length_s, time.time())[0])


def plan_recent_totals(
    asker: Asker,
    scope: Scope,
    names: Sequence[str],
    length_s: int,
    now: float,
    periods: int = 1,
    most: int = MAX_WINDOWS_READ,
) -> list[dict[str, Question]]:
    """Return the questions of consecutive periods of `length_s`, the latest first. `most`: windows
    read for one exact total.
    """
    ends = [now - length_s * number for number in range(periods)]
    if not _is_expensive(targets.count_targets(asker, scope, now), length_s, most):
        return [_plan_exact(names, scope, length_s, end) for end in ends]
    fine = growth.FAMILIES[-1]
    if covered := targets.list_covered(asker, {fine: periods * length_s}, int(now)):
        return [_plan_exact(names, scope, length_s, end, covered) for end in ends]
    return [_plan_estimated(names, scope, length_s, end) for end in ends]


def _is_expensive(targets: int, length_s: int, most: int = MAX_WINDOWS_READ) -> bool:
    return targets * length_s // promql.get_part_s(length_s) > most


def _plan_exact(
    names: Iterable[str],
    scope: Scope,
    length_s: int,
    end: float,
    kept: tuple[int, ...] = (),
    fleet: tuple[int, ...] = (),
    exported: Collection[str] | None = None,
) -> dict[str, Question]:
    end_s = promql.align_end(end, length_s)
    return {
        name: Question(queries.render_total(name, scope, length_s, kept, fleet, exported), end_s)
        for name in names
    }


def _plan_estimated(
    names: Iterable[str], scope: Scope, length_s: int, end: float
) -> dict[str, Question]:
    times, end_s = Times(length_s, length_s), int(end) // SCRAPE_S * SCRAPE_S
    return {name: Question(queries.render_plain(name, scope, times), end_s) for name in names}


def list_totals(
    panel: Panel, answers: Mapping[str, QueryResult], period: str = ""
) -> list[tuple[PanelLine, tuple[Series, ...]]]:
    """Return the values over the range; `period` is PREVIOUS or "" for the current one."""
    nothing = QueryResult()
    return [
        (line, answers.get(period + _TOTAL + line.query, nothing).series) for line in panel.lines
    ]


def plan_newest(
    panels: Sequence[Panel],
    at: EvidenceScope,
    window: Window,
    appeared: growth.Appeared = growth.ANY,
) -> dict[str, Question]:
    """Return the newest points of panels read from recording rules, whose samples end earlier; of
    a large fleet only its gauges: its charts are late by up to one interval of their rules.
    """
    times = at.times
    steps = min(window.points - 1, -(-2 * max(times.kept) // window.step))
    tail = Window(window.end - steps * window.step, window.end, window.step)
    near = Times(times.step_s, max(tail.length_s, times.rate_s), times.scrape_s)
    is_read = at.targets * near.range_s <= _MAX_NEWEST_READ
    has_copies = growth.has_copies(times)
    newest = {}
    for line in (line for panel in panels for line in panel.lines):
        if is_counted(line):
            points = tail if is_read else None
        else:
            points = Window(window.end, window.end, window.step) if has_copies else None
        if points is not None:
            query = growth.render_every(line.query, at.scope, near, appeared)
            newest[NEWEST + line.query] = Question(query, points.end, points)
    return newest


def splice_newest(answers: dict[str, QueryResult], window: Window) -> dict[str, QueryResult]:
    query_results = {
        name: answer for name, answer in answers.items() if not name.startswith(NEWEST)
    }
    for name in answers.keys() - query_results.keys():
        query = name.removeprefix(NEWEST)
        if answers[name].fault is None and query_results[query].fault is None:
            query_results[query] = _join_values(query_results[query], answers[name], window)
    return query_results


def _join_values(long: QueryResult, tail: QueryResult, window: Window) -> QueryResult:
    rows = {series.labels: series.values for series in long.series}
    ends = {series.labels: series.values for series in tail.series}
    size = max((len(values) for values in ends.values()), default=0)
    nothing = (None,) * window.points
    labels = dict.fromkeys((*rows, *ends))
    series = tuple(
        Series(
            label,
            rows.get(label, nothing)[: window.points - size] + ends.get(label, nothing[:size]),
        )
        for label in sorted(labels)
    )
    return replace(long, series=series)


def gather(asker: Asker, panels: Sequence[Panel], at: EvidenceScope) -> dict[str, Evidence]:
    questions: dict[str, Question] = {}
    for panel in panels:
        for line in panel.lines:
            if is_counted(line):
                questions |= _plan_count(line.query, at)
            else:
                questions[_TOTAL + line.query] = _plan_peak(line.query, at)
        if panel.cause is not None:
            questions |= _plan_count(panel.cause.query, at)
    answers = asker.ask(_drop_unexported(asker, questions, at))
    return {panel.id: _make_evidence(panel, answers, at) for panel in panels}


def _drop_unexported(
    asker: Asker, questions: dict[str, Question], at: EvidenceScope
) -> dict[str, Question]:
    """Drop exact counts of counters without a series in the range, such as those of a cache that is
    not in use, and such counters from others: they read every target window by window, and find
    nothing.
    """
    from_samples = _TAIL if at.recorded else _TOTAL
    exact = [name for name in questions if name.startswith(from_samples)]
    plain = {name: _render_plain_count(name.removeprefix(from_samples), at) for name in exact}
    counters = {name: growth.find_counters([text]) for name, text in plain.items()}
    if not any(counters.values()) or (at.recorded and _is_expensive(at.targets, _TAIL_S)):
        return questions
    length_s = at.lengths[from_samples]
    query = promql.names_exported(set().union(*counters.values()), length_s)
    answer = asker.ask({_EXPORTED: Question(query, int(at.end), join="sum")})[_EXPORTED]
    if answer.fault is not None or answer.missing:
        return questions
    labels = {series.label("metric") for series in answer.series}
    absent = {
        name.removeprefix(from_samples)
        for name, counter in counters.items()
        if counter and labels.isdisjoint(metric for metric, _ in counter)
    }
    dropped = {kind + query for kind in (_PLAIN, from_samples) for query in absent}
    remaining = {name: question for name, question in questions.items() if name not in dropped}
    for name in remaining.keys() & {name for name, counter in counters.items() if counter}:
        query = name.removeprefix(from_samples)
        again = _plan_exact([query], at.scope, length_s, at.end, exported=labels)
        remaining[name] = again[query]
    return remaining


def _render_plain_count(query: str, at: EvidenceScope) -> str:
    return queries.render_plain(query, at.scope, Times(at.length_s, at.length_s))


def _plan_count(query: str, at: EvidenceScope) -> dict[str, Question]:
    """Query with `increase`, which bridges long scrape outages, and exactly unless too expensive.
    With recording rules: their value plus the growth since.
    """
    scope, length_s = at.scope, at.length_s
    if not at.recorded:
        questions = {_PLAIN + query: _plan_estimated([query], scope, length_s, at.end)[query]}
        if not _is_expensive(at.targets, length_s):
            questions[_TOTAL + query] = _plan_exact([query], scope, length_s, at.end)[query]
        return questions
    plan = {}
    for place, (kind, span_s) in enumerate(at.lengths.items()):
        if recordings := at.recorded[place:]:
            exact = _plan_exact([query], scope, span_s, at.end, recordings, at.times.fleet)
        else:
            since = _plan_estimated if _is_expensive(at.targets, _TAIL_S) else _plan_exact
            exact = since([query], scope, span_s, at.end)
        plan[kind + query] = exact[query]
    return plan


def _plan_peak(query: str, at: EvidenceScope) -> Question:
    """Of a large fleet at fewer moments than it has samples."""
    most = min(_MAX_PEAK_POINTS, _MAX_PEAK_READ // max(1, at.targets))
    every_s = max(at.times.scrape_s, at.length_s // max(1, most))
    text = growth.render_peaks(query, at.scope, at.times)
    return Question(f"max_over_time(({text})[{at.length_s}s:{every_s}s])", int(at.end))


def _make_evidence(panel: Panel, answers: Mapping[str, QueryResult], at: EvidenceScope) -> Evidence:
    whole: dict[str, str] = {}
    for line in panel.lines:
        for series, length_s in _collect_series(line.query, answers, at):
            if series.latest:
                key = line.name or series.label(line.by)
                named = get_name(line.by, key)
                name = panel.legend[key].label if key in panel.legend else named
                whole[name] = f"{name} {_format_value(panel, series.latest, length_s)}".strip()
    caused = None if panel.cause is None else _read_cause_count(panel.cause.query, answers)
    queried = [line.query for line in panel.lines] + ([panel.cause.query] if panel.cause else [])
    own = (answers.get(kind + query) for query in queried for kind in _KINDS)
    faults = {evidence.fault.detail for evidence in own if evidence and evidence.fault}
    return Evidence(tuple(whole.values())[:_MAX_NAMED_SERIES], caused, " ".join(sorted(faults)))


def _read_cause_count(query: str, answers: Mapping[str, QueryResult]) -> float:
    """Return the exact count if known, else the estimate."""
    counts = (
        series.latest
        for kind in reversed(_KINDS)
        for series in answers.get(kind + query, QueryResult()).series
    )
    return next((count for count in counts if count), 0.0)


def _collect_series(
    query: str, answers: Mapping[str, QueryResult], at: EvidenceScope
) -> Iterator[tuple[Series, int]]:
    """Yield the series with the seconds that they sum."""
    for kind in _KINDS:
        for series in answers.get(kind + query, QueryResult()).series:
            yield series, at.lengths.get(kind, at.length_s)


def _format_value(panel: Panel, value: float, length_s: int) -> str:
    unit = _SUMS.get(panel.unit)
    return format_value(unit, value * length_s) if unit else format_value(panel.unit, value)
