"""python -m bench.isolation_preview: predicted and measured effect of cache isolation.

One router and two simulated workers serve streamed completions of four key groups with common
system prompts, first without isolation and recorded, then the same requests at the same times under
isolation by group, from empty caches. Printed: what the preview predicts from the recording, and
what the workers reported; then without isolation once more, to show how the machine changed. Real
time: three times `--seconds`. `--virtual`: the same in virtual time, with workers of known
constants, for many runs: how often the intervals hold what was measured.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.advice import RecordingChooser
from bench.peers import Process
from bench.rig import busy, free_ports, machine
from endpoints.simulated_worker.engine import PREFILL_S
from routing.traces.records import read_streams
from routing.traces.trace import Trace, TraceRequest
from routing.whatif.model.analysis import Configuration, analyse, as_document
from routing.whatif.model.isolation import HOURS_A_MONTH, scope_of
from routing.whatif.model.scenario import plan_trace
from routing.whatif.simulation.hardware import Hardware
from routing.whatif.simulation.replay import WARM_UP, simulate

GROUPS = 4
TEMPLATES = 3
WORKERS = 2
BLOCK = 16
DEVICE_BLOCKS = 800
_TEMPLATE_WORDS, _DOCUMENT_WORDS = 700, 300
_WORDS = ("river", "stone", "cloud", "paper", "green", "window", "light", "market", "engine")


@dataclass(frozen=True)
class TimedPrompt:
    at: float
    group: str
    prompt: str
    max_tokens: int


def words(seed: str, count: int) -> str:
    chance = random.Random(seed)
    return f"{seed} " + " ".join(chance.choices(_WORDS, k=count))


def traffic(seconds: float, rate: float) -> list[TimedPrompt]:
    """Return prompts: a common template, one of the group's documents, and a new question."""
    chance = random.Random(5)
    at = 0.0
    found: list[TimedPrompt] = []
    while (at := at + chance.expovariate(rate)) < seconds:
        group = f"g{chance.choices(range(GROUPS), weights=(5, 3, 1, 1))[0]}"
        parts = (
            words(f"template {chance.randrange(TEMPLATES)}", _TEMPLATE_WORDS),
            words(f"document {group} {chance.randrange(4)}", _DOCUMENT_WORDS),
            words(f"question {len(found)}", chance.randint(20, 150)),
        )
        found.append(TimedPrompt(at, group, "\n".join(parts), chance.randint(4, 32)))
    return found


@contextmanager
def served(folder: Path, isolation: str, speed: float) -> Iterator[tuple[int, int]]:
    """Start workers and a router; yield its data and admin ports."""
    port, admin, *ports = free_ports(2 + WORKERS)
    digests = {f"g{n}": hashlib.sha256(f"g{n}".encode()).hexdigest() for n in range(GROUPS)}
    keys = [{"id": one, "sha256": digest, "group": one} for one, digest in digests.items()]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    (folder / "hash.key").write_text("k" * 64)
    config = {
        "listen": f"127.0.0.1:{port}",
        "admin": f"127.0.0.1:{admin}",
        "workers": [
            {"id": f"w{at}", "url": f"http://127.0.0.1:{ports[at]}"} for at in range(WORKERS)
        ],
        "api_keys_file": "keys.json",
        "hash_key_file": "hash.key",
        "cache_isolation": isolation,
        "recording": {"enabled": True},
        "model": "m",
    }
    (folder / "router.json").write_text(json.dumps(config))
    python = sys.executable
    worker = ("-m", "endpoints.simulated_worker", "--model", "m", "--block-size", str(BLOCK))
    limits = ("--device-blocks", str(DEVICE_BLOCKS), "--speed", str(speed))
    processes = [
        Process((python, *worker, *limits, "--listen", f"127.0.0.1:{one}"), one, None)
        for one in ports
    ]
    processes.append(
        Process(
            (python, "-m", "routing.engine", "--config", str(folder / "router.json")), port, None
        )
    )
    try:
        processes[-1].wait_until_serving("g0")
        yield port, admin
    finally:
        for process in reversed(processes):
            process.stop()


def send(port: int, asks: Sequence[TimedPrompt]) -> None:
    """Send each at its time."""
    begin = time.monotonic()
    threads = []
    for ask in asks:
        time.sleep(max(begin + ask.at - time.monotonic(), 0))
        threads.append(threading.Thread(target=_send, args=(port, ask)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _send(port: int, ask: TimedPrompt) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"model": "m", "prompt": ask.prompt, "max_tokens": ask.max_tokens, "stream": True}
    headers = {"authorization": f"Bearer {ask.group}", "content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")
    connection.close()


def collect(admin: int, count: int) -> Trace:
    """Return what the router recorded."""
    pieces: list[dict[str, Any]] = []
    while sum(piece["requests"] for piece in pieces) < count:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/recording", timeout=10) as answer:
            pieces = json.load(answer)["pieces"]
        time.sleep(0.2)
    streams: dict[int, list[bytes]] = {}
    for piece in pieces:
        streams.setdefault(piece["stream"], []).append(base64.b64decode(piece["data"]))
    return read_streams(streams.values(), 0.0, 1e12)


def run(asks: Sequence[TimedPrompt], isolation: str, speed: float) -> Trace:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), isolation, speed) as ports:
        send(ports[0], asks)
        return collect(ports[1], len(asks))


# -- virtual time

TRUTH = Hardware("truth", 0.012, 40e-6, 0.7e-9, 0.3e-3, 12_000, block_tokens=64, overhead_s=0.008)
_SIZES = {"template": 22, "document": 10}  # blocks of 64 tokens


def simulated(count: int, rate: float, seed: int) -> list[TraceRequest]:
    """Return requests like `traffic`, not measured yet."""
    chance = random.Random(seed)
    names: dict[object, int] = {}
    at = 0.0
    found = []
    for number in range(count):
        at += chance.expovariate(rate)
        group = f"g{chance.choices(range(GROUPS), weights=(5, 3, 1, 1))[0]}"
        template, document = chance.randrange(TEMPLATES), chance.randrange(4)
        parts = (
            *(("template", template, n) for n in range(_SIZES["template"])),
            *(("document", group, document, n) for n in range(_SIZES["document"])),
            *(("question", number, n) for n in range(chance.randint(1, 6))),
        )
        blocks: tuple[int, ...] = ()
        for part in parts:  # a block's name stands for all before it
            blocks += (names.setdefault((*blocks[-1:], part), len(names)),)
        tokens, answer = 64 * len(blocks) - chance.randrange(64), chance.randint(4, 32)
        found.append(TraceRequest(at, tokens, answer, blocks, key_group=group))
    return found


def measure_virtually(
    requests: Sequence[TraceRequest], configuration: Configuration, seed: int
) -> Trace:
    """Return the requests as workers with known constants answer them; times vary by 10 %."""
    chance = random.Random(seed)
    trace = Trace(64, requests, 1e9, configuration.isolation)
    planned = plan_trace(trace, scope=partial(scope_of, isolation=configuration.isolation))
    chooser = RecordingChooser(configuration.strategy, configuration.replicas, TRUTH)
    run = simulate(planned.requests, TRUTH, configuration.replicas, chooser, 0.0)
    rows = []
    for one, job in zip(requests, run.jobs, strict=True):
        ttft = (job.first_at - job.arrived + TRUTH.overhead_s) * chance.lognormvariate(0, 0.1)
        decode = (job.done_at - job.first_at) * chance.lognormvariate(0, 0.1)
        rows.append(
            replace(
                one,
                worker=f"w{chooser.workers[job.tag]}",
                ttft_s=ttft,
                cached_tokens=job.cached,
                duration_s=ttft + decode,
            )
        )
    return replace(trace, requests=rows)


def compare_virtually(seeds: Sequence[int], count: int, rate: float, change: str) -> None:
    """Print how often the 90 % intervals hold what was measured, over runs with other traffic."""
    held: dict[str, list[bool]] = {}
    widths: dict[str, list[float]] = {}
    errors: dict[str, list[float]] = {}
    refused = 0
    field, _, value = change.partition("=")
    present = present_configuration(TRUTH.cache_tokens)
    wanted: Any = {field: int(value) if field == "replicas" else value}
    candidate = replace(present, **wanted)
    for seed in seeds:
        requests = simulated(count, rate, seed)
        before = measure_virtually(requests, present, seed)
        after = measure_virtually(requests, candidate, seed + 1000)
        document = as_document(analyse(before, present, candidate))
        if document["backtest"]["refusal"]:
            refused += 1
            continue
        for row in document.get("isolation", {"rows": [{"scope": "", **document}]})["rows"]:
            scope = row["scope"].removeprefix("group ")
            was, became = measured(before, scope), measured(after, scope)
            kind = "group" if scope else "all"
            for name, real in became.items():
                one = row["candidate"][name]
                held.setdefault(f"{kind} {name}", []).append(one["low"] <= real <= one["high"])
                wide = one["high"] - one["low"]
                wide /= 1.0 if name == "hit_rate" else real
                widths.setdefault(f"{kind} {name}", []).append(wide)
                wrong = one["value"] - real if name == "hit_rate" else one["value"] / real - 1
                errors.setdefault(f"{kind} {name}", []).append(wrong)
                if name != "hit_rate":
                    one, came = row["change"][name], real / was[name] - 1
                    holds = one["low"] <= came <= one["high"]
                    held.setdefault(f"{kind} change of {name}", []).append(holds)
                    wide = one["high"] - one["low"]
                    widths.setdefault(f"{kind} change of {name}", []).append(wide)
                    errors.setdefault(f"{kind} change of {name}", []).append(one["value"] - came)
            if "isolation" not in document:
                continue
            seconds = added_seconds(before, after, scope, TRUTH.prefill_s, TRUTH.context_s)
            for name, real in (
                ("added_prefill_s_per_hour", seconds),
                ("added_usd_per_month", seconds * PRICE / 3600 * HOURS_A_MONTH),
            ):
                one = row[name]
                held.setdefault(f"{kind} {name}", []).append(one["low"] <= real <= one["high"])
                wide = (one["high"] - one["low"]) / max(real, 1.0)
                widths.setdefault(f"{kind} {name}", []).append(wide)
                errors.setdefault(f"{kind} {name}", []).append(one["value"] / max(real, 1.0) - 1)
    print(f"{change}: {len(seeds)} runs ({seeds[0]} to {seeds[-1]}) of {count} at {rate:g}/s, "
          f"{refused} refused by the backtest")  # fmt: skip
    print("| figure, isolated | measured within the 90 % interval | mean (median) width "
          "| error, median (range) |")  # fmt: skip
    print("|---|---|---|---|")
    for name, holds in held.items():
        wrong = sorted(errors[name])
        middle = wrong[len(wrong) // 2]
        print(
            f"| {name} | {sum(holds)} of {len(holds)} | {statistics.mean(widths[name]):.1%} "
            f"({statistics.median(widths[name]):.1%}) | "
            f"{middle:+.1%} ({wrong[0]:+.1%} to {wrong[-1]:+.1%}) |"
        )


# -- results

PRICE = 1.0  # USD/h of a worker


def present_configuration(device_tokens: int) -> Configuration:
    return Configuration(
        "prefixaware",
        WORKERS,
        device_tokens=device_tokens,
        hourly_price=PRICE,
        isolation="shared",
    )


def preview(recorded: Trace, device_tokens: int) -> dict[str, Any]:
    present = present_configuration(device_tokens)
    return as_document(analyse(recorded, present, replace(present, isolation="group")))


def counted(trace: Trace, group: str = "") -> list[TraceRequest]:
    """Return the requests after the warm-up, of one group's key."""
    later = trace.requests[int(len(trace.requests) * WARM_UP) :]
    return [one for one in later if not group or one.key_group == group]


def measured(trace: Trace, group: str = "") -> dict[str, float]:
    chosen = counted(trace, group)
    ttft = sorted(one.ttft_s for one in chosen if one.ttft_s is not None)
    prompts = sum(one.prompt_tokens for one in chosen)
    return {
        "hit_rate": sum(one.cached_tokens or 0 for one in chosen) / prompts,
        "ttft_p50_s": ttft[len(ttft) // 2],
        "ttft_p90_s": ttft[int(0.9 * len(ttft))],
    }


def added_seconds(
    before: Trace, after: Trace, group: str, prefill_s: float, context_s: float = 0.0
) -> float:
    """Return the added computing time per hour: measured tokens, times known."""

    def seconds(trace: Trace) -> float:
        found = 0.0
        for one in counted(trace, group):
            cached = one.cached_tokens or 0
            found += prefill_s * (one.prompt_tokens - cached)
            found += context_s * (one.prompt_tokens**2 - cached**2) / 2
        return found

    hours = (before.requests[-1].arrived_s - counted(before)[0].arrived_s) / 3600
    return (seconds(after) - seconds(before)) / hours


def show(
    document: dict[str, Any], before: Trace, after: Trace, again: Trace, speed: float | None
) -> None:
    """Print predicted beside measured; without `speed`, no time of prefill (it is not known)."""
    for row in document["backtest"]["rows"]:
        print(f"backtest {row['name']}: {row['predicted']:.4g}, measured {row['measured']:.4g}")
    if document["backtest"]["refusal"]:
        print(f"refused: {document['backtest']['refusal']}")
    if "isolation" not in document:
        return
    print(
        "| scope | figure | now: predicted, measured before and after | "
        "isolated: predicted (90 %), measured |"
    )
    print("|---|---|---|---|")
    for row in document["isolation"]["rows"]:
        scope = row["scope"].removeprefix("group ")
        was, became, control = (measured(one, scope) for one in (before, after, again))
        title = row["scope"][:24] or "all"
        for name, real in became.items():
            if name not in row["candidate"]:
                continue
            now, then = row["present"][name], row["candidate"][name]
            print(
                f"| {title} | {name} | {now['value']:.3f}, {was[name]:.3f} and "
                f"{control[name]:.3f} | "
                f"{then['value']:.3f} ({then['low']:.3f} to {then['high']:.3f}), {real:.3f} |"
            )
        if speed is None:
            continue
        seconds = added_seconds(before, after, scope, PREFILL_S / speed)
        for name, real in (
            ("added_prefill_s_per_hour", seconds),
            ("added_usd_per_month", seconds * PRICE / 3600 * HOURS_A_MONTH),
        ):
            one = row[name]
            if one is not None:
                print(
                    f"| {title} | {name} | | {one['value']:.1f} ({one['low']:.1f} to "
                    f"{one['high']:.1f}), {real:.1f} |"
                )
    cached = [sum(one.cached_tokens or 0 for one in trace.requests) for trace in (before, after)]
    added = document["isolation"]["rows"][0]["added_tokens_in_replay"]
    print(f"added computed tokens, from empty caches: {added}, measured {cached[0] - cached[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=4.0, help="requests/s")
    parser.add_argument("--speed", type=float, default=20.0, help="of the simulated workers")
    parser.add_argument("--virtual", type=int, default=0, metavar="RUNS", help="in virtual time")
    parser.add_argument("--requests", type=int, default=600, help="of a run in virtual time")
    parser.add_argument(
        "--change", default="isolation=group", help="in virtual time: also strategy or replicas"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first run in virtual time")
    flags = parser.parse_args()
    if flags.virtual:
        print(machine())
        seeds = range(flags.seed, flags.seed + flags.virtual)
        compare_virtually(seeds, flags.requests, flags.rate, flags.change)
        return
    asks = traffic(flags.seconds, flags.rate)
    print(f"{machine()}; {len(asks)} requests of {GROUPS} groups, {WORKERS} simulated workers")
    before, after, again = (run(asks, one, flags.speed) for one in ("shared", "group", "shared"))
    show(preview(before, BLOCK * DEVICE_BLOCKS), before, after, again, flags.speed)
    print(busy())


if __name__ == "__main__":
    main()
