"""Figures of simulated runs, with intervals from resampled sessions and drawn constants. Pure."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import SimulatedRun

RESAMPLES = 200  # over all runs of one scenario
_SEED = 11
_SEEDS = 1000  # configurations of an analysis, at most
_TABLES = 8  # with other noise, at least
_COPIES, _COPIED = 16, 40_000  # of a request for the figures, and requests in all

TTFT = ("ttft_p50_s", "ttft_p90_s", "ttft_p99_s")
RATES = ("hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate")
THROUGHPUT = ("requests_per_s", "output_tokens_per_s")
COSTS = ("cost_per_hour", "cost_per_million_tokens")
_PARTS = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Value with the bounds of its 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RunTable:
    """Requests of one run by ascending TTFT, and sums for each group: a session, or one request
    without a session. `hourly_price` is of all workers, None if unknown.
    """

    ttft: list[float]
    group_of: list[int]
    sums: list[tuple[int, int, int, int, int, int]]  # requests, prompt, device, l1, l2, output
    span_s: float
    hourly_price: float | None

    def figures(self, weights: Sequence[int] | None = None) -> dict[str, float]:
        """Return the figures with each group counted `weights` times."""
        each = weights if weights is not None else [1] * len(self.sums)
        heights = list(accumulate(map(each.__getitem__, self.group_of)))
        total = heights[-1] if heights else 0
        by_name: dict[str, float] = {}
        for name, part in zip(TTFT, _PARTS, strict=True):
            index = bisect_left(heights, part * total) if total else 0
            by_name[name] = self.ttft[min(index, len(self.ttft) - 1)] if self.ttft else 0.0
        requests, prompt, device, l1, l2, output = (
            sum(w * figure[index] for w, figure in zip(each, self.sums, strict=True))
            for index in range(6)
        )
        for name, tokens in zip(RATES, (device + l1 + l2, device, l1, l2), strict=True):
            by_name[name] = tokens / prompt if prompt else 0.0
        by_name["requests_per_s"] = requests / self.span_s
        by_name["output_tokens_per_s"] = output / self.span_s
        if self.hourly_price is not None:
            tokens = max(prompt + output, 1)
            by_name["cost_per_hour"] = self.hourly_price
            cost = self.hourly_price * self.span_s / 3600
            by_name["cost_per_million_tokens"] = cost / tokens * 1e6
        return by_name


def tabulate(
    run: SimulatedRun,
    overhead_s: float,
    hourly_price: float | None,
    noise: Sequence[float] = (),
    seed: int | None = None,
) -> RunTable:
    """Summarize the counted requests; groups are numbered alike in all runs of one trace.

    `noise`: factors by which times of the same work differ. With a `seed`, each TTFT gets one of
    them by chance, as in a measurement; without, several, so that quantiles are expected values.
    """
    jobs = run.counted
    chance = random.Random(seed or 0)
    copies = 1 if seed is not None else max(1, min(_COPIES, _COPIED // max(len(jobs), 1)))
    numbers: dict[object, int] = {}
    sums: list[list[int]] = []
    rows: list[tuple[float, int]] = []
    for job in sorted(jobs, key=lambda job: job.tag):
        key: object = job.session if job.session >= 0 else ("request", job.tag)
        group = numbers.setdefault(key, len(numbers))
        if group == len(sums):
            sums.append([0] * 6)
        device = job.cached - job.l1_tokens - job.l2_tokens
        values = (1, job.prompt_tokens, device, job.l1_tokens, job.l2_tokens, job.answer_tokens)
        for index, value in enumerate(values):
            sums[group][index] += value
        ttft = job.first_at - job.arrived + overhead_s
        factors = chance.choices(noise, k=copies) if noise else (1.0,)
        rows.extend((ttft * factor, group) for factor in factors)
    rows.sort()
    ends = max((job.done_at for job in jobs), default=0.0)
    begins = min((job.arrived for job in jobs), default=0.0)
    return RunTable(
        [ttft for ttft, _ in rows],
        [group for _, group in rows],
        [(s[0], s[1], s[2], s[3], s[4], s[5]) for s in sums],
        max(ends - begins, 1e-9),
        hourly_price,
    )


@dataclass(frozen=True)
class Comparison:
    """Figures of the present configuration and of another, and their ratio minus 1. `spread`: see
    Resampled, the larger one.
    """

    present: dict[str, Estimate]
    candidate: dict[str, Estimate]
    change: dict[str, Estimate]
    spread: float

    def rates(self) -> Comparison:
        """Return the hit rates alone."""
        present, candidate, change = (
            {name: side[name] for name in RATES if name in side}
            for side in (self.present, self.candidate, self.change)
        )
        return Comparison(present, candidate, change, 0.0)


@dataclass(frozen=True)
class Resampled:
    """Figures of the run with the fitted constants, and of resampled sessions of all runs.
    `spread`: highest over lowest TTFT p90 of the runs, minus 1, all sessions counted once.
    """

    figures: dict[str, float]
    draws: list[dict[str, float]]
    spread: float


def resample(tables: Sequence[RunTable], expected: RunTable | None = None) -> Resampled:
    """`tables`: of one configuration; the first has the fitted constants. Tables of the same
    requests and number get the same sessions, draw by draw. `expected`: the first without a seed.
    """
    chance = random.Random(_SEED)
    draws = []
    groups = len(tables[0].sums)
    for table in tables:
        for _ in range(max(2, RESAMPLES // len(tables))):
            weights = [0] * groups
            for group in chance.choices(range(groups), k=groups) if groups else ():
                weights[group] += 1
            draws.append(table.figures(weights))
    whole = [table.figures() for table in tables]
    p90 = [figure[TTFT[1]] for figure in whole]
    spread = max(p90) / min(p90) - 1 if min(p90) > 0 else 0.0
    return Resampled(expected.figures() if expected else whole[0], draws, spread)


def resample_runs(
    runs: Sequence[tuple[SimulatedRun, Hardware]],
    hourly_price: float | None,
    noise: Sequence[float],
    seed: int,
) -> Resampled:
    """`seed`: another one for each configuration, since the noise of their times is independent."""
    values = [(run, workers.overhead_s, hourly_price, noise) for run, workers in runs]
    each = math.ceil(_TABLES / len(values)) if noise else 1
    noisy = [value for value in values for _ in range(each)]
    tables = [tabulate(*run, seed + number * _SEEDS) for number, run in enumerate(noisy)]
    return resample(tables, tabulate(*values[0]))


def compare(
    present: Resampled, candidate: Resampled, model_error: Mapping[str, float]
) -> Comparison:
    """Compare runs in pairs with equal constants.

    Intervals cover sessions and constants. Those of the figures are at least as wide as the model
    error of the backtest (relative for TTFT, absolute for hit rates); in changes it cancels.
    """
    base, other = present.figures, candidate.figures
    draws = list(zip(present.draws, candidate.draws, strict=True))
    return Comparison(
        {name: _estimate(base, present.draws, name, model_error) for name in base},
        {name: _estimate(other, candidate.draws, name, model_error) for name in other},
        {
            name: _change(base, other, draws, name)
            for name in base
            if name in other and (base[name] or name in RATES)
        },
        max(present.spread, candidate.spread),
    )


def _estimate(
    value: Mapping[str, float],
    draws: Sequence[Mapping[str, float]],
    name: str,
    model_error: Mapping[str, float],
) -> Estimate:
    present = value[name]
    low, high = interval([draw[name] for draw in draws])
    error = abs(model_error.get(name, 0.0))
    if name in TTFT:
        low, high = min(low, present / (1 + error)), max(high, present * (1 + error))
    elif name in RATES:
        low, high = max(0.0, min(low, present - error)), min(1.0, max(high, present + error))
    return Estimate(present, min(low, present), max(high, present))


def _change(
    base: Mapping[str, float],
    other: Mapping[str, float],
    draws: Sequence[tuple[Mapping[str, float], Mapping[str, float]]],
    name: str,
) -> Estimate:
    """Return the relative change; of rates the difference."""
    if name in RATES:
        value = other[name] - base[name]
        differences = [right[name] - left[name] for left, right in draws]
    else:
        value = other[name] / base[name] - 1
        differences = [right[name] / left[name] - 1 for left, right in draws if left[name]]
    low, high = interval(differences)
    return Estimate(value, min(low, value), max(high, value))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 5 % and 95 % quantiles."""
    ordered = sorted(values)
    cut = len(ordered) // 20
    return ordered[cut], ordered[-1 - cut]
