"""Scraped targets of a scope: number, scrape interval, state by job and exported metrics.

Number, interval and coverage by recording rules are read from Prometheus' own samples once a
minute. The rate window must fit the scrape interval: 5 s locally, up to 60 s in clusters.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from dashboards.boards.panels.declarations import Panel, Range
from dashboards.boards.panels.exporters import EXPORTERS
from dashboards.boards.queries import SCRAPE_S, Scope, alerts, growth, promql
from dashboards.boards.queries import metric_names as n
from dashboards.prometheus.http.client import (
    MAX_POINTS,
    Asker,
    Fault,
    QueryResult,
    Question,
    Window,
)

MEMORY_S = 60  # s; also how long values of a replaced Prometheus remain in use
_MAX_SCOPES = 10_000
# Job to display names: one, many.
JOBS = {
    "vllm": ("worker", "workers"),
    "router": ("router", "routers"),
    "l2": ("cache node", "cache nodes"),
}
# Metrics that every worker exports since a version, regardless of its arguments; newest first.
VERSION_MARKERS = (
    ("0.32", f"{n.PREEMPTED}_count"),
    ("0.24", n.WAITING_WHY),
    ("0.19", n.FLOPS),
    ("0.16", n.CACHED_ALL),
    ("0.13", f"{n.COMPUTED_TOKENS}_count"),
)


@dataclass(frozen=True, slots=True)
class ScrapeResolution:
    at: float
    every_s: int = SCRAPE_S
    targets: int = 0


@dataclass(frozen=True, slots=True)
class JobTargets:
    """Targets of one job in Prometheus. `last_up` in epoch seconds within the last day."""

    known: int = 0
    up: int = 0
    last_up: float | None = None


@dataclass(frozen=True, slots=True)
class PanelFacts:
    """Targets by job and names of exported metrics. With a `fault` nothing can be judged.
    `scraped`: targets up and known, as text.
    """

    jobs: Mapping[str, JobTargets]
    exported: frozenset[str]
    fault: Fault | None = None
    scraped: str = ""

    def suffice(self, panel: Panel, numbers: Sequence[float]) -> bool:
        """Whether these values of the panel need no message: current, and not all zero."""
        is_up = not panel.job or self.jobs.get(panel.job, JobTargets()).up > 0
        return is_up and (any(numbers) or (bool(numbers) and panel.unit == "seconds"))


@dataclass(frozen=True, slots=True)
class RangeSurvey:
    """What the queries of a range depend on. `covered`: intervals (s) of the recording rules that
    cover it; `fleet`: of those, which have the sums of all endpoints. `added`: instances that may
    have new series in it; None if unknown or many. `pods`: of one endpoint, () if unknown or many.
    """

    resolution: ScrapeResolution
    covered: tuple[int, ...] = ()
    fleet: tuple[int, ...] = ()
    added: tuple[str, ...] | None = None
    pods: tuple[str, ...] = ()


_Covered = tuple[tuple[int, ...], tuple[int, ...]]  # by the families, and by their fleet's sums
_memory: dict[Scope, ScrapeResolution] = {}
_covered: dict[tuple[Scope, tuple[int, ...]], tuple[float, _Covered]] = {}
_MAX_ADDED, _MAX_PODS = 20, 200
_MAX_ADDED_S = 9000


def get_interval_s(asker: Asker, scope: Scope, now: float) -> int:
    """Return the interval; at least the local Prometheus' interval, which is also the default."""
    return query_resolution(asker, scope, now).every_s


def count_targets(asker: Asker, scope: Scope, now: float) -> int:
    """Return the number of targets; 0 when unknown."""
    return query_resolution(asker, scope, now).targets


def query_resolution(asker: Asker, scope: Scope, now: float) -> ScrapeResolution:
    resolution = _memory.get(scope)
    if resolution is not None and 0 <= now - resolution.at < MEMORY_S:
        return resolution
    return _read_resolution(asker.ask(_plan_resolution(scope, now)), scope, now)


def _plan_resolution(scope: Scope, now: float) -> dict[str, Question]:
    end = int(now) // SCRAPE_S * SCRAPE_S
    return {
        "scraped_every": Question(scraped_every(scope), end, join="max"),
        "scraped": Question(f"count(up{_scraped(scope)})", end, join="sum"),
    }


def _read_resolution(
    answers: Mapping[str, QueryResult], scope: Scope, now: float
) -> ScrapeResolution:
    interval_s = _number(answers["scraped_every"])
    if interval_s is None:
        return ScrapeResolution(now)
    if len(_memory) >= _MAX_SCOPES:
        _memory.clear()
    every_s = max(SCRAPE_S, round(interval_s))
    _memory[scope] = ScrapeResolution(now, every_s, int(_number(answers["scraped"]) or 0))
    return _memory[scope]


def survey_range(
    asker: Asker, scope: Scope, now: float, length_s: int, reach_s: Mapping[growth.Family, int]
) -> RangeSurvey:
    """Read in one round what is not remembered; in another, where rules lack moments, whether
    anything was scraped then. `reach_s`: seconds before now that each family of
    recording rules must cover.
    """
    end = int(now) // SCRAPE_S * SCRAPE_S
    questions = {}
    if length_s <= _MAX_ADDED_S:  # longer ranges are read from recording rules
        questions["added"] = Question(added_series(scope, length_s), end)
    if scope.endpoint:
        questions["pods"] = Question(known_pods(scope, length_s), end)
    remembered = _memory.get(scope)
    if is_known := remembered is not None and 0 <= now - remembered.at < MEMORY_S:
        resolution = remembered
    else:
        questions |= _plan_resolution(scope, now)
    key = (scope, tuple(reach_s.values()))
    since, (covered, fleet) = _covered.get(key, (-math.inf, ((), ())))
    is_covered = 0 <= now - since < MEMORY_S
    if not is_covered:
        questions |= _plan_missing(reach_s, end)
        if scope.is_fleet:
            questions |= _plan_fleet(reach_s, end)
    answers = asker.ask(questions) if questions else {}
    if not is_known:
        resolution = _read_resolution(answers, scope, now)
    if not is_covered:
        missing = {family: answers[f"missing_{family.every_s}"] for family in reach_s}
        whole = tuple(family.every_s for family, answer in missing.items() if _is_zero(answer))
        rest = {family: back_s for family, back_s in reach_s.items() if family.every_s not in whole}
        recorded_s = {family: end - int(_number(missing[family]) or end) for family in rest}
        covered = (*whole, *list_covered(asker, rest, end, recorded_s))
        fleet = tuple(s for s in covered if f"fleet_{s}" in answers)
        fleet = tuple(every_s for every_s in fleet if _is_zero(answers[f"fleet_{every_s}"]))
        if len(_covered) >= _MAX_SCOPES:
            _covered.clear()
        _covered[key] = (now, (covered, fleet))
    added = _read_names(answers["added"], "instance", _MAX_ADDED) if "added" in answers else None
    pods = _read_names(answers["pods"], "pod", _MAX_PODS) if scope.endpoint else ()
    return RangeSurvey(resolution, covered, fleet, added, pods or ())


def added_series(scope: Scope, length_s: int) -> str:
    """Instances that added series within the range, or that do not report it."""
    up, added = (f"last_over_time({name}{_scraped(scope)}[{length_s}s])" for name in _SCRAPES)
    grown = f"sum_over_time({_SCRAPES[1]}{_scraped(scope)}[{length_s}s])"
    unknown = f"count by (instance) ({up}) unless count by (instance) ({added})"
    return f"(sum by (instance) ({grown}) > 0) or ({unknown})"


_SCRAPES = ("up", "scrape_series_added")


def known_pods(scope: Scope, length_s: int) -> str:
    """Pods of whole minutes of the range, and those of now, which may be younger."""
    step_s = max(_RECORDED_STEP_S, length_s // MAX_POINTS)
    up = f"up{_scraped(scope)}"
    return f"count by (pod) ({up} or last_over_time({up}[{length_s}s:{step_s}s]))"


def _read_names(answer: QueryResult, label: str, most: int) -> tuple[str, ...] | None:
    """Return the values of the label, None if they are unknown or too many."""
    names = tuple(sorted({series.label(label) for series in answer.series}))
    return None if answer.fault or answer.missing or len(names) > most else names


_SPANS_S = (120, 2 * SCRAPE_S)  # the shorter one of targets that are new


def scraped_every(scope: Scope) -> str:
    """Median scrape interval in seconds: of each target, the time between its last samples before
    two moments, by the number of samples between.
    """
    up = f"up{_scraped(scope)}"
    # One millisecond less: before Prometheus 3 a range includes both ends.
    apart = (
        f"(timestamp({up}) - timestamp({up} offset {span}s) > 0) "
        f"/ count_over_time({up}[{1000 * span - 1}ms])"
        for span in _SPANS_S
    )
    return f"quantile(0.5, {' or '.join(apart)})"


def _scraped(scope: Scope) -> str:
    return scope.engines(job_re="|".join(promql.JOBS))


def _number(answer: QueryResult) -> float | None:
    return next((series.latest for series in answer.series if series.latest is not None), None)


def clear_memory() -> None:
    _memory.clear()
    _covered.clear()


def list_covered(
    asker: Asker,
    reach_s: Mapping[growth.Family, int],
    at: int,
    recorded_s: Mapping[growth.Family, int] = MappingProxyType({}),
) -> tuple[int, ...]:
    """Return the intervals of those families of recording rules that cover their reach before
    `at`. `recorded_s`: seconds before `at` known to be recorded.
    """
    questions = _plan_coverage(reach_s, at, recorded_s)
    return _read_coverage(asker.ask(questions), reach_s) if questions else ()


def _plan_missing(reach_s: Mapping[growth.Family, int], at: int) -> dict[str, Question]:
    return {
        f"missing_{family.every_s}": Question(growth.find_missing(family, back_s), at, join="max")
        for family, back_s in reach_s.items()
    }


def _plan_fleet(reach_s: Mapping[growth.Family, int], at: int) -> dict[str, Question]:
    return {
        f"fleet_{family.every_s}": Question(
            growth.count_without_fleet(family, back_s), at, join="sum"
        )
        for family, back_s in reach_s.items()
    }


def _plan_coverage(
    reach_s: Mapping[growth.Family, int], at: int, recorded_s: Mapping[growth.Family, int]
) -> dict[str, Question]:
    return {
        f"not_covered_{family.every_s}": Question(
            growth.count_uncovered(family, back_s, recorded_s.get(family, 0) - SCRAPE_S),
            at,
            join="sum",
        )
        for family, back_s in reach_s.items()
    }


def _read_coverage(
    answers: Mapping[str, QueryResult], reach_s: Mapping[growth.Family, int]
) -> tuple[int, ...]:
    intervals = (family.every_s for family in reach_s)
    return tuple(every_s for every_s in intervals if _is_zero(answers[f"not_covered_{every_s}"]))


def _is_zero(answer: QueryResult) -> bool:
    return answer.fault is None and not any(series.latest for series in answer.series)


MAX_RAW_POINTS = 10_000  # points of all targets, for steps below those of recording rules
MAX_RECORDED_POINTS = 20_000
_MAX_RAW_TARGETS = 150  # more are read from recording rules
_RECORDED_STEP_S = 60
_MIN_POINTS = 12
_STEPS_S = (
    *(10, 15, 20, 30, 60, 120, 300, 600, 900),
    *(1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400),
)


def fit_range(chosen: Range, target_count: int) -> Range:
    """Return the range with a step that fits the number of targets."""
    step_s = chosen.step_s
    if target_count > _MAX_RAW_TARGETS:
        step_s = max(step_s, _RECORDED_STEP_S)
    for longer_s in _STEPS_S:
        points = chosen.length_s // step_s
        if points * target_count <= (
            MAX_RAW_POINTS if step_s < _RECORDED_STEP_S else MAX_RECORDED_POINTS
        ):
            break
        if longer_s > step_s and chosen.length_s // longer_s >= _MIN_POINTS:
            step_s = longer_s
    return replace(chosen, step_s=step_s)


def get_longest_step_s(chosen: Range) -> int:
    """Return the longest step that `fit_range` may choose."""
    able = (step_s for step_s in _STEPS_S if chosen.length_s // step_s >= _MIN_POINTS)
    return max(chosen.step_s, *able, 0)


_FACT_PREFIXES = ("targets_", "exported_")


def plan_alerts(scope: Scope, window: Window) -> Question:
    """Return the query of the alerts that annotate a window."""
    return Question(alerts(scope), window.end, window)


def plan_facts(panels: Sequence[Panel], scope: Scope, at: int) -> dict[str, Question]:
    questions = {
        "targets_known": Question(f"count by (job) (up{_scraped(scope)})", at, join="sum"),
        "targets_up": Question(f"sum by (job) (up{_scraped(scope)})", at, join="sum"),
    }
    braces = {"vllm": scope.engines(), "router": scope.router(), "l2": "", "": ""}
    for job, within in braces.items():
        metrics = {metric for panel in panels if panel.job == job for metric in panel.metrics}
        if not metrics:
            continue
        metrics |= {EXPORTERS[panel.needs].sign for panel in panels if panel.needs and not job}
        metrics |= {mark for _, mark in VERSION_MARKERS if job == "vllm"}
        questions[_exported_key(job)] = Question(exported(metrics, within), at, join="sum")
    return questions


def collect_facts(
    asker: Asker, panels: Sequence[Panel], scope: Scope, at: int, answers: dict[str, QueryResult]
) -> PanelFacts:
    """Read the answers to `plan_facts`. Of jobs without a target that is up, query when they were
    last; that answer is added to `answers`.
    """
    away = tuple(
        sorted(job for job, job_state in _read_jobs(answers, panels).items() if job_state.up == 0)
    )
    if away:
        question = Question(last_up(scope, away), at, join="max")
        answers |= asker.ask({"targets_last_up": question})
    jobs = _read_jobs(answers, panels)
    names = {
        series.label("__name__")
        for job in {panel.job for panel in panels}
        for series in answers[_exported_key(job)].series
    }
    # Nothing can be judged without these. A single slow panel does not affect the others.
    judging = [answer for name, answer in answers.items() if name.startswith(_FACT_PREFIXES)]
    fault = next((answer.fault for answer in judging if answer.fault), None)
    return PanelFacts(jobs, frozenset(names), fault, _format_scraped(jobs))


def last_up(scope: Scope, jobs: tuple[str, ...]) -> str:
    """End of the latest whole minute in which these jobs' targets answered a scrape, within a day.
    Only for jobs that are down: over thousands of live targets it would be expensive.
    """
    if not set(jobs) <= set(promql.JOBS):
        raise ValueError(f"{jobs} are not among {promql.JOBS}")
    # Queried at whole minutes only: `up` itself would miss a target that answered in between.
    answered = f"timestamp(max_over_time(up{scope.engines(job_re='|'.join(jobs))}[1m]) == 1)"
    return f"max by (job) (max_over_time({answered}[1d:1m]))"


def exported(metrics: Collection[str], braces: str) -> str:
    for metric in metrics:
        if not promql.NAME.fullmatch(metric):
            raise ValueError(f"{metric!r} is not the name of a metric")
    names = f'__name__=~"{"|".join(sorted(metrics))}"'
    return f"count by (__name__) ({{{','.join(filter(None, [names, braces.strip('{}')]))}}})"


def _exported_key(job: str) -> str:
    return f"exported_{job or 'elsewhere'}"


def _read_jobs(
    answers: Mapping[str, QueryResult], panels: Sequence[Panel]
) -> dict[str, JobTargets]:
    series_by_job, up, last = (
        {series.label("job"): series.latest for series in answers.get(name, QueryResult()).series}
        for name in ("targets_known", "targets_up", "targets_last_up")
    )
    return {
        job: JobTargets(int(series_by_job.get(job) or 0), int(up.get(job) or 0), last.get(job))
        for job in {panel.job for panel in panels if panel.job}
    }


def _format_scraped(jobs: Mapping[str, JobTargets]) -> str:
    """Format targets up and known: "workers 2 of 2, no routers"."""
    sentences = []
    for job, (_, many) in JOBS.items():
        if job in jobs:
            job_state = jobs[job]
            sentences.append(
                f"{many} {job_state.up} of {job_state.known}" if job_state.known else f"no {many}"
            )
    return ", ".join(sentences)
