"""Query, judge and render the panels of a board.

"Nothing happened" is stated only after the counters of the whole range were read (evidence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from console.core.local_time import format_clock, get_axis_zone
from dashboards.boards.charts import figure
from dashboards.boards.charts.series import StyledSeries, add_totals, style_series
from dashboards.boards.panels.declarations import Panel, PanelLine, Range, UnpricedPanel
from dashboards.boards.queries import SCRAPE_S, Scope, Times, growth, promql
from dashboards.boards.results import comparison, evidence, ranking, targets
from dashboards.boards.results.targets import PanelFacts
from dashboards.boards.results.verdicts import (
    NO_EVIDENCE,
    Evidence,
    Message,
    Points,
    State,
    judge,
    make_fault_message,
    make_price_message,
)
from dashboards.prometheus.http.client import Asker, QueryResult, Question, Series, Window

Factors = Mapping[str, Mapping[str, float]]

_EXPORTER_WINDOW_S = 3600  # longest window of a query of the cluster's exporters
_ABSENCE_STATES = ("zero", "quiet", "absent", "needs")


@dataclass(frozen=True, slots=True)
class PanelResult:
    """A panel with its series. `before`: series of the previous period, if requested."""

    panel: Panel
    state: State
    message: Message | None
    drawn: Sequence[StyledSeries]
    before: Sequence[StyledSeries] = ()


@dataclass(frozen=True, slots=True)
class BoardResult:
    """The board's values before rendering. `fault` concerns the whole board; with `compare` the
    panels have the previous period, too. `first_data`: epoch seconds of the earliest values if
    the range begins well before them. `notes`: what a query leaves out, by its name.
    """

    now: float
    chosen: Range
    window: Window
    fault: Message | None
    scraped: str
    panels: Sequence[PanelResult]
    compare: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    first_data: int | None = None


@dataclass(frozen=True, slots=True)
class BoardRequest:
    """What to measure. `now`: exact end of the range in epoch seconds. `factors`: by name, then by
    endpoint (PanelLine.factor). `compare`: also the previous period of equal length. `survey`:
    what `fit` read.
    """

    prometheus: Asker
    panels: Sequence[Panel]
    scope: Scope
    chosen: Range
    now: float
    factors: Factors = field(default_factory=dict)
    compare: bool = False
    survey: targets.RangeSurvey | None = None

    @property
    def window(self) -> Window:
        return Window.ending(self.now, self.chosen.length_s, self.chosen.step_s)

    def fit(self) -> BoardRequest:
        """Return the request with a step that fits the scrape interval and number of targets."""
        survey = _survey(self)
        fitted = targets.fit_range(self.chosen, survey.resolution.targets)
        return replace(self, chosen=fitted, survey=survey)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Queries of a board. `at`: the moment at which targets are counted. `ranked`: label of the
    groups of which a query shows the busiest, by query name.
    """

    window: Window
    at: int
    evidence_scope: evidence.EvidenceScope
    questions: Mapping[str, Question]
    ranked: Mapping[str, str]


def collect(
    prometheus: Asker,
    panels: Sequence[Panel],
    scope: Scope,
    chosen: Range,
    now: float,
    factors: Factors = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the board as JSON-ready values."""
    return document(measure(BoardRequest(prometheus, panels, scope, chosen, now, factors)))


def document(found: BoardResult) -> dict[str, Any]:
    return {
        "at": format_clock(found.now, seconds=True),
        "range": found.chosen.key,
        "window": asdict(found.window),
        "zone": get_axis_zone(found.window.end),
        "fault": asdict(found.fault) if found.fault else None,
        "scraped": found.scraped,
        "first_data": "" if found.first_data is None else format_clock(found.first_data),
        "panels": [_render_panel(panel, found) for panel in found.panels],
    }


def measure(request: BoardRequest) -> BoardResult:
    """Plan the queries, send them and judge the results; `document` renders them."""
    plan = _plan(request)
    answers = request.prometheus.ask(plan.questions)
    if any(name.startswith(evidence.NEWEST) for name in answers):
        answers = evidence.splice_newest(answers, plan.window)
    notes: dict[str, str] = {}
    if plan.ranked:
        answers, notes = ranking.keep_busiest(answers, plan.ranked)
    target_facts = targets.collect_facts(
        request.prometheus, request.panels, request.scope, plan.at, answers
    )
    fault = make_fault_message(target_facts.fault) if target_facts.fault else None
    return BoardResult(
        request.now,
        request.chosen,
        plan.window,
        fault or _make_missing_message(answers),
        target_facts.scraped,
        _judge(request, plan, answers, target_facts, fault),
        request.compare,
        notes,
        _find_first_data([answers[name] for name in _list_names(request)], plan.window),
    )


def _find_first_data(answers: Sequence[QueryResult], window: Window) -> int | None:
    """Return the time of the earliest value; None if there is none, or if it is in the first
    twentieth of the window.
    """
    rows = [series.values for answer in answers for series in answer.series]
    columns = enumerate(zip_longest(*rows))
    first = next((n for n, column in columns if any(v is not None for v in column)), 0)
    return window.start + first * window.step if first > window.points // 20 else None


def _survey(request: BoardRequest) -> targets.RangeSurvey:
    """Read what the step and the queries depend on, for the longest step it may have."""
    chosen, periods = request.chosen, 2 if request.compare else 1
    step_s, length_s = targets.get_longest_step_s(chosen), periods * chosen.length_s
    reach_s: dict[growth.Family, int] = {}
    for each_s in (chosen.step_s, step_s):
        times = Times(each_s, chosen.length_s)
        texts = (growth.render_plain(name, request.scope, times) for name in _list_names(request))
        for family, back_s in growth.select_families(texts, times).items():
            reach_s[family] = max(reach_s.get(family, 0), length_s + max(step_s, back_s))
    if any(map(_has_total, request.panels)):
        totals = growth.COPIES
        if chosen.length_s > evidence.LONG_TOTAL_S and totals not in reach_s:
            reach_s[totals] = length_s
    longest_s = length_s + max(step_s, times.rate_s)
    return targets.survey_range(request.prometheus, request.scope, request.now, longest_s, reach_s)


def _has_total(panel: Panel) -> bool:
    """Return whether a value over the whole range is shown beside the points."""
    return panel.kind == "numbers" or any(_is_percentile(line.query) for line in panel.lines)


def _is_percentile(query: str) -> bool:
    return growth.render_plain(query, Scope(), Times(1, 1)).startswith("histogram_quantile(")


def _list_names(request: BoardRequest) -> list[str]:
    return [line.query for panel in request.panels for line in panel.lines]


def _plan(request: BoardRequest) -> QueryPlan:
    panels, window = request.panels, request.window
    end = int(request.now) // SCRAPE_S * SCRAPE_S
    survey = request.survey or _survey(request)
    scope = replace(request.scope, pods=survey.pods)
    lines = _PlannedLines(_list_names(request), scope, window, 2 if request.compare else 1)
    times = lines.resolve_times(survey)
    appeared = lines.find_appeared(request.prometheus, times, survey.added)
    evidence_scope = evidence.EvidenceScope(
        scope, times, request.now, survey.resolution.targets, survey.covered
    )
    questions = lines.questions(window, times, appeared)
    rankings = lines.rankings(times)
    questions |= {ranking.RANKING + name: query for name, (_, query) in rankings.items()}
    questions |= targets.plan_facts(panels, scope, end)
    # Read by the annotations right after: the client remembers the answer.
    questions["alerts"] = targets.plan_alerts(request.scope, window)
    numbers = [panel for panel in panels if panel.kind == "numbers"]
    percentiles = [name for name in lines.names if _is_percentile(name)]
    if numbers or percentiles:
        questions |= evidence.plan_ranges(
            numbers, percentiles, evidence_scope, before=request.compare
        )
    if times.kept:
        questions |= evidence.plan_newest(panels, evidence_scope, window, appeared)
    if numbers and window.step > SCRAPE_S:
        questions |= evidence.plan_current(numbers, evidence_scope)
    if request.compare:
        earlier = lines.questions(window.previous, times, appeared)
        questions |= {ranking.PREVIOUS + name: question for name, question in earlier.items()}
    ranked = {name: label for name, (label, _) in rankings.items()}
    return QueryPlan(window, end, evidence_scope, questions, ranked)


def _judge(
    request: BoardRequest,
    plan: QueryPlan,
    answers: Mapping[str, QueryResult],
    facts: PanelFacts,
    fault: Message | None,
) -> list[PanelResult]:
    def judge_one(panel: Panel, proof: Evidence = NO_EVIDENCE) -> PanelResult:
        factors = request.factors
        return _make_panel_result(panel, answers, facts, plan.window, fault, factors, proof)

    results = [judge_one(panel) for panel in request.panels]
    doubtful = [
        result.panel for result in results if fault is None and result.state in _ABSENCE_STATES
    ]
    if not doubtful:
        return results
    proofs = evidence.gather(request.prometheus, doubtful, plan.evidence_scope)
    return [
        judge_one(result.panel, proofs[result.panel.id]) if result.panel.id in proofs else result
        for result in results
    ]


@dataclass(frozen=True, slots=True)
class _PlannedLines:
    """Queries of a board's lines. `periods`: their number, including the current one."""

    names: Sequence[str]
    scope: Scope
    window: Window
    periods: int

    def resolve_times(self, survey: targets.RangeSurvey) -> Times:
        """Return the times, with the recording rules that cover all periods."""
        times = Times(self.window.step, self.window.length_s, survey.resolution.every_s)
        texts = (growth.render_plain(name, self.scope, times) for name in self.names)
        families = growth.select_families(texts, times, survey.covered)
        intervals = {family.every_s for family in families}
        times = replace(times, fleet=survey.fleet)
        if growth.COPIES.every_s in survey.covered and growth.wants_copies(times):
            intervals.add(growth.COPIES.every_s)
        every = (family.every_s for family in growth.FAMILIES)
        return replace(times, kept=tuple(every_s for every_s in every if every_s in intervals))

    def find_appeared(
        self, prometheus: Asker, times: Times, added: tuple[str, ...] | None
    ) -> growth.Appeared:
        """Return where a series may have appeared; of many instances, and of the cluster's
        exporters, by counter.
        """
        texts = [growth.render_declared(name, self.scope, times) for name in self.names]
        counters = growth.find_counters(texts)
        window_s = times.rate_s
        if added is not None:
            counters = growth.select_exporters(counters)
            window_s = max(window_s, _EXPORTER_WINDOW_S)
        names: frozenset[str] | None = frozenset()
        if counters:
            length_s = self.periods * times.range_s + window_s
            query = promql.names_appeared(counters, length_s)
            question = Question(query, self.window.end, join="sum")
            answer = prometheus.ask({"appeared": question})["appeared"]
            labels = frozenset(series.label("metric") for series in answer.series)
            names = None if answer.fault is not None else labels
        if added is None:
            return growth.Appeared(names)
        return growth.Appeared(instances=added, exporters=names)

    def questions(
        self, window: Window, times: Times, appeared: growth.Appeared
    ) -> dict[str, Question]:
        return {
            name: Question(
                growth.render_every(name, self.scope, times, appeared), window.end, window
            )
            for name in self.names
        }

    def rankings(self, times: Times) -> dict[str, tuple[str, Question]]:
        """Return label and values, by name, of the groups of which the busiest are shown."""
        rankings = {}
        for name in self.names:
            label, query = growth.render_ranking(name, self.scope, times)
            if label:
                rankings[name] = (label, Question(query, self.window.end))
        return rankings


def _make_missing_message(answers: Mapping[str, QueryResult]) -> Message | None:
    missing = sorted({fault.detail for answer in answers.values() for fault in answer.missing})
    if not missing:
        return None
    fix = "Other sources are shown. See Settings, Metrics sources."
    return Message("warning", "Some metrics sources are unreachable", " ".join(missing), fix)


def _make_panel_result(
    panel: Panel,
    answers: Mapping[str, QueryResult],
    facts: PanelFacts,
    window: Window,
    page_message: Message | None,
    factors: Factors,
    proved: Evidence = NO_EVIDENCE,
) -> PanelResult:
    own = [(line, _apply_factor(line, answers[line.query], factors)) for line in panel.lines]
    fault = next((answer.fault for _, answer in own if answer.fault), None)
    drawn = style_series(panel, [(line, answer.series) for line, answer in own])
    if _has_total(panel):
        drawn = add_totals(drawn, evidence.list_totals(panel, answers))
    points = _summarize_points(drawn, window)
    state: State = "ok"
    message = None
    if fault is not None or not facts.suffice(panel, points.numbers):
        state, message = judge(panel, points, facts, fault, proved)
    missing = _find_missing_price(panel, answers, factors)
    none_priced = any(line.factor and not factors.get(line.factor) for line in panel.lines)
    if panel.unpriced is not None and not drawn and (missing is not None or none_priced):
        plain = _without_factors(panel, panel.unpriced)
        return _make_panel_result(plain, answers, facts, window, page_message, factors, proved)
    if missing is not None and state in ("ok", "zero", "quiet"):
        state, message = ("ok" if drawn else "unpriced"), missing
    if page_message is not None:  # the facts are unknown: report only that
        state, message = "prometheus", page_message
    nothing = QueryResult()
    earlier = [
        (line, _apply_factor(line, answers.get(ranking.PREVIOUS + line.query, nothing), factors))
        for line in panel.lines
    ]
    before = style_series(panel, [(line, answer.series) for line, answer in earlier])
    if before and _has_total(panel):
        before = add_totals(before, evidence.list_totals(panel, answers, ranking.PREVIOUS))
    return PanelResult(panel, state, message, drawn, before)


def _render_panel(shown: PanelResult, found: BoardResult) -> dict[str, Any]:
    panel, drawn, window = shown.panel, list(shown.drawn), found.window
    document = {
        "id": panel.id,
        "title": panel.title,
        "about": ranking.describe(panel, found.notes) if found.notes else panel.about,
        "state": shown.state,
        "message": asdict(shown.message) if shown.message else None,
        "figure": figure.figure(panel, drawn, window),
        "table": figure.table(panel, drawn),
        "spoken": figure.make_text_alternative(panel, drawn),
    }
    if found.compare:
        return comparison.add_previous_period(document, panel, drawn, shown.before, window)
    return document


def _apply_factor(line: PanelLine, answer: QueryResult, factors: Factors) -> QueryResult:
    """Multiply values by the line's factor; omit series of endpoints without one."""
    if not line.factor:
        return answer
    known_factors = factors.get(line.factor, {})
    priced = []
    for series in answer.series:
        factor = known_factors.get(series.label("endpoint_name"))
        if factor is not None:
            values = tuple(None if value is None else value * factor for value in series.values)
            priced.append(Series(series.labels, values))
    return QueryResult(tuple(priced), answer.fault)


def _without_factors(panel: Panel, plain: UnpricedPanel) -> Panel:
    lines = tuple(replace(line, factor="") for line in panel.lines)
    return replace(
        panel, lines=lines, title=plain.title, about=plain.about, unit=plain.unit, unpriced=None
    )


def _find_missing_price(
    panel: Panel, answers: Mapping[str, QueryResult], factors: Factors
) -> Message | None:
    for line in panel.lines:
        if line.factor:
            named = {series.label("endpoint_name") for series in answers[line.query].series}
            missing = named.difference(factors.get(line.factor, {}))
            if missing:
                return make_price_message(line.factor, missing)
    return None


def _summarize_points(drawn: Sequence[StyledSeries], window: Window) -> Points:
    places = [i for item in drawn for i, value in enumerate(item.values) if value is not None]
    last_at = window.start + max(places) * window.step if places else None
    numbers = tuple(number for item in drawn for number in item.numbers)
    return Points(numbers, last_at)
