"""Compare the console's estimate "saved by the cache" with the measured saving on real vLLM.

`python -m bench.cache_saving [--prompts 8] [--at-once 1 4] [--tokens 300 1700] [--settle 3]`. CPU
build, SmolLM2-135M. The same new prompts, one output token each, go to a worker without L1 and L2;
then three times to a worker with both: to fill the caches, for device hits, and, after the device
cache is cleared, for L1 hits. The true saving of a pass is its time less that of the worker
without a cache. The console's formula is shown beside it: cached tokens x seconds for an additional
one - seconds of loading, with the console's calibration
(dashboards.costs.formulas.calibration) on the worker with the cache.

CPU seconds are shown beside wall-clock seconds: other load on the machine disturbs them less.
`ratio` is the estimate without calibration: prefill seconds over computed tokens. `--settle`: delay
before each calibration request, in which writes to L1 and L2 finish.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from bench.cache_ttft import ask as ask_text
from bench.cache_ttft import l2_engine, metric, prompt, worker
from dashboards.costs.formulas import calibration
from endpoints.prompt.client import PromptAnswer

WORKER = "bench"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Seconds = Callable[[], float]
Texts = Mapping[int, Sequence[str]]


@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """Totals exported by the worker."""

    cached: float
    load_s: float
    prefill_s: float
    computed: float

    @classmethod
    def by(cls, url: str) -> WorkerCounters:
        names = (
            "vllm:prompt_tokens_cached_by_source_total",
            "vllm:kv_offload_load_time_total",
            "vllm:request_prefill_time_seconds_sum",
            "vllm:request_prefill_kv_computed_tokens_sum",
        )
        return cls(*(metric(url, name, "") for name in names))


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over all prompts: wall-clock and CPU seconds, and counter increases."""

    wall_s: float
    cpu_s: float
    cached: float
    load_s: float
    prefill_s: float
    computed: float


def cpu_seconds(port: str) -> float:
    """Return the CPU seconds of the process group that listens on the port."""
    groups: dict[int, float] = {}
    wanted = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            argv = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # process ended
        group = int(stat[2])
        groups[group] = groups.get(group, 0.0) + (int(stat[11]) + int(stat[12])) * TICK_S
        if b"--port" in argv and argv[argv.index(b"--port") + 1] == port.encode():
            wanted = group
    return groups[wanted]


def calibrate(url: str, clock: Seconds, settle_s: float) -> float:
    """Return seconds for an additional prompt token, by that clock."""

    def ask(text: str, _worker: str) -> PromptAnswer:
        body = {"model": "bench", "prompt": text, "max_tokens": 1, "temperature": 0}
        # With the delay of dashboards.endpoint_runs or without, to measure its effect.
        time.sleep(settle_s)
        before = clock()
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120).raise_for_status()
        took = clock() - before
        usage = answer.json()["usage"]
        found = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        tokens = usage["prompt_tokens"]
        return PromptAnswer(worker=WORKER, ttft_s=took, prompt_tokens=tokens, cached_tokens=found)

    measured = calibration.calibrate(WORKER, ask, lambda _stage: None)
    if measured.seconds_per_token is None:
        sys.exit(measured.problem)
    return measured.seconds_per_token


def send_prompts(url: str, texts: Sequence[str], at_once: int, cpu: Seconds) -> Pass:
    before, cpu_before, began = WorkerCounters.by(url), cpu(), time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(partial(ask_text, url, tokens=1), texts))
    wall, cpu_s, after = time.perf_counter() - began, cpu() - cpu_before, WorkerCounters.by(url)
    grown = (getattr(after, name) - getattr(before, name) for name in WorkerCounters.__slots__)
    return Pass(wall, cpu_s, *grown)


def show(what: str, cold: Pass, warm: Pass, slopes: tuple[float, float]) -> None:
    found = [f"{what:20}", f"{warm.cached - cold.cached:8.0f}"]
    ratio = cold.prefill_s / cold.computed
    for slope, took in zip(slopes, ("wall_s", "cpu_s"), strict=True):
        saved = getattr(cold, took) - getattr(warm, took)
        reported = (warm.cached - cold.cached) * slope - warm.load_s
        found += [f"{saved:8.2f}", f"{reported:8.2f}", f"{reported / saved - 1:+7.0%}"]
    by_ratio = (warm.cached - cold.cached) * ratio - warm.load_s
    found.append(f"{by_ratio / (cold.wall_s - warm.wall_s) - 1:+7.0%}")
    print(" ".join(found), flush=True)


def passes(url: str, all_texts: Texts, times: int, cpu: Seconds) -> dict[int, list[Pass]]:
    """Return the passes by concurrency; from the third on, hits are in L1."""
    found: dict[int, list[Pass]] = {}
    for at_once, texts in all_texts.items():
        found[at_once] = []
        for number in range(times):
            if number > 1:
                httpx.post(f"{url}/reset_prefix_cache", timeout=20).raise_for_status()
            found[at_once].append(send_prompts(url, texts, at_once, cpu))
    return found


@contextlib.contextmanager
def running_worker(l2: str, folder: Path, name: str) -> Iterator[tuple[str, Seconds]]:
    """Yield a worker's URL and its CPU clock."""
    with worker(l2, folder, name) as url:
        ask_text(url, prompt(64))
        yield url, partial(cpu_seconds, url.rpartition(":")[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--tokens", type=int, nargs=2, default=[300, 1700])
    parser.add_argument("--settle", type=float, default=3.0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="emberline-bench-"))
    print(
        f"{os.cpu_count()} cores, logs in {folder}; saved, told: by the clock, then of processors"
    )
    sizes = [random.randint(*options.tokens) for _ in range(options.prompts)]
    texts = {at_once: [prompt(size) for size in sizes] for at_once in options.at_once}
    with running_worker("", folder, "plain") as (url, cpu):
        plain = passes(url, texts, 1, cpu)
    with l2_engine(folder) as l2, running_worker(l2, folder, "cached") as (url, cpu):
        settle = options.settle
        slopes = calibrate(url, time.perf_counter, settle), calibrate(url, cpu, settle)
        cached = passes(url, texts, 3, cpu)
    print(
        f"a further prompt token: {slopes[0] * 1e3:.2f} ms, {slopes[1] * 1e3:.2f} ms of processors"
    )
    print(f"load of the machine: {os.getloadavg()[0]:.1f}\n")
    heads = ("saved", "told", "error", "saved", "told", "error", "ratio")
    print(f"{'':20} {'cached':>8} " + " ".join(f"{head:>8}" for head in heads))
    for at_once, (keeping, device, l1) in cached.items():
        (cold,) = plain[at_once]
        print(f"keeping, {at_once} at once: {keeping.cpu_s - cold.cpu_s:.2f} s of processors more")
        show(f"device, {at_once} at once", cold, device, slopes)
        show(f"L1, {at_once} at once", cold, l1, slopes)


if __name__ == "__main__":
    main()
