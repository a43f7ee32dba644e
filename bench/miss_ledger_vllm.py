"""Causes and sums of the miss ledger on real vLLM: two workers with L1 and L2, two routers.

    .venv/bin/python -m bench.miss_ledger_vllm [--rounds 6] [causes conversation agents]

`causes` injects misses and compares the main cause of each with the injected one. The others replay
the head of a recorded trace and compare the ledger's sums with vLLM's counters. Trace blocks become
token IDs, one ID for `_SCALE` tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import random
import signal
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from bench.fleet.agents import TRACE as AGENTS_TRACE
from bench.fleet.workloads import TRACE, shared_folder
from bench.rig import busy, machine
from bench.worker_events import WorkerEvents
from cachetier.vllm_connector.settings import L2Target, kv_transfer_config, model_identity
from tests.support.cachenode import CacheNode, Valkey
from tests.support.kvproxy import KvProxy
from tests.support.vllm.fixtures import BLOCK_BYTES, PASSWORD
from tests.support.vllm.installation import short_model_path
from tests.support.vllm.router_process import Router, Seat, events, main_cause, text
from tests.support.vllm.worker import Worker
from tests.support.waiting import until

_WORDS = 120  # of a prompt that is injected: four blocks
_TEMPLATE = (  # an argument changes the prompt from its start
    "{% if note is defined %}{{ note }}\n{% endif %}"
    "{% for one in messages %}{{ one.role }}: {{ one.content }}\n{% endfor %}assistant:"
)
_COUNTERS = {
    "prompt tokens": ("vllm:prompt_tokens_total", {}),
    "computed": ("vllm:prompt_tokens_by_source_total", {"source": "local_compute"}),
    "device queries": ("vllm:prefix_cache_queries_total", {}),
    "device hits": ("vllm:prefix_cache_hits_total", {}),
    "L1 and L2 hits": ("vllm:external_prefix_cache_hits_total", {}),
}
_UNSURE = {"evicted_unknown", "index_stale"}  # decisions of traces that are printed
_SCALE = 64  # tokens of a trace for one of its replay


@dataclass
class Rig:
    folder: Path
    gpu_blocks: int = 48
    l1_blocks: int = 96
    max_tokens: int = 1024
    l2_mib: int = 64
    l2_ttl_s: int = 90
    strategy: str = "kvaware"
    flags: Sequence[str] = ()  # further ones of the workers
    variables: dict[str, str] = field(default_factory=dict)  # of their environment
    proxied: bool = False  # the routers get KV events through proxies that can lose them
    seats: dict[str, Seat] = field(default_factory=dict)
    routers: list[Router] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)  # counters of processes that ended
    events: WorkerEvents = field(default_factory=WorkerEvents)
    proxies: dict[str, KvProxy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self.node = CacheNode(self.folder, memory=f"{self.l2_mib}MiB", password=PASSWORD)
        self.store = Valkey(self.folder)
        (self.folder / "hash.key").write_text("h" * 32)
        (self.folder / "chat.jinja").write_text(_TEMPLATE)
        for name in "ab":
            self.start_worker(name)
        self.wait_ready()
        more = {
            "state_store": {"url": self.store.url, "routers": 2},
            "hash_key_file": str(self.folder / "hash.key"),
            "endpoint": "misses",
            "l1_tokens": self.l1_blocks * 32,
        }
        kv: dict[str, Any] = {"probe_interval_s": 0, "l2_ttl_s": self.l2_ttl_s}
        kv["chat_template"] = str(self.folder / "chat.jinja")
        self.routers += [
            Router(self.folder, list(self.seats.values()), self.strategy, kv=kv, more=more)
            for _ in range(2)
        ]
        for router in self.routers:
            router.start()
        until(lambda: all(one.ask("/peers")["exchange"]["peers"] for one in self.routers))

    @property
    def router(self) -> Router:
        return self.routers[0]

    def start_worker(self, name: str) -> None:
        target = L2Target(
            f"redis://127.0.0.1:{self.node.port}",
            model_identity(str(short_model_path())),
            self.l2_ttl_s,
        )
        transfer = kv_transfer_config(self.l1_blocks * BLOCK_BYTES, "lru", target, "cpu")
        socket = f"ipc://{self.folder}/{name}"
        channels = (f"{socket}-kv.sock", f"{socket}-replay.sock")
        more = ["--num-gpu-blocks-override", str(self.gpu_blocks)]
        more += ["--max-model-len", str(self.max_tokens), *events(*channels)]
        more += ["--chat-template", str(self.folder / "chat.jinja"), *self.flags]
        variables = {target.password_env: PASSWORD, **self.variables}
        worker = Worker(self.folder, name, transfer, variables, *more)
        self.events.follow(name, channels[0])
        if self.proxied:
            proxy = self.proxies[name] = KvProxy(*channels)
            proxy.__enter__()
            channels = (proxy.events, proxy.replay)
        self.seats[name] = Seat(name, worker, *channels)

    def wait_ready(self) -> None:
        for seat in self.seats.values():
            seat.worker.wait_ready()

    def configure(self, draining: str = "", canary: dict[str, Any] | None = None) -> None:
        """Give the routers the present workers, and a canary or none."""
        seats = list(self.seats.values())
        for router in self.routers:
            router.seats = seats
            path = self.folder / f"router-{router.port}.json"
            workers = [seat.config() | {"draining": seat.id == draining} for seat in seats]
            config = json.loads(path.read_text()) | {"workers": workers, "canary": canary}
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(config))
            fresh.replace(path)
            if canary:
                until(lambda router=router: router.ask("/canary")["canary"], 120, "the canary")
        wanted = {seat.id: "draining" if seat.id == draining else "up" for seat in seats}
        for router in self.routers:
            until(
                lambda router=router: (
                    {one["id"]: one["state"] for one in router.ask("/workers")["workers"]} == wanted
                ),
                120,
                f"workers {wanted}",
            )
            if not draining:
                until(router.ready, 120, "events of all workers")

    def add(self, name: str) -> None:
        self.start_worker(name)
        self.wait_ready()
        self.configure()

    def remove(self, name: str) -> None:
        """As a platform does: drain, stop, remove."""
        self.configure(draining=name)
        self.count(name)
        self.seats[name].worker.stop()
        del self.seats[name]
        self.configure()

    def count(self, name: str) -> None:
        """Keep the counters of a worker that is about to end."""
        for what, (metric, labels) in _COUNTERS.items():
            self.ended[what] += int(self.seats[name].worker.metric(metric, **labels))

    def engines(self) -> Counter[str]:
        found = Counter(self.ended)
        for seat in self.seats.values():
            for what, (metric, labels) in _COUNTERS.items():
                found[what] += int(seat.worker.metric(metric, **labels))
        return found

    def ledger(self) -> Counter[str]:
        """Return the sums of both routers."""
        found: Counter[str] = Counter()
        for router in self.routers:
            misses = router.ask("/misses")
            found["computed"] += sum(misses["causes"].values())
            found["unreported"] += misses["unreported_requests"]
            for hour in misses["hours"]:
                found["requests"] += hour["requests"]
                found["prompt tokens"] += hour["prompt_tokens"]
                found["cached"] += hour["cached_tokens"]
        return found

    def close(self) -> None:
        for router in self.routers:
            router.kill()
        for proxy in self.proxies.values():
            proxy.__exit__(None, None, None)
        self.events.close()
        for seat in self.seats.values():
            seat.worker.kill()
        for part, end in (("node", "kill"), ("store", "stop")):
            if hasattr(self, part):  # else the start failed before it
                getattr(getattr(self, part), end)()


def compare(rig: Rig, before: tuple[Counter[str], Counter[str]]) -> None:
    engines, ledger = rig.engines() - before[0], rig.ledger() - before[1]
    cached = engines["device hits"] + engines["L1 and L2 hits"]
    print(f"{ledger['requests']} requests, {ledger['unreported']} unreported")
    print("| tokens | ledger | vLLM | difference |\n|---|---|---|---|")
    for name, ours, theirs in (
        ("prompt", ledger["prompt tokens"], engines["prompt tokens"]),
        ("computed", ledger["computed"], engines["computed"]),
        ("cached", ledger["cached"], cached),
    ):
        print(f"| {name} | {ours:,} | {theirs:,} | {100 * (ours / max(theirs, 1) - 1):+.3f} % |")
    print(dict(engines), flush=True)


def _lines(count: int) -> str:
    """About 11 tokens a line."""
    return "".join(
        f"{random.randrange(10**4)} {text(6, random.randrange(10**9)).partition(' ')[2]}.\n"
        for _ in range(count)
    )


class Injector:
    def __init__(self, rig: Rig, rounds: int) -> None:
        self.rig = rig
        self.rounds = rounds
        self.found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.tokens: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.served: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by L2, instead of it
        self.not_injected: Counter[str] = Counter()
        self.unequal = 0  # cases whose causes do not add up to the computed tokens

    def send(
        self, prompt: str, wanted: str = "", pin: str = "", router: int = 0, **more: Any
    ) -> dict[str, Any]:
        shown = self.rig.routers[router].complete(prompt, pin=pin, **more)
        if wanted:
            self.note(wanted, shown)
        return shown

    def chat(self, body: dict[str, Any], wanted: str) -> None:
        self.note(wanted, self.rig.router.send("/v1/chat/completions", body))

    def note(self, wanted: str, shown: dict[str, Any]) -> None:
        causes = shown["misses"]["causes"]
        computed = shown["prompt_tokens"] - shown["cached_tokens"]
        if computed < 0.5 * shown["prompt_tokens"]:
            self.not_injected[wanted] += 1
            return
        self.unequal += sum(causes.values()) != computed
        reported = main_cause(shown["misses"])
        self.found[wanted][reported] += 1
        self.tokens[wanted].update(causes)
        if reported != wanted:
            shown = {name: shown[name] for name in ("chosen", "reason", "predicted_cached_tokens")}
            print(f"  wrong: {wanted} as {causes}; {shown}", flush=True)

    def case(self, wanted: str, shown: dict[str, Any], injected: bool) -> None:
        """Note an answer, if the workers' events confirm its cause."""
        if injected:
            self.note(wanted, shown)
        else:
            self.not_injected[wanted] += 1

    def token_ids(self, prompt: str) -> list[int]:
        request = urllib.request.Request(
            f"{self.rig.seats['b'].worker.url}/tokenize",
            json.dumps({"model": "m", "prompt": prompt}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return list(json.loads(answer.read())["tokens"])

    def serve(self, prompts: Sequence[str], instead: str, pin: str = "") -> None:
        """Send prompts that L2 holds; without it their misses had the cause `instead`."""
        for prompt in prompts:
            shown = self.send(prompt, pin=pin)
            causes = shown["misses"]["causes"]
            computed = shown["prompt_tokens"] - shown["cached_tokens"]
            self.unequal += sum(causes.values()) != computed
            served = computed < 0.5 * shown["prompt_tokens"]
            self.served[instead].update(["cases", *(["served"] if served else []), *causes])
            if not served or causes.keys() - {"first_seen", "below_block"}:
                print(f"  not served by L2: {instead}, {causes}", flush=True)

    def held(self, worker: str, router: int = 0, count: int | None = None) -> list[str]:
        """Compute prompts on a worker; return those that the router knows to be there."""
        prompts = [text(_WORDS) for _ in range(count or self.rounds)]
        for prompt in prompts:
            self.send(prompt, pin=worker, router=router)
        for prompt in prompts:
            self.rig.router.knows(worker, prompt, 96)
        return prompts

    def in_l2(self, worker: str, other: str) -> list[str]:
        prompts = self.held(worker)
        for prompt in prompts:
            until(
                lambda prompt=prompt: self.rig.router.holds(other, {"prompt": prompt})["l2"] >= 96,
                what="the hint of L2",
            )
        return prompts

    # -- with L2

    def prompts(self) -> None:
        number, rules = random.randrange(10**9), _lines(22)
        self.send(f"Now: 2026-11-22 10:0{number % 10}\n{rules}", "first_seen")
        self.send(f"Now: 2026-12-03 22:1{number % 9}\n{rules}", "changed_timestamp")
        head, rules = _lines(4), _lines(20)
        self.send(f"{head}Request 9f-{number}-aa\n{rules}", "first_seen")
        self.send(f"{head}Request 0b-{number + 7}-c3\n{rules}", "changed_id")
        self.send(f"{head}Some added sentence of an editor\n{rules}", "changed_text")
        first, second, rules = _lines(4), _lines(4), _lines(18)
        self.send(first + second + rules, "first_seen")
        self.send(second + first + rules, "changed_order")
        body = {"messages": [{"role": "user", "content": _lines(20)}]}
        self.chat(body, "first_seen")
        self.chat({**body, "chat_template_kwargs": {"note": f"{number} notes"}}, "other_template")
        prompt = _lines(20)
        self.send(prompt, "first_seen")
        self.send(prompt, "other_salt", cache_salt=f"s{number}")
        self.send(prompt.replace(" ", "  ", 1), "changed_whitespace")
        self.send(prompt, "not_cacheable", prompt_logprobs=1)
        self.send("Hi there", "below_block")

    def other_router(self) -> None:
        """The same new prompt through both routers to two workers at one moment."""
        prompt = text(_WORDS)
        with ThreadPoolExecutor(2) as pool:
            both = [
                pool.submit(self.send, prompt, "", pin, number) for number, pin in enumerate("ab")
            ]
            found = [one.result() for one in both]
        # One of the two is the first.
        later = [one for one in found if main_cause(one["misses"]) != "first_seen"]
        self.note("first_seen", next((one for one in found if one not in later), found[0]))
        self.note("placed_router", later[-1] if later else found[1])

    def together(self) -> None:
        """The same new prompt twice at one moment, while the worker is busy."""
        prompt = text(_WORDS)
        with ThreadPoolExecutor(3) as pool:
            busy = pool.submit(self.send, text(500), "", "a")
            until(lambda: self._in_flight("a") >= 1, what="load")
            both = [pool.submit(self.send, prompt, "", "a") for _ in range(2)]
            found = sorted((one.result() for one in both), key=lambda one: one["time"])
            busy.result()
        self.note("in_flight", found[1])

    def evicted_from_l2(self) -> None:
        prompts = self.in_l2("a", "b")
        with Redis(port=self.rig.node.port, password=PASSWORD) as node:
            for number in range(3 * self.rig.l2_mib):
                node.set(f"other-{number}", os.urandom(2**20), ex=5)
        for prompt in prompts:
            self.send(prompt, "evicted_l2", pin="b")

    def expired_in_l2(self) -> None:
        """Half of the prompts come again at the worker that had them."""
        half = len(prompts := self.in_l2("a", "b")) // 2
        stored = time.monotonic()
        self.fill("a", prompts[:half], ("gpu", "l1"))
        time.sleep(max(stored + self.rig.l2_ttl_s + 2 - time.monotonic(), 0))
        for prompt in prompts[:half]:
            self.send(prompt, "expired_l2", pin="a")
        for prompt in prompts[half:]:
            self.send(prompt, "expired_l2", pin="b")

    def served_by_l2(self) -> None:
        """What would be a miss of each of these causes without L2."""
        rig = self.rig
        self.serve(self.in_l2("a", "b"), "placed_pinned", "b")
        prompts = self.in_l2("a", "b")
        self.reset("a")
        self.serve(prompts, "lost_reset", "a")
        prompts = self.in_l2("a", "b")
        self.restart("a")
        self.serve(prompts, "lost_restart", "a")
        rig.add("c")
        prompts = self.in_l2("b", "a")
        rig.remove("b")
        self.serve(prompts, "lost_rollout", "c")
        prompts = self.in_l2("c", "a")
        rig.remove("c")
        self.serve(prompts, "lost_scale_down")
        rig.add("b")

    def fill(self, name: str, prompts: Sequence[str], tiers: Sequence[str]) -> None:
        """Evict prompts from tiers of a worker."""
        router = self.rig.router

        def left() -> bool:
            for _ in range(4):
                self.send(text(350), pin=name)
            held = (router.holds(name, {"prompt": prompt}) for prompt in prompts)
            return not any(one[tier] for one in held for tier in tiers)

        until(left, 240, f"eviction from {name}")

    # -- without L2

    def pinned(self) -> None:
        for prompt in self.held("a"):
            self.send(prompt, "placed_pinned", pin="b")

    def load(self) -> None:
        long = {"max_tokens": 150, "ignore_eos": True}
        prompts = self.held("a")
        with ThreadPoolExecutor(6) as pool:
            running = [pool.submit(self.send, text(400), "", "a", **long) for _ in range(6)]
            until(lambda: self._in_flight("a") >= 6, what="load")
            for prompt in prompts:
                tokens = self.token_ids(prompt)
                held = self.rig.events["a"].held(tokens)
                shown = self.send(prompt)
                self.case("placed_load", shown, shown["chosen"] == "b" and held >= 96)
            for one in running:
                one.result()

    def _in_flight(self, name: str) -> int:
        workers = self.rig.router.ask("/workers")["workers"]
        return next(int(one["in_flight"]) for one in workers if one["id"] == name)

    def down(self) -> None:
        prompts = self.held("a")
        process = self.rig.seats["a"].worker.process
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            until(lambda: self._state("a") == "down", 90, "a worker that is down")
            for prompt in prompts:
                self.send(prompt, "placed_worker_down")
        finally:
            os.killpg(process.pid, signal.SIGCONT)
        until(self.rig.router.ready, 120, "the worker back")

    def _state(self, name: str) -> str:
        workers = self.rig.router.ask("/workers")["workers"]
        return next(str(one["state"]) for one in workers if one["id"] == name)

    def evicted_from_l1(self) -> None:
        """Half of the prompts were sent by the other router."""
        half = (self.rounds + 1) // 2
        prompts = self.held("a", 0, half) + self.held("a", 1, half)
        self.fill("a", prompts, ("gpu", "l1", "l2"))
        for prompt in prompts:
            self.send(prompt, "evicted_l1", pin="a")

    def restart(self, name: str) -> None:
        self.rig.count(name)
        worker = self.rig.seats[name].worker
        worker.kill()
        until(lambda: self._state(name) == "down", what="a worker that is down")
        worker.restart()
        worker.wait_ready()
        for router in self.rig.routers:
            until(router.ready, 120, "the worker back")

    def reset(self, name: str, port: int = 0) -> None:
        """Empty device and L1 through a router, or at the worker's port."""
        port = port or self.rig.router.port
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/reset_prefix_cache?reset_external=true",
            b"",
            {"x-emberline-pin": name},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()

    def was_reset(self) -> None:
        """Through the router; then at the worker, whose event comes with its next request."""
        for port in (0, self.rig.seats["a"].worker.port):
            prompts = self.held("a", 0, (self.rounds + 1) // 2)
            self.reset("a", port)
            for prompt in prompts:
                self.send(prompt, "lost_reset", pin="a")

    def strategy(self) -> None:
        """A canary sends most sessions in turn; half of them to the worker that has the prompt."""
        prompts = self.held("a", 0, 2 * self.rounds)
        canary = {"id": "c", "strategy": "roundrobin", "share": 0.99}
        self.rig.configure(canary=canary)
        for prompt in prompts:
            shown = self.send(prompt)
            if shown["chosen"] != "a":
                self.note("placed_strategy", shown)
        self.rig.configure()

    def restarted(self) -> None:
        prompts = self.held("a")
        self.restart("a")
        for prompt in prompts:
            self.send(prompt, "lost_restart", pin="a")

    def rollouts(self) -> None:
        prompts = self.held("a")
        self.rig.add("c")  # as Kubernetes does: first the new worker
        self.rig.remove("a")
        for prompt in prompts:
            self.send(prompt, "lost_rollout")
        prompts = self.held("c", 1)  # sent by the other router
        self.rig.remove("c")
        self.rig.add("d")
        for prompt in prompts:
            self.send(prompt, "lost_rollout")

    def scaled_down(self) -> None:
        prompts = self.held("d")
        self.rig.remove("d")
        for prompt in prompts:
            self.send(prompt, "lost_scale_down")

    def not_hashed(self) -> None:
        router = Router(self.rig.folder, list(self.rig.seats.values()), "roundrobin")
        try:
            router.start()
            for _ in range(self.rounds):
                self.note("not_hashed", router.complete(text(_WORDS)))
        finally:
            router.kill()

    def run(self) -> None:
        before = self.rig.engines(), self.rig.ledger()
        self._repeat(self.prompts)
        self._repeat(self.other_router)
        self._repeat(self.together)
        self._timed(self.served_by_l2)
        self._timed(self.evicted_from_l2)
        self._timed(self.expired_in_l2)
        self.rig.node.stop()
        without_l2 = (self.pinned, self.load, self.down, self.strategy, self.evicted_from_l1)
        for step in (*without_l2, self.was_reset, self.restarted):
            self._timed(step)
        self._timed(self.rollouts)
        self._timed(self.scaled_down)
        compare(self.rig, before)
        self._timed(self.not_hashed)
        self.show()

    def _repeat(self, step: Callable[[], None]) -> None:
        for _ in range(self.rounds):
            step()

    def _timed(self, step: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            step()
        except AssertionError as error:
            print(f"  {step.__name__} not completed: {error}", flush=True)
        print(f"{step.__name__}: {time.monotonic() - began:.0f} s", flush=True)

    def show(self) -> None:
        cases = sum(map(Counter.total, self.found.values()))
        right = sum(found[wanted] for wanted, found in self.found.items())
        print(f"{cases} cases, {right} right, {self.unequal} with causes that do not add up")
        print("| injected | cases | attributed as | tokens with the cause |\n|---|---|---|---|")
        for wanted, found in self.found.items():
            reported = ", ".join(f"{name} {count}" for name, count in found.most_common())
            tokens = self.tokens[wanted]
            share = 100 * tokens[wanted] / tokens.total()
            print(f"| `{wanted}` | {found.total()} | {reported} | {share:.0f} % |")
        print(
            "| with L2, instead of | cases | served by L2 | causes of the rest |\n|---|---|---|---|"
        )
        for instead, found in self.served.items():
            cases, served = found.pop("cases"), found.pop("served", 0)
            print(f"| `{instead}` | {cases} | {served} | {', '.join(found)} |")
        print("not injected (the engine had it cached):", dict(self.not_injected), flush=True)


# -- traces


def conversation(requests: int) -> Iterator[list[int]]:
    """Yield the blocks of each prompt of the conversation trace."""
    with (shared_folder() / TRACE).open() as file:
        for line in itertools.islice(file, requests):
            yield json.loads(line)["hash_ids"]


def agents(requests: int) -> Iterator[list[int]]:
    """Yield the blocks of prompts of sessions side by side, eight at a time."""
    with gzip.open(shared_folder() / AGENTS_TRACE, "rt") as file:
        sessions = [_session(json.loads(line)) for line in itertools.islice(file, 64)]
    running = sessions[:8]
    waiting = iter(sessions[8:])
    while running and requests:
        for session in list(running):
            prompt = next(session, None)
            if prompt is None:
                running.remove(session)
                running += itertools.islice(waiting, 1)
            elif requests:
                requests -= 1
                yield prompt


def _session(session: dict[str, Any]) -> Iterator[list[int]]:
    tool, system = session["tool"] // 64, (session["tool"] + session["system"]) // 64
    made: list[list[Any]] = []
    for request in session["requests"]:
        if not isinstance(request, list):
            continue
        size, _, _, _, keep, *origin = request
        head = made[origin[0] if origin else -1][:keep] if keep else []
        fresh = range(len(head), size // 64)
        names: list[Any] = [(session["id"], len(made), number) for number in fresh]
        if not made:
            shared: list[Any] = [("tool", session["tool"], n) for n in fresh[:tool]]
            shared += [
                ("system", session["tool"], session["system"], n) for n in fresh[tool:system]
            ]
            names[: len(shared)] = shared
        made.append(head + names)
        yield made[-1]


def replay(rig: Rig, name: str, prompts: Iterator[list[int]], per_block: int, lost: range) -> None:
    """Send the prompts in order, four at a time; during those in `lost`, the routers get no events
    of worker a.
    """
    before = rig.engines(), rig.ledger()
    began = time.monotonic()
    longest = cut = 0

    def send(number: int, blocks: list[int]) -> None:
        nonlocal longest, cut
        if number in (lost.start, lost.stop) and lost:
            proxy = rig.proxies["a"]
            proxy.lose_live = proxy.deaf = number == lost.start
        ids = [
            random.Random(f"{block} {n}").randrange(1000, 40_000)
            for block in blocks
            for n in range(per_block)
        ]
        longest, cut = max(longest, len(ids)), cut + (len(ids) > rig.max_tokens - 2)
        body = {"model": "m", "prompt": ids[: rig.max_tokens - 2] or [1000], "max_tokens": 1}
        request = urllib.request.Request(
            f"http://127.0.0.1:{rig.routers[number % 2].port}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda item: send(*item), enumerate(prompts)))
    print(f"{name}, 1 token for {_SCALE}; longest prompt {longest}, {cut} cut")
    print(f"{time.monotonic() - began:.0f} s; {busy()}")
    causes: Counter[str] = Counter()
    for router in rig.routers:
        causes.update(router.ask("/misses")["causes"])
        for one in router.ask("/decisions?limit=2000")["decisions"]:
            if _UNSURE & ((one["misses"] or {}).get("causes") or {}).keys():
                names = ("time", "chosen", "reason", "prompt_tokens", "cached_tokens", "misses")
                facts = {name: one[name] for name in (*names, "predicted_cached_tokens")}
                print(f"  {facts}, {one['candidates']}")
    compare(rig, before)
    print({cause: tokens for cause, tokens in causes.most_common() if tokens}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=["causes", "conversation", "agents"])
    parser.add_argument("--rounds", type=int, default=6, help="cases of each cause")
    parser.add_argument("--requests", type=int, default=300, help="of each trace")
    lose = "requests of a trace, from the 101st, during which a worker's events are lost"
    parser.add_argument("--lose-events", type=int, default=0, help=lose)
    flags = parser.parse_args()
    print(f"{machine()}\n{busy()}", flush=True)
    for part in flags.parts:
        with tempfile.TemporaryDirectory(prefix="emb-", dir="/tmp") as folder:
            # L1 and L2 are larger than the device, and smaller than the traces.
            sizes = () if part == "causes" else (144, 1500, 4096, 512, 3600)
            with contextlib.ExitStack() as stack:
                rig = Rig(Path(folder), *sizes, proxied=flags.lose_events > 0)
                stack.callback(rig.close)
                lost = range(100, 100 + flags.lose_events)
                if part == "causes":
                    Injector(rig, flags.rounds).run()
                elif part == "conversation":
                    replay(rig, part, conversation(flags.requests), 512 // _SCALE, lost)
                else:
                    replay(rig, part, agents(flags.requests), 64 // _SCALE, lost)


if __name__ == "__main__":
    main()
