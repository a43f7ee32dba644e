"""One dashboard's answer: asks Prometheus everything at once, judges each panel, draws it.

Promises that a panel without data says why: nothing happened, not scraped, not exported by this
version, or Prometheus itself; each with what to do. Must not know requests or templates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

from dashboards import charts, queries
from dashboards.panels import Line, Panel, Range
from dashboards.prom import Answer, Asker, Fault, FaultKind, Question, Series, Window
from dashboards.queries import Scope, Times

State = Literal[
    "ok", "zero", "stale", "not_scraped", "absent", "bad_query", "too_slow", "prometheus"
]

Factors = Mapping[str, Mapping[str, float]]

_FACTS = ("targets_", "exported_")
_BEFORE = "before_"  # before the name of a query: asked of the period before
# job -> what its targets are called: one, many
_JOBS = {
    "vllm": ("worker", "workers"),
    "router": ("router", "routers"),
    "l2": ("cache node", "cache nodes"),
}


@dataclass(frozen=True, slots=True)
class Message:
    """`fix` is what the reader can do about it."""

    level: Literal["info", "warning", "danger"]
    title: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class Scraped:
    """What Prometheus knows of one job. `last_up` is epoch seconds within the last day."""

    known: int = 0
    up: int = 0
    last_up: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a verdict rests on, beside the panel's own series."""

    jobs: Mapping[str, Scraped]
    exported: frozenset[str]


@dataclass(frozen=True, slots=True)
class Shown:
    """A panel with its numbers. `before`: those of the period before, where it was asked for."""

    panel: Panel
    state: State
    message: Message | None
    drawn: Sequence[charts.Drawn]
    before: Sequence[charts.Drawn] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What a board has to show, before it is drawn, tabled or written. `fault`: of all of it."""

    now: float
    chosen: Range
    window: Window
    fault: Message | None
    scraped: str
    panels: Sequence[Shown]


def collect(
    prometheus: Asker,
    panels: Sequence[Panel],
    scope: Scope,
    chosen: Range,
    now: float,
    factors: Factors = MappingProxyType({}),
) -> dict[str, Any]:
    """The whole page as JSON-ready values. `factors`: by name, then by endpoint (Line.factor)."""
    return document(measure(prometheus, panels, scope, chosen, now, factors))


def document(found: Measured) -> dict[str, Any]:
    return {
        "at": _clock(found.now, seconds=True),
        "range": found.chosen.key,
        "fault": asdict(found.fault) if found.fault else None,
        "scraped": found.scraped,
        "panels": [_document(shown, found.window) for shown in found.panels],
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
) -> Measured:
    """Everything is asked at once; `compare`: also of the period before, as long as this one."""
    window = Window.ending(now, chosen.length_s, chosen.step_s)
    at = int(now) // queries.SCRAPE_S * queries.SCRAPE_S
    times = Times(window.step, window.length_s)
    asked = _questions(panels, scope, times, window, at)
    if compare:
        asked |= _questions_before(panels, scope, times, _before(window))
    answers = prometheus.ask(asked)
    away = tuple(sorted(job for job, seen in _jobs(answers, panels).items() if seen.up == 0))
    if away:
        query = queries.last_up(scope, away)
        answers |= prometheus.ask({"targets_last_up": Question(query, at, join="max")})
    # Without these nothing can be judged; a single slow panel is no reason to blame them all.
    judging = [answer for name, answer in answers.items() if name.startswith(_FACTS)]
    fault = next((answer.fault for answer in judging if answer.fault), None)
    facts = _facts(answers, panels)
    message = fault_message(fault) if fault else None
    shown = [_shown(panel, answers, facts, window, message, factors) for panel in panels]
    scraped = _scraped_words(facts, panels)
    told = message or _missing_message(answers)
    return Measured(now, chosen, window, told, scraped, shown)


@dataclass(frozen=True, slots=True)
class Points:
    """All numbers of a panel, and when the newest was measured (epoch seconds)."""

    numbers: tuple[float, ...] = ()
    last_at: int | None = None


def judge(
    panel: Panel, points: Points, facts: Facts, fault: Fault | None
) -> tuple[State, Message | None]:
    """Why the panel shows what it shows."""
    numbers = points.numbers
    if fault is not None:
        states: dict[FaultKind, State] = {
            FaultKind.BAD_QUERY: "bad_query",
            FaultKind.TOO_SLOW: "too_slow",
        }
        return states.get(fault.kind, "prometheus"), fault_message(fault)
    job = facts.jobs.get(panel.job, Scraped())
    if job.up == 0:
        message = _not_scraped(panel, job, points.last_at or job.last_up)
        return ("stale" if numbers else "not_scraped"), message
    if not facts.exported.intersection(panel.metrics):
        return "absent", _absent(panel, job)
    if not any(numbers) and not (numbers and panel.unit == "seconds"):
        return "zero", Message("info", "Nothing happened", "Scraped, and all is zero.", panel.empty)
    return "ok", None


def fault_message(fault: Fault) -> Message:
    if fault.kind is FaultKind.NOT_CONFIGURED:
        fix = "Set PROMETHEUS_URL to its address and restart, or use `make up`, which starts one."
        return Message("warning", "No Prometheus", fault.detail, fix)
    if fault.kind is FaultKind.BAD_QUERY:
        fix = "Emberline asks for Prometheus 2.42 or newer. With that, this is our bug: report it."
        return Message("danger", "Prometheus refused the question", fault.detail, fix)
    if fault.kind is FaultKind.TOO_SLOW:
        fix = "Choose a shorter range, or give Prometheus more processor time."
        return Message("warning", "Too much to add up in time", fault.detail, fix)
    if fault.kind is FaultKind.REFUSED:
        fix = "Give this console a token, password or certificate it takes: Settings, Metrics."
        return Message("danger", "Prometheus does not let us in", fault.detail, fix)
    if fault.kind is FaultKind.NOT_PROMETHEUS:
        fix = "Correct PROMETHEUS_URL: the address, and the path if it is behind a proxy."
        return Message("danger", "Not a Prometheus", fault.detail, fix)
    fix = (
        "Routers and workers go on without it. Start it again (its log is var/log/prometheus.log), "
        "or correct PROMETHEUS_URL."
    )
    return Message("danger", "Prometheus does not answer", fault.detail, fix)


def _missing_message(answers: Mapping[str, Answer]) -> Message | None:
    """Of several sources some are away: what is shown is true of the others only."""
    missing = sorted({fault.detail for answer in answers.values() for fault in answer.missing})
    if not missing:
        return None
    fix = "What is shown here is of the other sources. Metrics sources says more of each."
    return Message("warning", "Some endpoints' numbers are missing", " ".join(missing), fix)


def _not_scraped(panel: Panel, job: Scraped, last: float | None) -> Message:
    one, many = _JOBS[panel.job]
    since = f" since {_clock(last)}" if last is not None else ""
    title = f"No data{since}"
    if job.known == 0:
        fix = (
            f"It learns of {many} from this console, at /prometheus/targets, seconds after their "
            "start. If they run, its configuration lacks that address or the token."
        )
        if panel.job == "l2":
            fix = f"A tier starts with the first endpoint that turns L2 on. {fix}"
        return Message("warning", title, f"Prometheus scrapes no {one} here.", fix)
    away = f"the {one}" if job.known == 1 else f"any of {job.known} {many}"
    fix = f"See on the endpoint's page whether the {one} runs, and its log."
    if panel.job == "l2":
        fix = "See on the Cache page whether the node runs, and its log."
    return Message("warning", title, f"Prometheus cannot reach {away}.", fix)


def _absent(panel: Panel, job: Scraped) -> Message:
    one, many = _JOBS[panel.job]
    who = f"The {one} is" if job.known == 1 else f"The {many} are"
    verb = "does" if job.known == 1 else "do"
    text = f"{who} scraped but {verb} not export {panel.metric}."
    fix = f"It exists since {panel.since}: update what runs, or read the other panels."
    return Message("warning", "Not in this version", text, fix)


def _questions(
    panels: Sequence[Panel], scope: Scope, times: Times, window: Window, at: int
) -> dict[str, Question]:
    """The panels' over the window; what is scraped at this moment, however coarse the window."""
    asked = {
        line.query: Question(queries.render(line.query, scope, times), window.end, window)
        for panel in panels
        for line in panel.lines
    }
    for name in ("targets_known", "targets_up"):
        asked[name] = Question(queries.render(name, scope, times), at, join="sum")
    for job, braces in (("vllm", scope.engines()), ("router", scope.router()), ("l2", "")):
        metrics = tuple(sorted({m for panel in panels if panel.job == job for m in panel.metrics}))
        if metrics:
            query = queries.exported(metrics, braces)
            asked[_exported(job)] = Question(query, at, join="sum")
    return asked


def _questions_before(
    panels: Sequence[Panel], scope: Scope, times: Times, window: Window
) -> dict[str, Question]:
    return {
        _BEFORE + line.query: Question(queries.render(line.query, scope, times), window.end, window)
        for panel in panels
        for line in panel.lines
    }


def _before(window: Window) -> Window:
    """The period as long as this one which ends where it begins."""
    return Window(window.start - window.length_s, window.start, window.step)


def _exported(job: str) -> str:
    return f"exported_{job}"


def _jobs(answers: Mapping[str, Answer], panels: Sequence[Panel]) -> dict[str, Scraped]:
    known, up, last = (
        {series.label("job"): series.latest for series in answers.get(name, Answer()).series}
        for name in ("targets_known", "targets_up", "targets_last_up")
    )
    return {
        job: Scraped(int(known.get(job) or 0), int(up.get(job) or 0), last.get(job))
        for job in {panel.job for panel in panels}
    }


def _facts(answers: Mapping[str, Answer], panels: Sequence[Panel]) -> Facts:
    jobs = _jobs(answers, panels)
    names = {series.label("__name__") for job in jobs for series in answers[_exported(job)].series}
    return Facts(jobs, frozenset(names))


def _scraped_words(facts: Facts, panels: Sequence[Panel]) -> str:
    """ "workers 2 of 2, no routers": how many answer of those Prometheus knows."""
    found = []
    for job, (_, many) in _JOBS.items():
        if any(panel.job == job for panel in panels):
            seen = facts.jobs[job]
            found.append(f"{many} {seen.up} of {seen.known}" if seen.known else f"no {many}")
    return ", ".join(found)


def _shown(
    panel: Panel,
    answers: Mapping[str, Answer],
    facts: Facts,
    window: Window,
    page_message: Message | None,
    factors: Factors,
) -> Shown:
    own = [(line, _priced(line, answers[line.query], factors)) for line in panel.lines]
    fault = next((answer.fault for _, answer in own if answer.fault), None)
    drawn = charts.dressed(panel, [(line, answer.series) for line, answer in own])
    state, message = judge(panel, _points(drawn, window), facts, fault)
    if page_message is not None:  # what the facts say is not known either: say only that
        state, message = "prometheus", page_message
    earlier = [
        (line, _priced(line, answers.get(_BEFORE + line.query, Answer()), factors).series)
        for line in panel.lines
    ]
    return Shown(panel, state, message, drawn, charts.dressed(panel, earlier))


def _document(shown: Shown, window: Window) -> dict[str, Any]:
    panel, drawn = shown.panel, list(shown.drawn)
    return {
        "id": panel.id,
        "state": shown.state,
        "message": asdict(shown.message) if shown.message else None,
        "figure": charts.figure(panel, drawn, window),
        "table": charts.table(panel, drawn),
        "spoken": charts.spoken(panel, drawn),
    }


def _priced(line: Line, answer: Answer, factors: Factors) -> Answer:
    """The values times the line's factor; a series whose endpoint has none is left out."""
    if not line.factor:
        return answer
    known = factors.get(line.factor, {})
    found = []
    for series in answer.series:
        factor = known.get(series.label("endpoint_name"))
        if factor is not None:
            values = tuple(None if value is None else value * factor for value in series.values)
            found.append(Series(series.labels, values))
    return Answer(tuple(found), answer.fault)


def _points(drawn: Sequence[charts.Drawn], window: Window) -> Points:
    places = [at for item in drawn for at, value in enumerate(item.values) if value is not None]
    last_at = window.start + max(places) * window.step if places else None
    return Points(tuple(number for item in drawn for number in item.numbers), last_at)


def _clock(moment: float, *, seconds: bool = False) -> str:
    when = datetime.fromtimestamp(moment, UTC)
    return f"{when:%H:%M:%S} UTC" if seconds else f"{when:%b} {when.day}, {when:%H:%M} UTC"
