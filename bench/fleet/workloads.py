"""What is asked of a fleet: the held trace, and questions about shared documents.

Promises the same requests for the same seed. Arrival times are in seconds at the rate asked for;
which rate fills a fleet to what degree is found by `bench.fleet.scale` and kept in RATES.
Must not know workers or routers.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

from bench.fleet.hardware import BLOCK_TOKENS

TRACE = "data/traces/mooncake_conversation_first6000.jsonl"
TRACE_GRAIN_S = 3.0  # the trace's times are multiples of it


@dataclass(frozen=True)
class Ask:
    """One request: when, the names of its prompt's whole blocks, and lengths in tokens."""

    at: float
    chain: list[int]
    prompt_tokens: int
    answer_tokens: int
    session: int  # the conversation or document it is about; -1: unknown


def shared_folder() -> Path:
    """Where held data lies: EMBERLINE_SHARED, or `shared` beside the repository or above it."""
    named = os.environ.get("EMBERLINE_SHARED")
    if named:
        return Path(named)
    for parent in Path(__file__).resolve().parents[2:]:
        if (parent / "shared" / TRACE).exists():
            return parent / "shared"
    raise SystemExit("The held trace was not found: set EMBERLINE_SHARED to the folder with data/.")


def conversation(rate: float, seed: int, half: int) -> list[Ask]:
    """Half 0 or 1 of the trace (2: all of it) at `rate` requests a second on average.

    Times of the trace are multiples of three seconds: requests are spread over theirs at random.
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
        # All prompts share the first block; the second tells conversations apart.
        session = row["hash_ids"][1] if len(row["hash_ids"]) > 1 else -1
        asks.append(
            Ask((at - start) * squeeze, ids, row["input_length"], row["output_length"], session)
        )
    return asks


@dataclass(frozen=True)
class Library:
    """Documents questions are asked about: popularity falls as 1 / rank ** skew, and with each
    question one document in `turnover` is replaced by one nobody has asked about."""

    document_tokens: int
    documents_a_worker: int
    turnover: float
    skew: float
    question_tokens: tuple[int, int]
    answer_tokens: tuple[int, int]


LONG = Library(65_536, 12, 0.10, 0.9, (32, 480), (50, 400))
SHORT = Library(8_192, 96, 0.25, 0.9, (32, 480), (50, 400))


def documents(
    library: Library, rate: float, seed: int, count: int, workers: int, cache_share: float
) -> list[Ask]:
    """`count` questions, arriving independently of each other at `rate` a second."""
    chance = random.Random(seed)
    names = itertools.count(1)
    blocks = library.document_tokens // BLOCK_TOKENS
    size = max(4, round(library.documents_a_worker * workers * cache_share))
    shelf = [next(names) for _ in range(size)]
    weights = list(itertools.accumulate((rank + 1) ** -library.skew for rank in range(size)))
    at = 0.0
    asks = []
    for _ in range(count):
        at += chance.expovariate(rate)
        if chance.random() < library.turnover:
            shelf[chance.randrange(size)] = next(names)
        document = chance.choices(shelf, cum_weights=weights)[0]
        chain = list(range(document * blocks, (document + 1) * blocks))
        tokens = library.document_tokens + chance.randint(*library.question_tokens)
        asks.append(Ask(at, chain, tokens, chance.randint(*library.answer_tokens), document))
    return asks
