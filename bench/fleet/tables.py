"""Tables of docs/benchmarks/placement.md: our strategies compared with the oracle.

Also the default strategy with other constants, fleets and inputs than those of its calibration.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from bench.fleet import workloads
from bench.fleet.oracle import Oracle
from routing.engine.policies import cost
from routing.whatif.simulation.arrivals import PlannedRequest
from routing.whatif.simulation.hardware import Hardware
from routing.whatif.simulation.replay import FleetResult, run
from routing.whatif.simulation.routers import (
    CACHE_AWARE,
    STRATEGIES,
    RouterChooser,
    RouterSetting,
    override_constant,
)

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


class Bench:
    """Runs on one kind of machine; oracle results are cached."""

    def __init__(self, hardware: Hardware, seeds: Sequence[int], half: int) -> None:
        self.hardware = hardware
        self.seeds = seeds
        self.half = half
        self.oracle = lru_cache(maxsize=None)(self._oracle)

    def _asks(self, workload: str, workers: int, seed: int, fill: float) -> list[PlannedRequest]:
        rate = workloads.RATES[self.hardware.name, workload] * workers / 8 * fill
        return workloads.asks(workload, self.hardware, workers, seed, self.half, rate)

    def _oracle(self, workload: str, workers: int = 8, fill: float = 1.0) -> FleetResult:
        return self._asked(Oracle(), workload, workers, fill)

    def patient(self, workload: str) -> FleetResult:
        """Return the oracle with doubled recompute weight, which is better for long prompts."""
        return self._asked(PATIENT, workload, 8, 1.0)

    def _asked(self, oracle: Oracle, workload: str, workers: int, fill: float) -> FleetResult:
        return mean(
            [
                run(self._asks(workload, workers, seed, fill), self.hardware, workers, oracle)
                for seed in self.seeds
            ]
        )

    def ours(
        self, workload: str, setting: RouterSetting, workers: int = 8, fill: float = 1.0
    ) -> FleetResult:
        results = []
        for seed in self.seeds:
            chooser = RouterChooser(setting, workers, self.hardware, seed)
            asks = self._asks(workload, workers, seed, fill)
            results.append(run(asks, self.hardware, workers, chooser))
        return mean(results)

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


def strategies(bench: Bench, names: Sequence[str]) -> None:
    for workload in names:
        print(f"\n{bench.hardware.name}, {workload}\n{HEAD}")
        oracle = bench.oracle(workload)
        print(line(oracle, oracle))
        print(line(bench.patient(workload), oracle), flush=True)
        for strategy in STRATEGIES:
            print(line(bench.ours(workload, RouterSetting(strategy)), oracle), flush=True)
        for strategy in CACHE_AWARE:
            two = bench.ours(workload, RouterSetting(strategy, routers=2))
            print(line(replace(two, name=f"{strategy}, two routers"), oracle), flush=True)


def several_routers(bench: Bench, names: Sequence[str], counts: Sequence[int]) -> None:
    """Print routers that exchange state and, last, independent ones; relative to one router."""
    for workload in names:
        print(f"\n{bench.hardware.name}, {workload}\n{HEAD.replace('to oracle', 'to one')}")
        for strategy in CACHE_AWARE:
            one = bench.ours(workload, RouterSetting(strategy))
            print(line(one, one), flush=True)
            for count in counts:
                many = bench.ours(workload, RouterSetting(strategy, routers=count, shared=True))
                print(line(replace(many, name=f"{strategy}, {count} routers"), one), flush=True)
            apart = bench.ours(workload, RouterSetting(strategy, routers=2))
            print(line(replace(apart, name=f"{strategy}, 2 independent"), one), flush=True)


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
