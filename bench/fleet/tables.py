"""Tables of docs/reference/benchmark-results.md: our strategies compared with the oracle.

Also the default strategy with other constants, fleets and inputs than those of its calibration.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from bench.fleet import workloads
from bench.fleet.oracle import LMetric, Oracle
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import Hardware
from dashboards.insight.whatif.simulation.replay import Chooser, FleetResult, run
from dashboards.insight.whatif.simulation.routers import (
    CACHE_AWARE,
    STRATEGIES,
    RouterChooser,
    RouterSetting,
    override_constant,
)
from routing.engine.policies import cost

EVALUATION_HALF = 1  # half of each workload not used for tuning
PLAIN = RouterSetting()
PATIENT = Oracle("oracle, patient", 2.0)
CONSTANTS = ("RECOMPUTE", "ANSWER_TOKENS", "WAITING_TOKENS", "SLACK", "SLACK_TOKENS")


def mean(results: Sequence[FleetResult]) -> FleetResult:
    """Average over seeds."""

    def of(value: Callable[[FleetResult], float]) -> float:
        return statistics.mean(value(result) for result in results)

    ttft = [statistics.mean(column) for column in zip(*(r.ttft_s for r in results), strict=True)]
    return FleetResult(
        results[0].name,
        (ttft[0], ttft[1], ttft[2], ttft[3]),
        of(lambda r: r.hit_rate),
        of(lambda r: r.skew),
        of(lambda r: r.utilisation),
    )


def paired(results: Sequence[FleetResult], others: Sequence[FleetResult]) -> str:
    """Return the ratio of mean TTFT by seed: geometric mean, its standard error, median, range."""
    ratios = [
        math.log(result.ttft_s[0] / other.ttft_s[0])
        for result, other in zip(results, others, strict=True)
    ]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.0
    values = (statistics.mean(ratios), statistics.median(ratios), min(ratios), max(ratios))
    whole, median, low, high = (math.exp(value) - 1 for value in values)
    return f"by seed {whole:+.1%} (SE {error:.1%}), median {median:+.1%}, {low:+.0%} to {high:+.0%}"


class Bench:
    """Runs on one kind of machine; oracle results are cached. `fill`: factor of the rates;
    `slow`: of the times of half of the workers, with rates for what is left.
    """

    def __init__(
        self,
        hardware: Hardware,
        seeds: Sequence[int],
        half: int,
        fill: float = 1.0,
        slow: float = 1,
    ) -> None:
        self.hardware = hardware
        self.seeds = seeds
        self.half = half
        self.slow = slow
        self.fill = fill * (1 + 1 / slow) / 2
        self.oracle = lru_cache(maxsize=None)(self._oracle)

    def _asks(self, workload: str, workers: int, seed: int, fill: float) -> list[PlannedRequest]:
        rate = workloads.RATES[self.hardware.name, workload] * workers / 8
        rate *= fill * self.fill
        return workloads.asks(workload, self.hardware, workers, seed, self.half, rate)

    def _oracle(self, workload: str, workers: int = 8, fill: float = 1.0) -> FleetResult:
        return mean(self.measured(Oracle(), workload, workers, fill))

    def measured(
        self, oracle: Oracle, workload: str, workers: int = 8, fill: float = 1.0
    ) -> list[FleetResult]:
        """Return an oracle's results by seed."""
        return [
            self._run(self._asks(workload, workers, seed, fill), workers, oracle)
            for seed in self.seeds
        ]

    def ours(
        self, workload: str, setting: RouterSetting, workers: int = 8, fill: float = 1.0
    ) -> FleetResult:
        return mean(self.ours_by_seed(workload, setting, workers, fill))

    def ours_by_seed(
        self, workload: str, setting: RouterSetting, workers: int = 8, fill: float = 1.0
    ) -> list[FleetResult]:
        results = []
        for seed in self.seeds:
            chooser = RouterChooser(setting, workers, self.hardware, seed)
            asks = self._asks(workload, workers, seed, fill)
            results.append(self._run(asks, workers, chooser))
        return results

    def _run(self, asks: list[PlannedRequest], workers: int, chooser: Chooser) -> FleetResult:
        slowdown = [self.slow] * (workers // 2)
        return run(asks, self.hardware, workers, chooser, slowdown)

    def over(
        self, workload: str, setting: RouterSetting, workers: int = 8, fill: float = 1.0
    ) -> float:
        """Return mean TTFT relative to the oracle's, minus 1."""
        ours = self.ours(workload, setting, workers, fill).ttft_s[0]
        return ours / self.oracle(workload, workers, fill).ttft_s[0] - 1


HEAD = f"{'':26}{'hit':>7} {'mean s':>8} {'p50':>8} {'p90':>8} {'p99':>8}   skew   busy  to oracle"


def line(result: FleetResult, oracle: FleetResult) -> str:
    ttft = " ".join(f"{value:8.3f}" for value in result.ttft_s)
    over = result.ttft_s[0] / oracle.ttft_s[0] - 1
    return (
        f"{result.name:<26}{result.hit_rate:7.1%} {ttft} {result.skew:6.2f} "
        f"{result.utilisation:6.0%} {over:+9.1%}"
    )


def show_by_seed(results: Sequence[FleetResult], others: Sequence[FleetResult]) -> None:
    print(line(mean(results), mean(others)), flush=True)
    if len(others) > 1 and results is not others:
        print(f"{'':26}{paired(results, others)}", flush=True)


def strategies(
    bench: Bench, names: Sequence[str], shown: Sequence[str] = STRATEGIES, two: bool = True
) -> None:
    """Print strategies relative to the better oracle; `two`: also two independent routers."""
    for workload in names:
        print(f"\n{bench.hardware.name}, {workload}\n{HEAD}")
        oracles = [bench.measured(oracle, workload) for oracle in (Oracle(), PATIENT)]
        oracles.sort(key=lambda results: mean(results).ttft_s[0])
        for results in oracles:
            show_by_seed(results, oracles[0])
        oracle = mean(oracles[0])
        show_by_seed(bench.measured(LMetric("LMetric, true caches"), workload), oracles[0])
        for strategy in shown:
            show_by_seed(bench.ours_by_seed(workload, RouterSetting(strategy)), oracles[0])
        for strategy in CACHE_AWARE if two else ():
            apart = bench.ours(workload, RouterSetting(strategy, routers=2))
            print(line(replace(apart, name=f"{strategy}, two routers"), oracle), flush=True)


def several_routers(bench: Bench, names: Sequence[str], counts: Sequence[int]) -> None:
    """Print routers that exchange state and, last, independent ones; relative to one router."""
    for workload in names:
        print(f"\n{bench.hardware.name}, {workload}\n{HEAD.replace('to oracle', 'to one')}")
        for strategy in CACHE_AWARE:
            one = bench.ours_by_seed(workload, RouterSetting(strategy))
            show_by_seed(one, one)
            for count in counts:
                setting = RouterSetting(strategy, routers=count, shared=True)
                many = bench.ours_by_seed(workload, setting)
                show_by_seed(
                    [replace(item, name=f"{strategy}, {count} routers") for item in many], one
                )
            apart = bench.ours(workload, RouterSetting(strategy, routers=2))
            print(line(replace(apart, name=f"{strategy}, 2 independent"), mean(one)), flush=True)


def robustness(bench: Bench, names: Sequence[str]) -> None:
    """Print the default strategy's mean TTFT relative to the oracle's."""
    print(f"\n{bench.hardware.name}: prefixaware to oracle\n{'':30}" + _row(names, "{:>14}"))

    def show(
        title: str, setting: RouterSetting = PLAIN, workers: int = 8, fill: float = 1.0
    ) -> None:
        over = [bench.over(name, setting, workers, fill) for name in names]
        print(f"{title:<30}" + _row(over, "{:>+14.1%}"), flush=True)

    show("as it is")
    for constant in CONSTANTS:
        for factor in (0.7, 1.3):
            with override_constant(constant, getattr(cost, constant) * factor):
                show(f"{constant} x {factor}")
    for workers in (4, 16):
        show(f"{workers} workers", workers=workers)
    for fill in (0.7, 1.1):
        show(f"{fill} of the rate", fill=fill)
    show("tokens wrong by up to 25 %", RouterSetting(spread=0.25))
    show("memory of workers not told", RouterSetting(sizes_known=False))
    for routers in (2, 3):
        show(f"{routers} routers", RouterSetting(routers=routers))
    with override_constant("RECOMPUTE", 1.0):
        show("RECOMPUTE 1, for contrast")


def _row(values: Sequence[object], form: str) -> str:
    return "".join(form.format(value) for value in values)
