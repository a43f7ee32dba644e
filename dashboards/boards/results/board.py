"""Query, judge and render the panels of a board.

"Nothing happened" is stated only after the counters of the whole range were read (evidence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from console.core.local_time import format_clock, get_axis_zone
from dashboards.boards.charts import figure
from dashboards.boards.charts.series import StyledSeries, add_totals, style_series
from dashboards.boards.panels.declarations import Panel, PanelLine, Range, UnpricedPanel
from dashboards.boards.queries import SCRAPE_S, Scope, Times, growth
from dashboards.boards.results import comparison, evidence, targets
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

_PREVIOUS_PREFIX = "before_"
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
    panels have the previous period, too.
    """

    now: float
    chosen: Range
    window: Window
    fault: Message | None
    scraped: str
    panels: Sequence[PanelResult]
    compare: bool = False


@dataclass(frozen=True, slots=True)
class BoardRequest:
    """What to measure. `now`: exact end of the range in epoch seconds. `factors`: by name, then by
    endpoint (PanelLine.factor). `compare`: also the previous period of equal length.
    """

    prometheus: Asker
    panels: Sequence[Panel]
    scope: Scope
    chosen: Range
    now: float
    factors: Factors = field(default_factory=dict)
    compare: bool = False

    @property
    def window(self) -> Window:
        return Window.ending(self.now, self.chosen.length_s, self.chosen.step_s)

    def fit(self) -> BoardRequest:
        """Return the request with a step that fits the scrape interval and number of targets."""
        fitted = targets.fit_range(self.prometheus, self.scope, self.chosen, self.now)
        return replace(self, chosen=fitted)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Queries of a board. `at`: the moment at which targets are counted."""

    window: Window
    at: int
    evidence_scope: evidence.EvidenceScope
    questions: Mapping[str, Question]


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
        "panels": [_render_panel(shown, found) for shown in found.panels],
    }


def measure(request: BoardRequest) -> BoardResult:
    """Plan the queries, send them and judge the results; `document` renders them."""
    plan = _plan(request)
    answers = request.prometheus.ask(plan.questions)
    if plan.evidence_scope.times.kept:
        answers = evidence.splice_newest(answers, plan.window)
    facts = targets.collect_facts(
        request.prometheus, request.panels, request.scope, plan.at, answers
    )
    fault = make_fault_message(facts.fault) if facts.fault else None
    return BoardResult(
        request.now,
        request.chosen,
        plan.window,
        fault or _make_missing_message(answers),
        facts.scraped,
        _judge(request, plan, answers, facts, fault),
        request.compare,
    )


def _plan(request: BoardRequest) -> QueryPlan:
    prometheus, panels, scope = request.prometheus, request.panels, request.scope
    window = request.window
    at = int(request.now) // SCRAPE_S * SCRAPE_S
    resolution = targets.query_resolution(prometheus, scope, request.now)
    lines = _PlannedLines(panels, scope, window, 2 if request.compare else 1)
    times = lines.resolve_times(prometheus, resolution.every_s)
    appeared = lines.find_appeared(prometheus, times)
    evidence_scope = evidence.EvidenceScope(scope, times, request.now, resolution.targets)
    questions = lines.questions(window, times, appeared)
    questions |= targets.plan_facts(panels, scope, at)
    if numbers := [panel for panel in panels if panel.kind == "numbers"]:
        questions |= evidence.plan_totals(numbers, evidence_scope)
    if times.kept:
        questions |= evidence.plan_newest(panels, scope, times, window)
    if request.compare:
        earlier = lines.questions(get_previous_window(window), times, appeared)
        questions |= {_PREVIOUS_PREFIX + name: question for name, question in earlier.items()}
    return QueryPlan(window, at, evidence_scope, questions)


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

    shown = [judge_one(panel) for panel in request.panels]
    doubtful = [one.panel for one in shown if fault is None and one.state in _ABSENCE_STATES]
    if not doubtful:
        return shown
    proofs = evidence.gather(request.prometheus, doubtful, plan.evidence_scope)
    return [
        judge_one(one.panel, proofs[one.panel.id]) if one.panel.id in proofs else one
        for one in shown
    ]


@dataclass(frozen=True, slots=True)
class _PlannedLines:
    """Lines of a board's panels. `periods`: their number, including the current one."""

    panels: Sequence[Panel]
    scope: Scope
    window: Window
    periods: int

    @property
    def names(self) -> list[str]:
        return [line.query for panel in self.panels for line in panel.lines]

    def resolve_times(self, prometheus: Asker, every_s: int) -> Times:
        """Return the times, with the recording rules that cover all periods."""
        times = Times(self.window.step, self.window.length_s, every_s)
        texts = (growth.render_plain(name, self.scope, times) for name in self.names)
        wanted = growth.select_families(texts, times)
        length_s = self.periods * times.range_s
        reach_s = {family: length_s + before_s for family, before_s in wanted.items()}
        return replace(times, kept=targets.list_covered(prometheus, reach_s, self.window.end))

    def find_appeared(self, prometheus: Asker, times: Times) -> frozenset[str] | None:
        """Return the counters of which a series may have appeared; None means any."""
        texts = [growth.render_declared(name, self.scope, times) for name in self.names]
        counters = growth.find_counters(texts)
        if not counters:
            return frozenset()
        length_s = self.periods * times.range_s + times.rate_s
        query = growth.names_appeared(counters, length_s)
        question = Question(query, self.window.end, join="sum")
        answer = prometheus.ask({"appeared": question})["appeared"]
        if answer.fault is not None:
            return None
        return frozenset(series.label("metric") for series in answer.series)

    def questions(
        self, window: Window, times: Times, appeared: frozenset[str] | None
    ) -> dict[str, Question]:
        texts = {
            name: growth.render_for_chart(name, self.scope, times, appeared) for name in self.names
        }
        return {name: Question(text, window.end, window) for name, text in texts.items()}


def _make_missing_message(answers: Mapping[str, QueryResult]) -> Message | None:
    missing = sorted({fault.detail for answer in answers.values() for fault in answer.missing})
    if not missing:
        return None
    fix = "Other sources are shown. See Settings, Metrics sources."
    return Message("warning", "Some metrics sources are unreachable", " ".join(missing), fix)


def get_previous_window(window: Window) -> Window:
    return Window(window.start - window.length_s, window.start, window.step)


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
    if panel.kind == "numbers":
        totals = [(line, evidence.get_total(answers, line).series) for line in panel.lines]
        drawn = add_totals(drawn, totals)
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
        (line, _apply_factor(line, answers.get(_PREVIOUS_PREFIX + line.query, nothing), factors))
        for line in panel.lines
    ]
    before = style_series(panel, [(line, answer.series) for line, answer in earlier])
    return PanelResult(panel, state, message, drawn, before)


def _render_panel(shown: PanelResult, found: BoardResult) -> dict[str, Any]:
    panel, drawn, window = shown.panel, list(shown.drawn), found.window
    document = {
        "id": panel.id,
        "title": panel.title,
        "about": panel.about,
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
    known = factors.get(line.factor, {})
    found = []
    for series in answer.series:
        factor = known.get(series.label("endpoint_name"))
        if factor is not None:
            values = tuple(None if value is None else value * factor for value in series.values)
            found.append(Series(series.labels, values))
    return QueryResult(tuple(found), answer.fault)


def _without_factors(panel: Panel, plain: UnpricedPanel) -> Panel:
    lines = tuple(replace(line, factor="") for line in panel.lines)
    return replace(
        panel,
        lines=lines,
        title=plain.title,
        about=plain.about,
        unit=plain.unit,
        unpriced=None,
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
    places = [at for item in drawn for at, value in enumerate(item.values) if value is not None]
    last_at = window.start + max(places) * window.step if places else None
    numbers = tuple(number for item in drawn for number in item.numbers)
    return Points(numbers, last_at)
