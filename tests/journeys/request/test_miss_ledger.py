"""Causes of misses injected into real vLLM with `kvaware`; EMBERLINE_MISS_CASES of each kind."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.vllm.fixtures import GPU_BLOCKS, Pair
from tests.support.vllm.router_process import Router
from tests.support.vllm.worker import BLOCK_TOKENS

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

CASES = int(os.environ.get("EMBERLINE_MISS_CASES", "1"))
_WORDS = ("river", "stone", "cloud", "the", "paper", "that", "green", "window", "light", "this")


@pytest.fixture(scope="module")
def router(vllm_pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    more = {"kv": {"probe_interval_s": 0}}
    found = Router(tmp_path_factory.mktemp("misses"), vllm_pair.seats, **more)
    try:
        found.start()
        yield found
        found.stop()
    finally:
        found.kill()


def lines(seed: int, count: int) -> str:
    """About 11 tokens a line."""
    pick = random.Random(f"misses {seed}")
    return "".join(f"{pick.randrange(10**4)} {' '.join(pick.choices(_WORDS, k=6))}.\n"
                   for _ in range(count))  # fmt: skip


class Injector:
    def __init__(self, router: Router) -> None:
        self.router = router
        self.seed = random.Random(7)
        self.computed = 0
        self.answers: list[tuple[str, dict[str, int], int]] = []

    def send(self, prompt: str, wanted: str = "", pin: str = "", **more: Any) -> str:
        """Send, note what was attributed, and return the chosen worker."""
        shown = self.router.complete(prompt, pin=pin, **more)
        causes = shown["misses"]["causes"]
        computed = shown["prompt_tokens"] - shown["cached_tokens"]
        assert sum(causes.values()) == computed
        self.computed += computed
        if wanted:
            self.answers.append((wanted, causes, shown["prompt_tokens"]))
        return str(shown["chosen"])

    def new(self) -> int:
        return self.seed.randrange(10**9)

    def fill(self, worker: str) -> None:
        """Evict what the worker holds."""
        for _ in range(3):
            self.send(lines(self.new(), GPU_BLOCKS * BLOCK_TOKENS // 2 // 14), pin=worker)

    def inject(self) -> None:
        new, rules = self.new(), lines(self.new(), 22)
        self.send(f"Now: 2026-11-22 10:0{new % 10}\n{rules}", "first_seen")
        self.send(f"Now: 2026-12-03 22:1{new % 9}\n{rules}", "changed_timestamp")
        head, rules = lines(self.new(), 4), lines(self.new(), 20)
        self.send(f"{head}Request 9f-{new}-aa\n{rules}", "first_seen")
        self.send(f"{head}Request 0b-{new + 7}-c3\n{rules}", "changed_id")
        self.send(f"{head}Some added sentence of an editor\n{rules}", "changed_text")
        prompt = lines(self.new(), 20)
        home = self.send(prompt, "first_seen")
        self.send(prompt, "other_salt", cache_salt=f"s{new}")
        self.send(prompt, "placed_pinned", pin="b" if home == "a" else "a")
        prompt = lines(self.new(), 20)
        home = self.send(prompt, "first_seen")
        self.fill(home)
        self.send(prompt, "evicted_device", pin=home)
        self.send("Hi there", "below_block")


def test_each_cause_is_attributed(router: Router, vllm_pair: Pair) -> None:
    def computed() -> float:
        return sum(
            seat.worker.metric("vllm:prompt_tokens_by_source_total", source="local_compute")
            for seat in vllm_pair.seats
        )

    before = computed()
    injector = Injector(router)
    for _ in range(CASES):
        injector.inject()
    counts = Counter(wanted for wanted, _, _ in injector.answers)
    wrong = [
        (wanted, causes)
        for wanted, causes, _ in injector.answers
        if max(causes, key=lambda one: causes[one]) != wanted
    ]
    right = {
        wanted: sum(found.get(wanted, 0) for name, found, _ in injector.answers if name == wanted)
        / sum(sum(found.values()) for name, found, _ in injector.answers if name == wanted)
        for wanted in counts
    }
    engines = computed() - before
    print(f"{len(injector.answers)} cases, {len(wrong)} wrong: {dict(counts)}")
    print("share of the computed tokens of a case that has its cause:", right)
    print(f"ledger {injector.computed} computed tokens, engines' counters {engines:.0f}")
    assert not wrong
    assert injector.computed == pytest.approx(engines, rel=0.01)
