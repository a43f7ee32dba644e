"""python -m bench.isolation_preview: predicted and measured effect of cache isolation.

One router and two simulated workers serve streamed completions of four key groups with common
system prompts, first without isolation and recorded, then the same requests at the same times under
isolation by group, from empty caches. Printed: what the preview predicts from the recording, and
what the workers reported. Real time: twice `--seconds`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import random
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import Process
from bench.rig import free_ports, machine
from routing.traces.records import read_streams
from routing.traces.trace import Trace
from routing.whatif.model.analysis import Configuration, analyse, as_document
from routing.whatif.simulation.replay import WARM_UP

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


def measured(trace: Trace, group: str = "") -> dict[str, float]:
    """Return the figures of the requests after the warm-up, of one group's key."""
    later = trace.requests[int(len(trace.requests) * WARM_UP) :]
    chosen = [one for one in later if not group or one.key_group == group]
    ttft = sorted(one.ttft_s for one in chosen if one.ttft_s is not None)
    prompts = sum(one.prompt_tokens for one in chosen)
    return {
        "hit_rate": sum(one.cached_tokens or 0 for one in chosen) / prompts,
        "ttft_p50_s": ttft[len(ttft) // 2],
        "ttft_p90_s": ttft[int(0.9 * len(ttft))],
    }


def show(document: dict[str, Any], before: Trace, after: Trace) -> None:
    for row in document["backtest"]["rows"]:
        print(f"backtest {row['name']}: {row['predicted']:.4g}, measured {row['measured']:.4g}")
    if "isolation" not in document:
        print(f"no preview: {document['backtest']['refusal']}")
        return
    print("| scope | figure | now: predicted, measured | isolated: predicted (90 %), measured |")
    print("|---|---|---|---|")
    for row in document["isolation"]["rows"]:
        scope = row["scope"].removeprefix("group ")
        was, became = measured(before, scope), measured(after, scope)
        for name, real in became.items():
            if name not in row["candidate"]:
                continue
            now, then = row["present"][name], row["candidate"][name]
            print(
                f"| {row['scope'][:14] or 'all'} | {name} | {now['value']:.3f}, {was[name]:.3f} | "
                f"{then['value']:.3f} ({then['low']:.3f} to {then['high']:.3f}), {real:.3f} |"
            )
    cached = [sum(one.cached_tokens or 0 for one in trace.requests) for trace in (before, after)]
    added = document["isolation"]["rows"][0]["added_tokens_in_replay"]
    print(f"added computed tokens, from empty caches: {added}, measured {cached[0] - cached[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--rate", type=float, default=4.0, help="requests/s")
    parser.add_argument("--speed", type=float, default=20.0, help="of the simulated workers")
    flags = parser.parse_args()
    asks = traffic(flags.seconds, flags.rate)
    print(f"{machine()}; {len(asks)} requests of {GROUPS} groups, {WORKERS} simulated workers")
    before = run(asks, "shared", flags.speed)
    present = Configuration(
        "prefixaware",
        WORKERS,
        device_tokens=BLOCK * DEVICE_BLOCKS,
        hourly_price=1.0,
        isolation="shared",
    )
    candidate = Configuration(**{**vars(present), "isolation": "group"})
    document = as_document(analyse(before, present, candidate))
    show(document, before, run(asks, "group", flags.speed))


if __name__ == "__main__":
    main()
