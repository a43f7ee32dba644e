"""Workloads: the recorded trace, and questions about shared documents.

Deterministic for a seed. Synthetic workloads have two halves like the trace: constants are tuned on
half 0 and results shown for half 1.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

from bench.fleet import agents
from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS, LLAMA_70B, Hardware

TRACE = "data/traces/mooncake_conversation_first6000.jsonl"
TRACE_GRAIN_S = 3.0  # resolution of the trace's times


def shared_folder() -> Path:
    """Return the folder of recorded data: EMBERLINE_SHARED, or `shared` in the repository or above
    it.
    """
    named = os.environ.get("EMBERLINE_SHARED")
    if named:
        return Path(named)
    for parent in Path(__file__).resolve().parents[2:]:
        if (parent / "shared" / TRACE).exists():
            return parent / "shared"
    raise SystemExit("The held trace was not found: set EMBERLINE_SHARED to the folder with data/.")


def conversation(rate: float, seed: int, half: int) -> list[PlannedRequest]:
    """Return half 0 or 1 of the trace (2: all of it) at an average `rate` (requests/s).

    Trace times are multiples of three seconds: requests are spread randomly within them.
    """
    chance = random.Random(seed)
    lines = (shared_folder() / TRACE).read_text().splitlines()
    middle = len(lines) // 2
    lines = {0: lines[:middle], 1: lines[middle:], 2: lines}[half]
    rows = [json.loads(line) for line in lines]
    times = sorted(row["timestamp"] / 1000 + chance.random() * TRACE_GRAIN_S for row in rows)
    squeeze = len(rows) / (times[-1] - times[0]) / rate
    start = times[0]
    asks = []
    for at, row in zip(times, rows, strict=True):
        whole = row["input_length"] // BLOCK_TOKENS
        ids = row["hash_ids"][:whole]
        # All prompts share the first block; the second identifies the conversation.
        session = row["hash_ids"][1] if len(row["hash_ids"]) > 1 else -1
        asks.append(
            PlannedRequest(
                (at - start) * squeeze, ids, row["input_length"], row["output_length"], session
            )
        )
    return asks


@dataclass(frozen=True)
class Library:
    """Documents for questions. Popularity is 1 / rank ** skew; with each question, one document is
    replaced by a new one with probability `turnover`.
    """

    document_tokens: int
    documents_a_worker: int  # for LLAMA_70B's memory; scaled for less
    turnover: float
    skew: float
    questions: int
    question_tokens: tuple[int, int] = (32, 480)
    answer_tokens: tuple[int, int] = (50, 400)


LIBRARIES = {
    "64k": Library(65_536, 12, 0.10, 0.9, 3000),
    "8k": Library(8_192, 96, 0.25, 0.9, 4000),
    # Harder, not used for calibration: documents of three times all memory; one document with 60 %
    # of the questions.
    "64k-wide": Library(65_536, 36, 0.05, 0.9, 3000),
    "8k-wide": Library(8_192, 288, 0.05, 0.9, 4000),
    "64k-hot": Library(65_536, 12, 0.02, 2.0, 4000),
    "8k-hot": Library(8_192, 96, 0.05, 2.0, 4000),
}


def documents(
    library: Library, rate: float, seed: int, workers: int, hardware: Hardware
) -> list[PlannedRequest]:
    """Return questions with Poisson arrivals at `rate` (requests/s)."""
    chance = random.Random(seed)
    names = itertools.count(1)
    blocks = library.document_tokens // BLOCK_TOKENS
    part = (hardware.library_tokens or hardware.cache_tokens) / LLAMA_70B.cache_tokens
    size = max(4, round(library.documents_a_worker * workers * part))
    shelf = [next(names) for _ in range(size)]
    weights = list(itertools.accumulate((rank + 1) ** -library.skew for rank in range(size)))
    at = 0.0
    asks = []
    for _ in range(library.questions):
        at += chance.expovariate(rate)
        if chance.random() < library.turnover:
            shelf[chance.randrange(size)] = next(names)
        document = chance.choices(shelf, cum_weights=weights)[0]
        chain = list(range(document * blocks, (document + 1) * blocks))
        tokens = library.document_tokens + chance.randint(*library.question_tokens)
        asks.append(
            PlannedRequest(at, chain, tokens, chance.randint(*library.answer_tokens), document)
        )
    return asks


def chats(rate: float, seed: int, count: int = 3000) -> list[PlannedRequest]:
    """Return synthetic conversations, used where the trace is not available.

    All begin with one system prompt; each turn adds the previous response and a new message. A
    conversation ends after each turn with probability 1/2.
    """
    chance = random.Random(seed)
    asks: list[PlannedRequest] = []
    start = 0.0
    for name in range(1, count // 2 + 1):  # two turns on average
        start += chance.expovariate(rate / 2)
        at, tokens = start, BLOCK_TOKENS
        while True:
            tokens += round(min(60_000, chance.lognormvariate(7.5, 1.3)))
            answer = chance.randint(20, 700)
            blocks = [0, *range(name * 1000, name * 1000 + tokens // BLOCK_TOKENS - 1)]
            asks.append(PlannedRequest(at, blocks, tokens, answer, name))
            if chance.random() < 0.5 or tokens > 100_000:
                break
            tokens += answer
            at += 5 + chance.expovariate(1 / 20)
    # After the last conversation has begun, the rate would fall.
    return sorted((ask for ask in asks if ask.at <= start), key=lambda ask: ask.at)


CONVERSATION = "conversation"
CHATS = "chats"
AGENTS = "agents"
MAIN = (CONVERSATION, "64k", "8k", AGENTS)
ALL = (CONVERSATION, CHATS, AGENTS, *LIBRARIES)

# Requests/s that keep eight workers 75 % busy under the oracle; busy: at least one request without
# a first token.
RATES = {
    ("70b", CONVERSATION): 7.4,
    ("70b", CHATS): 17.8,
    ("70b", AGENTS): 4.0,
    ("70b-quarter", AGENTS): 1.0,
    ("70b", "64k"): 9.0,
    ("70b", "8k"): 39.5,
    ("70b", "64k-wide"): 4.85,
    ("70b", "8k-wide"): 33.0,
    ("70b", "64k-hot"): 31.0,
    ("70b", "8k-hot"): 70.0,
    ("70b-quarter", CONVERSATION): 6.05,
    ("70b-quarter", "64k"): 2.85,
    ("70b-quarter", "8k"): 30.4,
    ("8b", CONVERSATION): 6.7,
    ("8b", CHATS): 14.5,
    ("8b", "64k"): 7.1,
    ("8b", "8k"): 32.0,
    ("8b", "64k-wide"): 3.7,
    ("8b", "8k-wide"): 28.0,
    ("8b", "64k-hot"): 18.0,
    ("8b", "8k-hot"): 46.0,
}


def asks(
    workload: str, hardware: Hardware, workers: int, seed: int, half: int = 1, rate: float = 0.0
) -> list[PlannedRequest]:
    """Return requests; `rate` is for all workers together, 0: 75 % utilization."""
    rate = rate or RATES[hardware.name, workload] * workers / 8
    if workload == CONVERSATION:
        return conversation(rate, seed, half)
    if workload == AGENTS:
        return agents.running(shared_folder() / agents.TRACE, rate, seed, half)
    if workload == CHATS:
        return chats(rate, seed + 1000 * half)
    # The other half of a synthetic workload is another seed.
    return documents(LIBRARIES[workload], rate, seed + 1000 * half, workers, hardware)
