"""A what-if analysis: calibration, backtest, and two configurations side by side. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from routing.traces.trace import Trace
from routing.whatif.model import outcome
from routing.whatif.model.backtest import Backtest, backtest, measure, split_trace
from routing.whatif.model.calibration import (
    NAMES,
    Calibration,
    Constants,
    apply_constants,
    calibrate,
)
from routing.whatif.model.outcome import Comparison, RunTable, tabulate
from routing.whatif.model.scenario import PlannedTrace, Scenario, plan_trace, run_scenario
from routing.whatif.simulation.hardware import Hardware, TierModel
from routing.whatif.simulation.replay import WARM_UP, Step

_MOST_DRAWS, _LEAST_DRAWS = 8, 2
_REPLAYED_REQUESTS = 200_000  # by all runs of one configuration, about
_CAPACITY_STEPS = 7
Report = Callable[[float, str], None]  # share done and stage; may raise to cancel


@dataclass(frozen=True)
class Configuration:
    """What an analysis can change. Tokens 0: no such tier; of the device: unknown. `speed`: of a
    worker, relative to the present ones. `hourly_price`: of one worker, None if unknown.
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
    """`comparison` is None if the backtest forbids an answer."""

    requests: int
    seconds: float
    device_tokens: int
    device_tokens_fitted: bool
    draws: int
    calibration: Calibration
    backtest: Backtest
    comparison: Comparison | None


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
    under both configurations. Raise CalibrationError.
    """
    report(0.0, "Calibration")
    early, warm = split_trace(recorded)
    calibration = calibrate(early, present.step_tokens)
    planned = plan_trace(recorded)
    replayed = planned if workload is None else plan_trace(workload)
    draws = _MOST_DRAWS
    if replayed.requests:
        share = _REPLAYED_REQUESTS // len(replayed.requests)
        draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, share))
    fitted = not present.device_tokens
    half = len(planned.requests) // 2
    total = len(planned.requests) + 2 * draws * len(replayed.requests)
    total += _CAPACITY_STEPS * half if fitted else 0
    progress = _Progress(report, total)
    if fitted:
        tokens = _fit_capacity(early, present, calibration.constants, progress)
        present = replace(present, device_tokens=tokens)
        if not candidate.device_tokens:
            candidate = replace(candidate, device_tokens=tokens)
    tested = _backtest(recorded, planned, warm, present, calibration, progress)
    comparison = None
    if not tested.refusal:
        comparison = _compare(replayed, present, candidate, calibration, draws, tested, progress)
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
        comparison,
    )


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
        scenario = replace(present, device_tokens=int(math.exp(middle))).scenario(constants)
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
    scenario = present.scenario(calibration.constants)
    run = run_scenario(scenario, planned, warm, step)
    table = tabulate(run, scenario.hardware.overhead_s, None)
    return backtest(table, recorded.requests[run.warm :])


def _compare(
    planned: PlannedTrace,
    present: Configuration,
    candidate: Configuration,
    calibration: Calibration,
    draws: int,
    tested: Backtest,
    progress: _Progress,
) -> Comparison:
    sets = [calibration.constants, *calibration.draws[: draws - 1]]
    tables: list[list[RunTable]] = []
    for title, configuration in (("Present configuration", present), ("Candidate", candidate)):
        found = []
        for number, constants in enumerate(sets, 1):
            step = progress.begin(len(planned.requests), f"{title}, run {number} of {draws}")
            scenario = configuration.scenario(constants)
            run = run_scenario(scenario, planned, WARM_UP, step)
            found.append(tabulate(run, scenario.hardware.overhead_s, configuration.price))
        tables.append(found)
    return outcome.compare(tables[0], tables[1], tested.errors())


def as_document(analysis: Analysis) -> dict[str, Any]:
    """Return the analysis as JSON; absent answers are null."""
    calibration, tested = analysis.calibration, analysis.backtest
    constants = {}
    for name in NAMES:
        low, high = calibration.bounds(name)
        constants[name] = {"value": calibration.constants[name], "low": low, "high": high}
    comparison = analysis.comparison
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
            side: None
            if comparison is None
            else {name: asdict(one) for name, one in getattr(comparison, side).items()}
            for side in sides
        },
    }
