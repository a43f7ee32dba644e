"""CPU time per request and memory of the miss ledger with long prompts.

    .venv/bin/python -m bench.miss_ledger_cost [--tokens 100000] [--sessions 800]

Calls `MissLedger.arrive` and `ended` with identities of the router's own reader. CPU: lowest mean
of twelve rounds. Memory: allocations of a ledger that so many sessions have filled (tracemalloc).
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import tracemalloc
from types import SimpleNamespace
from typing import Any

import orjson

from bench.rig import busy, machine
from routing.engine.config import LimitsConfig
from routing.engine.misses.ledger import MissLedger
from routing.engine.observe.decisions import Decision
from routing.engine.observe.metric_types import Registry
from routing.engine.prompt.identity import Identifier
from routing.engine.tokens.usage import BytesPerToken

PATH = b"/v1/completions"
BLOCK_BYTES = 256
TURN_TOKENS = 256
_ROUNDS, _REQUESTS = 12, 20
_LINE_BYTES = 64


def make_text(tokens: int) -> str:
    return "".join(
        f"{random.getrandbits(4 * (_LINE_BYTES - 1)):0{_LINE_BYTES - 1}x}\n"
        for _ in range(tokens * 4 // _LINE_BYTES)
    )


class Requests:
    def __init__(self) -> None:
        self.ledger = MissLedger(Registry({}))
        self.ledger.configure(BLOCK_BYTES, True)
        self.identifier = Identifier(
            b"k" * 32, BLOCK_BYTES, None, b"k" * 32, BytesPerToken(), LimitsConfig(body_bytes=2**24)
        )

    def prepare(self, text: str, cached: int) -> tuple[Any, Any]:
        body = orjson.dumps({"model": "m", "prompt": text})
        identity = self.identifier.read(PATH, body, b"", True, "")
        decision = Decision("d", time.time(), "prefixaware")
        decision.status, decision.estimated, decision.chosen = 200, False, "w"
        decision.counted = True
        decision.prompt_tokens, decision.cached_tokens = len(text) // 4, cached
        exchange = SimpleNamespace(
            decision=decision,
            facts=identity.facts,
            ask=SimpleNamespace(path=PATH),
            placing=None,
            head=SimpleNamespace(path=PATH),
        )
        return exchange, identity

    def answer(self, exchange: Any, identity: Any) -> None:
        exchange.seen = self.ledger.arrive(exchange, identity)
        self.ledger.ended(exchange)

    def measure(self, name: str, tokens: int, uncached: int, grows: bool) -> None:
        """`uncached`: tokens of each prompt; `grows`: by a turn from prompt to prompt."""
        best = float("inf")
        for _ in range(_ROUNDS):
            text = make_text(tokens)
            self.answer(*self.prepare(text, 0))
            prepared = []
            for _ in range(_REQUESTS):
                text = text + make_text(TURN_TOKENS) if grows else text
                prepared.append(self.prepare(text, len(text) // 4 - uncached))
            best = min(best, self.timed(prepared))
        print(f"{name}: {1e6 * best:.1f} µs", flush=True)

    def measure_new(self, name: str, tokens: int, compared: bool) -> None:
        best = float("inf")
        for _ in range(_ROUNDS):
            prepared = [self.prepare(make_text(tokens), 0) for _ in range(2)]
            best = min(best, self.timed(prepared, compared))
        print(f"{name}: {1e6 * best:.1f} µs", flush=True)

    def timed(self, prepared: list[tuple[Any, Any]], compared: bool = False) -> float:
        self.ledger.sketches._left = 1e9 if compared else -1e9
        began = time.thread_time()
        for one in prepared:
            self.answer(*one)
        return (time.thread_time() - began) / len(prepared)


def memory(tokens: int, sessions: int) -> None:
    requests = Requests()
    gc.collect()
    tracemalloc.start()
    for _ in range(sessions):
        text = make_text(tokens)
        requests.ledger.sketches._left = 1e9
        for _ in range(3):
            text += make_text(TURN_TOKENS)
            requests.answer(*requests.prepare(text, 0))
    requests.identifier = None  # type: ignore[assignment]
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    blocks = len(requests.ledger.history)
    print(f"{sessions} sessions of {tokens} tokens: {used / 2**20:.1f} MiB, {blocks} blocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--sessions", type=int, default=800)
    flags = parser.parse_args()
    print(f"{machine()}\n{busy()}; prompts of {flags.tokens} tokens")
    requests = Requests()
    tokens = flags.tokens
    requests.measure("repeated, all but the last block cached", tokens, 1, False)
    requests.measure("turn of an agent, all but the turn cached", tokens, TURN_TOKENS, True)
    requests.measure("known, nothing cached", tokens, tokens, False)
    requests.measure_new("new", tokens, False)
    requests.measure_new("new, compared with earlier prompts", tokens, True)
    memory(flags.tokens, flags.sessions)


if __name__ == "__main__":
    main()
