"""Query, judge and render the panels of a board.

"Nothing happened" is stated only after the counters of the whole range were read (evidence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from console.core.local_time import format_clock, get_axis_zone
from dashboards.boards import queries
from dashboards.boards.charts import figure
from dashboards.boards.charts.styled_series import StyledSeries, add_totals, style_series
from dashboards.boards.panels.declarations import Panel, PanelLine, Range, UnpricedPanel
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.queries import Scope, Times
from dashboards.boards.results import comparison, evidence, resolution
from dashboards.boards.results.verdicts import (
    JOBS,
    NO_EVIDENCE,
    VERSION_MARKERS,
    Evidence,
    JobTargets,
    Message,
    PanelFacts,
    Points,
    State,
    judge,
    make_fault_message,
    make_price_message,
)
from dashboards.prometheus.http.client import Asker, QueryResult, Question, Series, Window

Factors = Mapping[str, Mapping[str, float]]

_FACT_PREFIXES = ("targets_", "exported_")
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
class QueryPlan:
    """Queries of a board. `at`: the moment at which targets are counted."""

    panels: Sequence[Panel]
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
    """Return the board as JSON-ready values. `factors`: by name, then by endpoint
    (PanelLine.factor).
    """
    return document(measure(prometheus, panels, scope, chosen, now, factors))


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


def measure(
    prometheus: Asker,
    panels: Sequence[Panel],
    scope: Scope,
    chosen: Range,
    now: float,
    factors: Factors = MappingProxyType({}),
    *,
    compare: bool = False,
) -> BoardResult:
    """Plan the queries, send them and judge the results; `document` renders them. `compare`: also
    query the previous period of equal length.
    """
    plan = _plan(prometheus, panels, scope, chosen, now, compare=compare)
    answers = _ask(prometheus, plan)
    facts, fault = _read_facts(answers, panels), _page_fault(answers)
    shown = _judge(prometheus, plan, answers, facts, fault, factors)
    message = fault or _make_missing_message(answers)
    scraped = _format_scraped(facts, panels)
    return BoardResult(now, chosen, plan.window, message, scraped, shown, compare)


def _plan(
    prometheus: Asker,
    panels: Sequence[Panel],
    scope: Scope,
    chosen: Range,
    now: float,
    *,
    compare: bool,
) -> QueryPlan:
    window = Window.ending(now, chosen.length_s, chosen.step_s)
    at = int(now) // queries.SCRAPE_S * queries.SCRAPE_S
    lines = _PlannedLines(panels, scope, window, 2 if compare else 1)
    times = lines.resolve_times(prometheus, resolution.get_interval_s(prometheus, scope, now))
    appeared = lines.find_appeared(prometheus, times)
    targets = resolution.count_targets(prometheus, scope, now)
    evidence_scope = evidence.EvidenceScope(scope, times, now, targets)
    questions = lines.questions(window, times, appeared)
    questions |= _plan_facts(panels, scope, times, at)
    questions |= evidence.plan_totals(panels, evidence_scope)
    questions |= evidence.plan_newest(panels, scope, times, window)
    if compare:
        earlier = lines.questions(get_previous_window(window), times, appeared)
        questions |= {_PREVIOUS_PREFIX + name: question for name, question in earlier.items()}
    return QueryPlan(panels, window, at, evidence_scope, questions)


def _ask(prometheus: Asker, plan: QueryPlan) -> dict[str, QueryResult]:
    answers = evidence.splice_newest(prometheus.ask(plan.questions), plan.window)
    away = tuple(
        sorted(job for job, seen in _read_jobs(answers, plan.panels).items() if seen.up == 0)
    )
    if away:
        query = queries.availability.last_up(plan.evidence_scope.scope, away)
        answers |= prometheus.ask({"targets_last_up": Question(query, plan.at, join="max")})
    return answers


def _page_fault(answers: Mapping[str, QueryResult]) -> Message | None:
    # Nothing can be judged without these. A single slow panel does not affect the others.
    judging = [answer for name, answer in answers.items() if name.startswith(_FACT_PREFIXES)]
    fault = next((answer.fault for answer in judging if answer.fault), None)
    return make_fault_message(fault) if fault else None


def _judge(
    prometheus: Asker,
    plan: QueryPlan,
    answers: Mapping[str, QueryResult],
    facts: PanelFacts,
    fault: Message | None,
    factors: Factors,
) -> list[PanelResult]:
    def judge_one(panel: Panel, proof: Evidence = NO_EVIDENCE) -> PanelResult:
        return _make_panel_result(panel, answers, facts, plan.window, fault, factors, proof)

    shown = [judge_one(panel) for panel in plan.panels]
    doubtful = [one.panel for one in shown if fault is None and one.state in _ABSENCE_STATES]
    proofs = evidence.gather(prometheus, doubtful, plan.evidence_scope)
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
        texts = (queries.render_plain(name, self.scope, times) for name in self.names)
        wanted = queries.recording_rules.select_families(texts, times)
        length_s = self.periods * times.range_s
        reach_s = {family: length_s + before_s for family, before_s in wanted.items()}
        return replace(times, kept=resolution.list_covered(prometheus, reach_s, self.window.end))

    def find_appeared(self, prometheus: Asker, times: Times) -> frozenset[str] | None:
        """Return the counters of which a series may have appeared; None means any."""
        texts = [queries.render_declared(name, self.scope, times) for name in self.names]
        counters = queries.growth.find_counters(texts)
        if not counters:
            return frozenset()
        length_s = self.periods * times.range_s + times.rate_s
        query = queries.growth.names_appeared(counters, length_s)
        question = Question(query, self.window.end, join="sum")
        answer = prometheus.ask({"appeared": question})["appeared"]
        if answer.fault is not None:
            return None
        return frozenset(series.label("metric") for series in answer.series)

    def questions(
        self, window: Window, times: Times, appeared: frozenset[str] | None
    ) -> dict[str, Question]:
        texts = {
            name: queries.render_for_chart(name, self.scope, times, appeared) for name in self.names
        }
        return {name: Question(text, window.end, window) for name, text in texts.items()}


def _make_missing_message(answers: Mapping[str, QueryResult]) -> Message | None:
    missing = sorted({fault.detail for answer in answers.values() for fault in answer.missing})
    if not missing:
        return None
    fix = "Other sources are shown. See Settings, Metrics sources."
    return Message("warning", "Some metrics sources are unreachable", " ".join(missing), fix)


def _plan_facts(
    panels: Sequence[Panel], scope: Scope, times: Times, at: int
) -> dict[str, Question]:
    asked = {
        name: Question(queries.render_for_chart(name, scope, times), at, join="sum")
        for name in ("targets_known", "targets_up")
    }
    braces = {"vllm": scope.engines(), "router": scope.router(), "l2": "", "": ""}
    for job, within in braces.items():
        metrics = {metric for panel in panels if panel.job == job for metric in panel.metrics}
        if not metrics:
            continue
        metrics |= {EXPORTERS[panel.needs].sign for panel in panels if panel.needs and not job}
        metrics |= {mark for _, mark in VERSION_MARKERS if job == "vllm"}
        query = queries.availability.exported(tuple(sorted(metrics)), within)
        asked[_exported_key(job)] = Question(query, at, join="sum")
    return asked


def get_previous_window(window: Window) -> Window:
    return Window(window.start - window.length_s, window.start, window.step)


def _exported_key(job: str) -> str:
    return f"exported_{job or 'elsewhere'}"


def _read_jobs(
    answers: Mapping[str, QueryResult], panels: Sequence[Panel]
) -> dict[str, JobTargets]:
    known, up, last = (
        {series.label("job"): series.latest for series in answers.get(name, QueryResult()).series}
        for name in ("targets_known", "targets_up", "targets_last_up")
    )
    return {
        job: JobTargets(int(known.get(job) or 0), int(up.get(job) or 0), last.get(job))
        for job in {panel.job for panel in panels if panel.job}
    }


def _read_facts(answers: Mapping[str, QueryResult], panels: Sequence[Panel]) -> PanelFacts:
    jobs = _read_jobs(answers, panels)
    names = {
        series.label("__name__")
        for job in {panel.job for panel in panels}
        for series in answers[_exported_key(job)].series
    }
    return PanelFacts(jobs, frozenset(names))


def _format_scraped(facts: PanelFacts, panels: Sequence[Panel]) -> str:
    """Format targets up and known: "workers 2 of 2, no routers"."""
    found = []
    for job, (_, many) in JOBS.items():
        if any(panel.job == job for panel in panels):
            seen = facts.jobs[job]
            found.append(f"{many} {seen.up} of {seen.known}" if seen.known else f"no {many}")
    return ", ".join(found)


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
    totals = [(line, evidence.get_total(answers, line).series) for line in panel.lines]
    drawn = add_totals(drawn, totals)
    state, message = judge(panel, _summarize_points(drawn, window), facts, fault, proved)
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
