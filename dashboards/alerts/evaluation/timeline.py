"""Timeline of alerts: pending and firing intervals for each rule and endpoint, from `ALERTS`.

The number of queries and of points is bounded for every range. An interval opened by the user is
measured again at a fine step. If Prometheus cannot be queried, the result holds the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dashboards.alerts.evaluation.firing_alerts import FIRING, PENDING
from dashboards.alerts.evaluation.history import DEFAULT, RANGES
from dashboards.alerts.rules.parameter import describe_duration, format_value
from dashboards.alerts.rules.rule import PAGE, EndpointSelection
from dashboards.alerts.rules.rule_file import BY_NAME, Settings
from dashboards.boards import queries
from dashboards.boards.queries import Scope
from dashboards.boards.queries.promql import selector
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.http.client import Asker, QueryResult, Question, Series, Window

FINE_S: Final = 15
_SCRAPED: Final = "count(up)"
_DROPPED: Final = ("__name__", "alertstate")
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertInterval:
    """Interval of one state. `start`, `end`: epoch seconds, exact to `step_s`. `ongoing`: still in
    this state. `cut`: began before the range. `alerts`: labels of the alerts in it.
    """

    rule: str
    endpoint: str
    severity: str
    state: str
    start: int
    end: int
    step_s: int
    ongoing: bool = False
    cut: bool = False
    alerts: tuple[Labels, ...] = ()

    @property
    def duration_s(self) -> int:
        return max(self.step_s, self.end - self.start)


@dataclass(frozen=True, slots=True)
class Lane:
    """Intervals of one rule and endpoint, the oldest first."""

    rule: str
    endpoint: str
    intervals: tuple[AlertInterval, ...]

    @property
    def severity(self) -> str:
        return _worst(one.severity for one in self.intervals)

    @property
    def firing(self) -> list[AlertInterval]:
        return [one for one in self.intervals if one.state == FIRING]

    @property
    def ongoing(self) -> bool:
        return any(one.ongoing for one in self.firing)

    @property
    def firing_s(self) -> int:
        return sum(one.duration_s for one in self.firing)


@dataclass(frozen=True, slots=True)
class Timeline:
    """`known_from`: first sample in the range if it is later than the range's start, else None.
    `why`: reason why nothing is known; `missing`: of a partial result.
    """

    key: str
    window: Window
    lanes: tuple[Lane, ...] = ()
    known_from: int | None = None
    why: str = ""
    missing: str = ""

    @property
    def step(self) -> str:
        return describe_duration(self.window.step)

    @property
    def intervals(self) -> list[AlertInterval]:
        """Return all intervals, the latest first."""
        found = [one for lane in self.lanes for one in lane.intervals]
        return sorted(found, key=lambda one: (one.start, one.rule, one.endpoint), reverse=True)


def query_timeline(asker: Asker, scope: Scope, key: str) -> Timeline:
    """Return the timeline of the range `key`: firing lanes first, then the latest."""
    key = key if key in RANGES else DEFAULT
    now = time.time()
    length, step = RANGES[key]
    window = Window.ending(now, length, step)
    at = int(now) // queries.SCRAPE_S * queries.SCRAPE_S
    # Each point covers the time since the previous one, so that short alerts are not missed.
    answers = asker.ask(
        {
            "past": Question(_over(queries.alerts_active(scope), step), window.end, window),
            "since": Question(_over(queries.alerts_since(scope), step), window.end, window),
            "known": Question(_SCRAPED, window.end, window, "sum"),
            "now": Question(queries.alerts_active(scope), at),
        }
    )
    fault = next((answers[name].fault for name in ("past", "now") if answers[name].fault), None)
    if fault is not None:
        message = make_fault_message(fault)
        return Timeline(key, window, why=f"{message.title}: {message.text}")
    missing = next((one.detail for answer in answers.values() for one in answer.missing), "")
    lanes = _lanes(answers, window, at)
    lanes.sort(key=lambda one: one.intervals[-1].end, reverse=True)
    lanes.sort(key=lambda one: (not one.ongoing, one.severity != PAGE))
    return Timeline(key, window, tuple(lanes), _known_from(answers["known"], window), "", missing)


def find_interval(
    timeline: Timeline, rule: str, endpoint: str, state: str, at: int
) -> AlertInterval | None:
    """Return the interval at that time: its start moves by up to a step between two queries."""
    near = [
        one
        for one in timeline.intervals
        if (one.rule, one.endpoint, one.state) == (rule, endpoint, state)
        and one.start - one.step_s <= at <= one.end + one.step_s
    ]
    return min(near, key=lambda one: abs(one.start - at), default=None)


def refine_interval(asker: Asker, found: AlertInterval) -> AlertInterval:
    """Measure start and end of a visible interval at a fine step, where that is possible."""
    pairs = {"alertname": found.rule, "alertstate": found.state, "endpoint": found.endpoint}
    text = f"max(ALERTS{selector(pairs)})"
    step = found.step_s
    if step <= FINE_S:
        return found
    around = {
        "start": Window(found.start, found.start + step, FINE_S),
        "end": Window(found.end - step, found.end, FINE_S),
    }
    wanted = {
        name: Question(text, window.end, window)
        for name, window in around.items()
        if not (name == "start" and found.cut) and not (name == "end" and found.ongoing)
    }
    answers = asker.ask(wanted) if wanted else {}
    times = {name: _there(answers[name], around[name]) for name in wanted}
    start = min(times.get("start") or [found.start])
    end = max(times.get("end") or [found.end])
    return replace(found, start=start, end=max(start, end), step_s=FINE_S)


def measure_at_start(asker: Asker, settings: Settings, found: AlertInterval) -> str:
    """Return the rule's measure when the interval began, empty if it is unknown."""
    rule = BY_NAME.get(found.rule)
    if rule is None:
        return ""
    only = EndpointSelection((found.endpoint,) if found.endpoint and rule.per_endpoint else ())
    at = found.start + found.step_s if not found.cut else found.start
    text = rule.value(settings.of(rule, found.endpoint), only)
    series = asker.ask({"value": Question(text, min(at, found.end))})["value"].series
    for one in series:
        own = {pair for pair in one.labels if pair[0] not in _DROPPED}
        if one.latest is not None and any(own <= set(each.items()) for each in found.alerts):
            return format_value(rule.unit, one.latest)
    return ""


def _over(text: str, step: int) -> str:
    return f"last_over_time({text}[{step}s])"


def _there(answer: QueryResult, window: Window) -> list[int]:
    return [
        window.start + place * window.step
        for one in answer.series
        for place, value in enumerate(one.values)
        if value is not None
    ]


def _known_from(answer: QueryResult, window: Window) -> int | None:
    """Return None if the whole range has samples, or if that is unknown."""
    if answer.fault is not None:
        return None
    first = min(_there(answer, window), default=window.end)
    return first if first > window.start + window.step else None


def _identity(series: Series) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in series.labels if pair[0] not in _DROPPED)


def _lanes(answers: Mapping[str, QueryResult], window: Window, at: int) -> list[Lane]:
    begun = {_identity(one): one.values for one in answers["since"].series}
    active = {(_identity(one), one.label("alertstate")) for one in answers["now"].series}
    grouped: dict[tuple[str, str], list[Series]] = {}
    for one in answers["past"].series:
        endpoint = one.label("endpoint") or one.label("endpoint_name")
        grouped.setdefault((one.label("alertname"), endpoint), []).append(one)
    found = []
    for (rule, endpoint), lines in grouped.items():
        intervals = [
            _interval(rule, endpoint, state, run, lines, begun, active, window, at)
            for state, run in _runs(lines, window.points)
        ]
        if intervals:
            found.append(Lane(rule, endpoint, tuple(intervals)))
    return found


def _runs(lines: Sequence[Series], points: int) -> list[tuple[str, range]]:
    """Return the runs of equal state; firing hides pending."""
    states: list[str] = [""] * points
    for one in lines:
        state = one.label("alertstate")
        for place, value in enumerate(one.values):
            if value is not None and states[place] != FIRING:
                states[place] = FIRING if state == FIRING else PENDING
    found: list[tuple[str, range]] = []
    for place, state in enumerate(states):
        if not state:
            continue
        if found and found[-1][0] == state and found[-1][1].stop == place:
            found[-1] = (state, range(found[-1][1].start, place + 1))
        else:
            found.append((state, range(place, place + 1)))
    return found


def _interval(
    rule: str,
    endpoint: str,
    state: str,
    run: range,
    lines: Sequence[Series],
    begun: Mapping[tuple[tuple[str, str], ...], Sequence[float | None]],
    active: set[tuple[tuple[tuple[str, str], ...], str]],
    window: Window,
    at: int,
) -> AlertInterval:
    mine = [
        one
        for one in lines
        if (one.label("alertstate") == FIRING) is (state == FIRING)
        and any(one.values[place] is not None for place in run)
    ]
    first, last = (window.start + place * window.step for place in (run[0], run[-1]))
    start = max(window.start, first - window.step)
    known = [begun[_identity(one)][run[0]] for one in mine if _identity(one) in begun]
    since = min((int(one) for one in known if one is not None), default=0)
    if start < since <= first:
        start = since
    final = run[-1] == window.points - 1
    ongoing = final and any((_identity(one), state) in active for one in mine)
    return AlertInterval(
        rule,
        endpoint,
        _worst(one.label("severity") for one in mine),
        state,
        start,
        max(at, last) if ongoing else max(last, start),
        window.step,
        ongoing,
        run[0] == 0,
        tuple(dict(_identity(one)) for one in mine),
    )


def _worst(severities: Iterable[str]) -> str:
    found = sorted({one for one in severities if one})
    return PAGE if PAGE in found else (found[0] if found else "")
