"""python -m bench.advice: predicted against measured change of advice that is applied.

Simulated workers with known constants serve the first half of the recorded conversation trace under
the present configuration; a survey of that recording predicts each change. Then each change is
applied: the workers serve the second half under it, caches warm from the first. The measured change
is that of other requests, so a control shows what it is without any change.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace

from bench.fleet.workloads import conversation
from bench.rig import machine
from dashboards.advisor.formulas import gains, outcome
from dashboards.advisor.formulas.candidates import (
    CandidateOptions,
    Values,
    changed_fields,
    list_candidates,
)
from routing.traces.trace import Trace, TraceRequest
from routing.whatif.model.analysis import Configuration, as_survey, survey
from routing.whatif.model.drift import simulate_requests
from routing.whatif.model.outcome import Estimate
from routing.whatif.simulation.arrivals import PlannedRequest
from routing.whatif.simulation.hardware import LLAMA_8B, Hardware, TierModel
from routing.whatif.simulation.replay import simulate
from routing.whatif.simulation.routers import RouterChooser, RouterSetting
from routing.whatif.simulation.worker import Job

GIB, KV_KIB = 1024**3, 128.0
TRUTH = replace(LLAMA_8B, overhead_s=0.01)
PRICE = 4.0
NOISE = 0.1


class RecordingChooser(RouterChooser):
    """Chooser that remembers the placements."""

    def __init__(self, strategy: str, count: int, hardware: Hardware) -> None:
        super().__init__(RouterSetting(strategy), count, hardware, 3)
        self.workers: dict[object, int] = {}

    def choose(self, job: Job, now: float, /) -> int:
        self.workers[job.tag] = found = super().choose(job, now)
        return found


def tokens(gib: float) -> int:
    return int(gib * GIB / (KV_KIB * 1024))


def serve(requests: Sequence[PlannedRequest], values: Values, seed: int) -> list[TraceRequest]:
    """Return the requests as routers would record them; TTFT varies by NOISE."""
    l1 = TierModel(tokens(values["l1_gib"]), 2e-6) if values["l1_gib"] else None
    hardware = replace(TRUTH, l1=l1)
    chooser = RecordingChooser(values["strategy"], values["replicas"], hardware)
    run = simulate(requests, hardware, values["replicas"], chooser, 0.0)
    chance = random.Random(seed)
    found = []
    for job in run.jobs:
        ttft = (job.first_at - job.arrived + TRUTH.overhead_s) * chance.lognormvariate(0.0, NOISE)
        decode = (job.done_at - job.first_at) * chance.lognormvariate(0.0, NOISE)
        found.append(
            TraceRequest(
                *(job.arrived, job.prompt_tokens, job.answer_tokens, tuple(job.chain)),
                *(
                    f"s{job.session}" if job.session >= 0 else "",
                    f"w{chooser.workers[job.tag]}",
                    ttft,
                ),
                *(job.cached, ttft + decode),
                tiers=(job.cached - job.l1_tokens, job.l1_tokens, 0),
            )
        )
    return found


def configuration(values: Values) -> Configuration:
    return Configuration(
        values["strategy"],
        values["replicas"],
        device_tokens=TRUTH.cache_tokens,
        l1_tokens=tokens(values["l1_gib"]),
        hourly_price=values["price_usd_hour"],
    )


def _text(one: Estimate, points: bool) -> str:
    factor = 100.0
    value, low, high = (f"{factor * part:+.1f}" for part in (one.value, one.low, one.high))
    return f"{value} ({low} to {high}){' points' if points else ' %'}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.advice", description=__doc__)
    parser.add_argument("--rate", type=float, default=4.0, help="requests/s")
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--strategy", default="roundrobin")
    parser.add_argument("--l1", type=float, default=0.0, help="GiB per worker")
    flags = parser.parse_args()
    present: Values = {
        "strategy": flags.strategy, "replicas": flags.replicas, "routers": 1, "rate": 1.0,
        "speed": 1.0, "device_tokens": TRUTH.cache_tokens, "l1_gib": flags.l1, "l1_policy": "lru",
        "l2_gib": 0.0, "l2_policy": "lru", "kv_kib": KV_KIB, "price_usd_hour": PRICE,
    }  # fmt: skip
    requests = conversation(flags.rate, 1, 2)
    half = len(requests) // 2
    recorded = serve(requests, present, 2)
    trace = Trace(TRUTH.block_tokens, recorded[:half], 0.0)
    options = CandidateOptions(lambda _size: PRICE, l2=False)
    candidates = [
        one for one in list_candidates(present, options) if one["replicas"] >= flags.replicas - 1
    ]
    others = [configuration(one) for one in candidates]
    result = as_survey(survey(trace, configuration(present), others))
    print(f"{machine()}\n{half:,} requests recorded, {half:,} after; {flags}")
    for row in result["backtest"]["rows"]:
        print(f"backtest {row['name']}: error {row['error']:+.1%}")
    if result["backtest"]["refusal"]:
        print(result["backtest"]["refusal"])
        return
    before = outcome.summarize(recorded[:half])
    control = outcome.measure_changes(before, outcome.summarize(recorded[half:], 1))
    print(f"control: TTFT p90 {_text(control['ttft_p90_s'], False)}, hit rate "
          f"{_text(control['hit_rate'], True)}")  # fmt: skip
    constants = {name: one["value"] for name, one in result["calibration"]["constants"].items()}
    later = Trace(TRUTH.block_tokens, recorded[half:], 0.0)
    simulated = simulate_requests(trace, later, configuration(present), constants)
    expected = (outcome.summarize(simulated[0]), outcome.summarize(simulated[1], 1))
    print(outcome.describe_drift(outcome.measure_changes(*expected)))
    for values, figures in zip(candidates, result["candidates"], strict=True):
        row = gains.evaluate(present, values, figures, result, gains.Prices(0.0))
        done = serve(requests, values, 4)[half:]
        raw = outcome.measure_changes(before, outcome.summarize(done, 1))
        measured = outcome.measure_changes(before, outcome.summarize(done, 1), expected)
        promise = {
            name: one
            for name in ("ttft_p50_s", "ttft_p90_s", "hit_rate")
            if (one := getattr(row, name.removesuffix("_s"))) is not None
        }
        exact = row.kind == "replicas" and row.money is not None and row.money.low > 0
        verdict = outcome.judge_change(promise, measured, exact).verdict
        changed = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}"
                            for k, v in changed_fields(present, values).items())  # fmt: skip
        print(f"{changed}: {row.verdict}, {row.confidence}; outcome {verdict}")
        for name, one in promise.items():
            points = name == "hit_rate"
            texts = (_text(part, points) for part in (one, raw[name], measured[name]))
            print("  {}: predicted {}, measured {}, corrected {}".format(name, *texts), flush=True)


if __name__ == "__main__":
    main()
