"""A what-if analysis: calibration, backtest, and configurations side by side. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from dashboards.insight.traces.trace import Trace
from dashboards.insight.whatif.model import isolation
from dashboards.insight.whatif.model.backtest import Backtest, backtest, measure, split_trace
from dashboards.insight.whatif.model.calibration import (
    MIN_SAMPLES,
    NAMES,
    UNCALIBRATED,
    Calibration,
    CalibrationError,
    Constants,
    apply_constants,
    calibrate,
    relative_time,
)
from dashboards.insight.whatif.model.isolation import ReplayPair
from dashboards.insight.whatif.model.outcome import (
    Comparison,
    Estimate,
    compare,
    resample_runs,
    tabulate,
)
from dashboards.insight.whatif.model.scenario import (
    PlannedTrace,
    Scenario,
    plan_trace,
    run_scenario,
)
from dashboards.insight.whatif.simulation.hardware import Hardware, TierModel
from dashboards.insight.whatif.simulation.replay import WARM_UP, SimulatedRun, Step
from dashboards.insight.whatif.simulation.routers import STRATEGIES

_MOST_DRAWS, _SURVEY_DRAWS, _LEAST_DRAWS = 16, 8, 2
_REPLAYED_REQUESTS = 200_000  # by all runs of one configuration, about
_SURVEYED_REQUESTS = 60_000  # the same of a survey, with up to 25 configurations
_CAPACITY_STEPS = 7
Report = Callable[[float, str], None]  # share done and stage; may raise to cancel


@dataclass(frozen=True)
class Configuration:
    """What an analysis can change. Tokens 0: no such tier; of the device: unknown. `speed`: of a
    worker, relative to the present ones. `hourly_price`: of one worker, None if unknown.
    `isolation`: of the KV cache; "": as recorded.
    """

    strategy: str
    replicas: int
    routers: int = 1
    rate: float = 1.0
    speed: float = 1.0
    device_tokens: int = 0
    l1_tokens: int = 0
    l1_policy: str = "lru"
    l2_tokens: int = 0
    l2_policy: str = "lru"
    hourly_price: float | None = None
    step_tokens: int = 8192
    max_requests: int = 256
    isolation: str = ""

    def scenario(self, constants: Constants) -> Scenario:
        hardware = apply_constants(
            Hardware(
                "",
                step_s=0.0,
                prefill_s=0.0,
                context_s=0.0,
                decode_s=0.0,
                cache_tokens=self.device_tokens,
                step_tokens=self.step_tokens,
                step_answers=self.max_requests,
                l1=_tier(self.l1_tokens, self.l1_policy),
                l2=_tier(self.l2_tokens, self.l2_policy),
            ),
            constants,
        )
        if self.speed != 1.0:
            hardware = replace(
                hardware,
                step_s=hardware.step_s / self.speed,
                prefill_s=hardware.prefill_s / self.speed,
                context_s=hardware.context_s / self.speed,
                decode_s=hardware.decode_s / self.speed,
            )
        return Scenario(self.strategy, self.replicas, hardware, self.routers, self.rate)

    @property
    def price(self) -> float | None:
        return None if self.hourly_price is None else self.hourly_price * self.replicas


def _tier(tokens: int, policy: str) -> TierModel | None:
    return TierModel(tokens, 0.0, policy=policy) if tokens else None


@dataclass(frozen=True)
class Analysis:
    """Result of a what-if analysis. `comparisons`: one for each candidate; none if the backtest
    forbids an answer, of hit rates alone where too few requests have a TTFT. `isolation`: effect of
    a changed cache isolation, also if only the hit rate passed the backtest. `prompt_tokens`: of
    the replayed requests.
    """

    requests: int
    seconds: float
    device_tokens: int
    device_tokens_fitted: bool
    draws: int
    calibration: Calibration
    backtest: Backtest
    comparisons: tuple[Comparison, ...]
    isolation: dict[str, Any] | None = None
    prompt_tokens: int = 0

    @property
    def comparison(self) -> Comparison | None:
        return self.comparisons[0] if self.comparisons else None


class _Progress:
    """Counts replayed requests over all runs."""

    def __init__(self, report: Report, total: int) -> None:
        self._report = report
        self._total = max(total, 1)
        self._done = 0

    def begin(self, requests: int, stage: str) -> Step:
        before = self._done
        self._done += requests
        self._report(min(before / self._total, 1.0), stage)
        return lambda count: self._report(min((before + count) / self._total, 1.0), stage)


def analyse(
    recorded: Trace,
    present: Configuration,
    candidate: Configuration,
    report: Report = lambda _share, _stage: None,
    workload: Trace | None = None,
) -> Analysis:
    """Calibrate and backtest on `recorded`, then replay `workload` (None: the recorded requests)
    under both configurations. Raise CalibrationError, or TraceError if the requests cannot show a
    changed cache isolation.
    """
    return survey(recorded, present, (candidate,), report, workload, _REPLAYED_REQUESTS)


def survey(
    recorded: Trace,
    present: Configuration,
    candidates: Sequence[Configuration],
    report: Report = lambda _share, _stage: None,
    workload: Trace | None = None,
    most: int = _SURVEYED_REQUESTS,
) -> Analysis:
    """Like `analyse` for many candidates. `most`: requests that all runs of one configuration
    replay, about.
    """
    report(0.0, "Calibration")
    early, warm = split_trace(recorded)
    isolates = any(candidate.isolation != present.isolation for candidate in candidates)
    source = recorded if workload is None else workload
    if isolates:
        kinds = (present.isolation, *(candidate.isolation for candidate in candidates))
        isolation.check_recording(source, kinds)
    uncalibrated = ""
    try:
        calibration = calibrate(early, present.step_tokens)
    except CalibrationError as error:
        if not isolates and (len(early.requests) < MIN_SAMPLES or len(candidates) > 1):
            raise
        calibration, uncalibrated = UNCALIBRATED, str(error)  # hit rates need no times
    planned = plan_trace(recorded)
    replayed = planned if workload is None else plan_trace(workload)
    draws = _MOST_DRAWS if len(candidates) == 1 else _SURVEY_DRAWS
    if replayed.requests:
        draws = max(_LEAST_DRAWS, min(draws, most // len(replayed.requests)))
    fitted = not present.device_tokens
    half = len(planned.requests) // 2
    total = len(planned.requests) + (1 + len(candidates)) * draws * len(replayed.requests)
    total += _CAPACITY_STEPS * half if fitted else 0
    progress = _Progress(report, total)
    if fitted:
        tokens = _fit_capacity(early, present, calibration.constants, progress)
        present = replace(present, device_tokens=tokens)
        candidates = [
            candidate if candidate.device_tokens else replace(candidate, device_tokens=tokens)
            for candidate in candidates
        ]
    tested = _backtest(recorded, planned, warm, present, calibration, progress)
    if uncalibrated:
        tested = tested.without_times(uncalibrated)
    comparisons: list[Comparison] = []
    effects = None
    only_rates = tested.hit_rate_holds and bool(uncalibrated) and not isolates
    if not tested.refusal or only_rates or (isolates and tested.hit_rate_holds):

        def replay(configuration: Configuration, title: str) -> list[_Run]:
            plan = _isolated(source, configuration) if isolates else replayed
            return _replay(plan, configuration, title, calibration, draws, progress)

        base = replay(present, "Present configuration")
        noise = calibration.noise
        before = resample_runs(base, present.price, noise, 0)
        for number, candidate in enumerate(candidates, 1):
            many = len(candidates) > 1
            runs = replay(
                candidate, f"Candidate {number} of {len(candidates)}" if many else "Candidate"
            )
            if not tested.refusal or only_rates:
                after = resample_runs(runs, candidate.price, noise, number)
                comparison = compare(before, after, tested.errors())
                comparisons.append(comparison.rates() if only_rates else comparison)
            if candidate.isolation != present.isolation:
                step = partial(report, 1.0, "Effect on each scope")
                effects = _isolation_effects(source, base, runs, candidate, tested, noise, step)
    requests = replayed.requests
    seconds = requests[-1].at - requests[0].at if requests else 0.0
    return Analysis(
        len(requests),
        seconds,
        present.device_tokens,
        fitted,
        draws,
        calibration,
        tested,
        tuple(comparisons),
        effects,
        sum(request.prompt_tokens for request in requests),
    )


def _isolated(trace: Trace, configuration: Configuration) -> PlannedTrace:
    if configuration.isolation == trace.isolation:
        return plan_trace(trace)
    return plan_trace(trace, scope=partial(isolation.scope_of, isolation=configuration.isolation))


def _recorded_scenario(
    planned: PlannedTrace, present: Configuration, constants: Constants
) -> Scenario:
    """Return the present scenario with the other strategy that placed recorded requests: that of a
    canary, or the endpoint's before a promotion.
    """
    counter = Counter(
        request.strategy for request in planned.requests if request.strategy in STRATEGIES
    )
    del counter[present.strategy]
    scenario = present.scenario(constants)
    return replace(scenario, candidate=max(counter, key=counter.__getitem__, default=""))


def _fit_capacity(
    early: Trace, present: Configuration, constants: Constants, progress: _Progress
) -> int:
    """Return the device memory (tokens) whose simulated hit rate is nearest to the measured one."""
    planned = plan_trace(early)
    measured = measure(early.requests).get("hit_rate", 0.0)
    distinct = {block for request in planned.requests for block in request.chain}
    low = math.log(max(planned.largest, 1) * 2)
    high = math.log(max(len(distinct) * planned.block_tokens * 2, planned.largest * 4))
    for _ in range(_CAPACITY_STEPS):
        middle = (low + high) / 2
        sized = replace(present, device_tokens=int(math.exp(middle)))
        scenario = _recorded_scenario(planned, sized, constants)
        step = progress.begin(len(planned.requests), "Fit of the device memory")
        figures = tabulate(run_scenario(scenario, planned, 0.5, step), 0.0, None).figures()
        if figures["hit_rate"] < measured:
            low = middle
        else:
            high = middle
    return int(math.exp(high))


def _backtest(
    recorded: Trace,
    planned: PlannedTrace,
    warm: float,
    present: Configuration,
    calibration: Calibration,
    progress: _Progress,
) -> Backtest:
    step = progress.begin(len(planned.requests), "Backtest")
    scenario = _recorded_scenario(planned, present, calibration.constants)
    run = run_scenario(scenario, planned, warm, step)
    table = tabulate(run, scenario.hardware.overhead_s, None, calibration.noise)
    late = recorded.requests[run.warm :]
    paces = [
        relative_time(part, present.step_tokens, calibration.constants)
        for part in (islice(recorded.requests, run.warm), late)
    ]
    slower = paces[1] / paces[0] if paces[0] and paces[1] else 1.0
    return backtest(table, late, slower, calibration.error)


_Run = tuple[SimulatedRun, Hardware]


def _replay(
    plan: PlannedTrace,
    configuration: Configuration,
    title: str,
    calibration: Calibration,
    draws: int,
    progress: _Progress,
) -> list[_Run]:
    """Replay with the fitted constants, then with drawn ones: `draws` times in all."""
    sets = [calibration.constants, *calibration.draws[: draws - 1]]
    replays = []
    for number, constants in enumerate(sets, 1):
        step = progress.begin(len(plan.requests), f"{title}, run {number} of {len(sets)}")
        scenario = configuration.scenario(constants)
        replays.append((run_scenario(scenario, plan, WARM_UP, step), scenario.hardware))
    return replays


def _isolation_effects(
    trace: Trace,
    present: Sequence[_Run],
    isolated: Sequence[_Run],
    candidate: Configuration,
    tested: Backtest,
    noise: Sequence[float],
    step: Callable[[], None],
) -> dict[str, Any]:
    pairs = [
        ReplayPair(before, after, was, workers)
        for (before, was), (after, workers) in zip(present, isolated, strict=True)
    ]
    sharing = isolation.measure_sharing(trace, candidate.isolation)
    effects = isolation.compare_scopes(
        *(trace, candidate.isolation, pairs, tested.errors(), candidate.hourly_price),
        *(sharing, noise, step),
    )
    return isolation.show_effects(
        effects, sharing, candidate.isolation, calibrated=not tested.refusal
    )


def as_survey(analysis: Analysis) -> dict[str, Any]:
    """Return a survey as JSON; `candidates` has figures and changes in their order."""
    document = as_document(analysis)
    del document["candidate"], document["change"], document["ttft_p90_spread"]
    return {
        **document,
        "prompt_tokens": analysis.prompt_tokens,
        "candidates": [
            {side: _estimates(getattr(comparison, side)) for side in ("candidate", "change")}
            for comparison in analysis.comparisons
        ],
    }


def _estimates(figures: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: asdict(figure) for name, figure in figures.items()}


def as_document(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as JSON; absent answers are null."""
    calibration, tested = analysis.calibration, analysis.backtest
    constants = {}
    for name in NAMES:
        low, high = calibration.bounds(name)
        constants[name] = {"value": calibration.constants[name], "low": low, "high": high}
    comparison = analysis.comparison
    isolates = {} if analysis.isolation is None else {"isolation": analysis.isolation}
    sides: Sequence[str] = ("present", "candidate", "change")
    return {
        "requests": analysis.requests,
        "seconds": analysis.seconds,
        "device_tokens": analysis.device_tokens,
        "device_tokens_fitted": analysis.device_tokens_fitted,
        "runs": analysis.draws,
        "calibration": {
            "requests": calibration.requests,
            "error": calibration.error,
            "constants": constants,
        },
        "backtest": {
            "requests": tested.requests,
            "refusal": tested.refusal,
            "rows": [{**asdict(row), "holds": row.holds} for row in tested.rows],
        },
        **{
            side: None if comparison is None else _estimates(getattr(comparison, side))
            for side in sides
        },
        "ttft_p90_spread": None if comparison is None else comparison.spread,
        **isolates,
    }
