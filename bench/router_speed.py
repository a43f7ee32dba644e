"""Our router compared with vllm-router and smg: same work, same core, one run.

    .venv/bin/python -m bench.router_speed [--rounds 3] [--seconds 1.5] [--only short,long,...]
        [--compiled var/compiled]

Each work item is measured in interleaved rounds (ours, one peer, the other, and again) with a fresh
process each time; the median round is shown. The router has the first core for itself, bare workers
and load generator share the second. About five minutes; needs a C compiler.

    short     4 KB prompts in 64 groups, 32 keep-alive connections, prefix-aware
    plain     the same, round robin: cost of a request without prompt inspection
    single    4 KB prompts, one connection: latency added to a direct request
    long      128 KB prompts (32,000 tokens), 8 connections, prefix-aware
    huge      400 KB prompts (100,000 tokens) in 16 groups, 8 connections, prefix-aware
    streams   300 concurrent streams of 33 events/s, evenly spread
    steps     300 streams in lockstep, as from one engine

Our router has all features enabled: API keys, admin port, metrics, decisions, sampled access log.
The peers run with defaults and quiet logs. `bare relay` forwards bytes without parsing: the cost of
kernel and uvloop, a lower bound for any router on this event loop. Bare workers answer at once,
including vllm-router's requests to `/v1/chat/completions/render` (sent by its cache_aware before
every request) as vLLM 0.32 answers them: with the prompt's token ids.

`--compiled` adds our router from a copy whose request path is compiled (`make compiled`); the peers
are then compared with that one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import peers
from bench.peers import Process
from bench.rig import (
    EVENTS,
    Measured,
    Rig,
    busy,
    free_ports,
    machine,
    requests,
    rig,
    start_relay,
    start_router,
)

OURS = "emberline"
COMPILED = "compiled"
DIRECT = "direct"
RELAY = "bare relay"
_PREFIX = {
    OURS: "prefixaware",
    COMPILED: "prefixaware",
    peers.VLLM_ROUTER: "cache_aware",
    peers.SMG: "cache_aware",
}
_PLAIN = {
    OURS: "roundrobin",
    COMPILED: "roundrobin",
    peers.VLLM_ROUTER: "round_robin",
    peers.SMG: "round_robin",
}
_WARM_S = 0.7


@dataclass(frozen=True)
class Work:
    """Work item: requests, concurrency and strategy."""

    title: str
    policies: dict[str, str]
    prompt_bytes: int
    connections: int
    events: int = 0  # for each response; 0: not a stream
    pace_s: float = 0.0  # stream starts are spread over this time
    direct: bool = False  # also measured without a router
    groups: int = 64


WORKS = {
    "short": Work("4 KB prompts, 64 groups, 32 connections, prefix-aware", _PREFIX, 4096, 32),
    "plain": Work("4 KB prompts, 32 connections, round robin", _PLAIN, 4096, 32),
    "single": Work("4 KB prompts, 1 connection, prefix-aware", _PREFIX, 4096, 1, direct=True),
    "long": Work("128 KB prompts, 64 groups, 8 connections, prefix-aware", _PREFIX, 131_072, 8),
    "huge": Work(
        "400 KB prompts, 16 groups, 8 connections, prefix-aware", _PREFIX, 409_600, 8, groups=16
    ),
    "streams": Work("300 streams, evenly spread", _PREFIX, 1024, 300, EVENTS, pace_s=1.0),
    "steps": Work("300 streams which step together", _PREFIX, 1024, 300, EVENTS),
}


def _start(setup: Rig, name: str, policy: str, compiled: Path | None) -> Process:
    if name == RELAY:
        return start_relay(setup.ports[0])
    if name == OURS:
        return start_router(policy, setup.urls, setup.folder)
    if name == COMPILED:
        assert compiled is not None
        return start_router(policy, setup.urls, setup.folder, compiled)
    return peers.start(name, policy, setup.urls, free_ports(1)[0])


def _measure(setup: Rig, work: Work, name: str, wires: Path, flags: argparse.Namespace) -> Measured:
    seconds = flags.seconds
    if name == DIRECT:
        return setup.load(setup.ports[0], wires, work.connections, seconds)
    with _start(setup, name, work.policies.get(name, ""), flags.compiled) as router:
        # Warm-up of streams is one short wave, to open the worker connections.
        warm = setup.warm_wires if work.events else wires
        setup.load(router.port, warm, work.connections, _WARM_S)
        # One wave of streams, however long: all start within the time.
        lasting = work.pace_s + 0.05 if work.events else seconds
        return setup.load(
            router.port, wires, work.connections, lasting, router=router, pace_s=work.pace_s
        )


def _rounds(
    setup: Rig, work: Work, flags: argparse.Namespace
) -> tuple[dict[str, list[Measured]], float]:
    """Return all rounds by router, and the generator's maximum utilization."""
    stream = work.events > 0
    name = f"{work.prompt_bytes}-{int(stream)}"
    wires = setup.wires(name, requests(work.groups, work.prompt_bytes, stream))
    names = ([DIRECT] if work.direct else []) + [RELAY, OURS]
    names += [COMPILED] * (flags.compiled is not None) + [*peers.VERSIONS]
    found: dict[str, list[Measured]] = {name: [] for name in names}
    for _ in range(flags.rounds):
        for name in names:
            found[name].append(_measure(setup, work, name, wires, flags))
    most = max(one.generator_busy for name in names if name != DIRECT for one in found[name])
    return found, most


def _middle(rounds: list[Measured], value: Callable[[Measured], float]) -> float:
    return median(map(value, rounds))


def _label(work: Work, name: str) -> str:
    return f"{name} {work.policies.get(name, '')}"


def _show_rates(work: Work, found: dict[str, list[Measured]]) -> None:
    print(f"{'':28} {'requests/s':>11} {'p50 us':>8} {'p99 us':>8} {'CPU us/request':>15}")
    for name, rounds in found.items():
        cpu = _middle(rounds, lambda one: one.router_cpu_us)
        print(
            f"{_label(work, name):28} {_middle(rounds, lambda one: one.rate):11.0f}"
            f" {_middle(rounds, lambda one: one.p50_us):8.0f}"
            f" {_middle(rounds, lambda one: one.p99_us):8.0f}"
            + ("" if name == DIRECT else f" {cpu:15.1f}")
        )


def _show_events(work: Work, found: dict[str, list[Measured]]) -> None:
    print(f"{'':28} {'CPU us/event':>13} {'CPU us/stream':>14}")
    for name, rounds in found.items():
        cpu = _middle(rounds, lambda one: one.router_cpu_us)
        print(f"{_label(work, name):28} {cpu / work.events:13.2f} {cpu:14.0f}")


def _against(
    found: dict[str, list[Measured]], what: str, value: Callable[[Measured], float],
    most: float, higher: bool = False, floor: float = 0.0,
) -> None:  # fmt: skip
    """Print our ratio to the best peer, with the target of design section 6."""
    mine = _middle(found[COMPILED if COMPILED in found else OURS], value) - floor
    theirs = [_middle(found[peer], value) - floor for peer in peers.VERSIONS]
    best = max(theirs) if higher else min(theirs)
    ratio = mine / best
    met = ratio >= most if higher else ratio <= most
    sign = ">=" if higher else "<="
    verdict = "met" if met else "NOT MET"
    print(f"  {what}: {ratio:.2f} x the better peer's (target {sign} {most:g}): {verdict}")


def _show_share(found: dict[str, list[Measured]]) -> None:
    """Print capacities by CPU time, independent of other load."""
    mine = _middle(found[COMPILED if COMPILED in found else OURS], lambda one: one.router_cpu_us)
    best = min(_middle(found[peer], lambda one: one.router_cpu_us) for peer in peers.VERSIONS)
    floor = _middle(found[RELAY], lambda one: one.router_cpu_us)
    print(f"  a core carries {best / mine:.2f} x the better peer's; the floor {best / floor:.2f} x")


def _compare(key: str, work: Work, found: dict[str, list[Measured]]) -> None:
    if key == "short":
        _against(found, "requests/s", lambda one: one.rate, 5.0, higher=True)
        _against(found, "p50", lambda one: one.p50_us, 1.0)
        _against(found, "p99", lambda one: one.p99_us, 1.0)
    if key == "single":
        for what, value in (("p50", _p50), ("p99", _p99)):
            floor = _middle(found[DIRECT], value)
            _against(found, f"added latency, {what}", value, 0.5, floor=floor)
    if work.events:
        _against(found, "CPU of an event", lambda one: one.router_cpu_us, 0.65)
    if key in ("long", "huge"):
        _against(found, "CPU of a request", lambda one: one.router_cpu_us, 0.5)


def _compiled_copy(path: str) -> Path:
    """Return a copy of the source after checking that its router is compiled."""
    folder = Path(path).resolve()
    script = folder / "deploy/containers/compile_engines.py"
    if subprocess.run([sys.executable, script, folder, "--check"], check=False).returncode:
        raise argparse.ArgumentTypeError(f"{folder} is not compiled: make compiled")
    return folder


def _p50(one: Measured) -> float:
    return one.p50_us


def _p99(one: Measured) -> float:
    return one.p99_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one measurement")
    parser.add_argument("--only", default=",".join(WORKS), help="some of: " + ", ".join(WORKS))
    parser.add_argument("--compiled", type=_compiled_copy, help="copy made by `make compiled`")
    flags = parser.parse_args()
    versions = ", ".join(f"{peer} {version}" for peer, version in peers.VERSIONS.items())
    print(f"{machine()}; {versions}; median of {flags.rounds} rounds\n{busy()}", flush=True)
    peers.prepare()
    with rig() as setup:
        for key in flags.only.split(","):
            work = WORKS[key]
            found, generator = _rounds(setup, work, flags)
            print(f"== {key}: {work.title} (load generator at most {generator:.0%} busy)")
            (_show_events if work.events else _show_rates)(work, found)
            _show_share(found)
            _compare(key, work, found)
            print(flush=True)


if __name__ == "__main__":
    main()
