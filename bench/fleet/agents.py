"""Recorded sessions of coding agents: long prompts that grow turn by turn, closed loop.

A request is sent `think_s` after the answer before it; subagents run beside each other while their
parent waits. Session arrivals are a Poisson process that began long before the run, so that as
many sessions are under way at its start as at its end. Sessions share their tool definitions and
system prompt where the recorded sizes are equal, and end before the first prompt of more than
MOST_TOKENS.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dashboards.insight.whatif.simulation.arrivals import PlannedRequest
from dashboards.insight.whatif.simulation.hardware import BLOCK_TOKENS

TRACE = "data/traces/agentic_sessions.jsonl.gz"
MOST_TOKENS = 128_000
MOST_THINK_S = 60.0
REQUESTS = 6000  # of a run
_RECORDED_BLOCK = 64
_BLOCKS = BLOCK_TOKENS // _RECORDED_BLOCK  # recorded blocks in one of the model's
_FIRST_TOKEN_S, _TOKEN_S = 1.0, 0.016  # nominal answer, for the order of requests only


@dataclass(frozen=True)
class Turn:
    """One request of a session.

    `after`: turns that must have ended, by position; empty: the first. `think_s` follows them.
    `at`: nominal time since the session's start.
    """

    blocks: tuple[Hashable, ...]  # names of whole blocks, unique in the session or shared
    prompt_tokens: int
    answer_tokens: int
    after: tuple[int, ...]
    think_s: float
    at: float

    @property
    def ends(self) -> float:
        return self.at + _FIRST_TOKEN_S + _TOKEN_S * self.answer_tokens


@cache
def sessions(file: Path, half: int) -> list[list[Turn]]:
    """Return every other recorded session, beginning with number `half`; 2: all."""
    with gzip.open(file, "rt") as lines:
        found = [_turns(json.loads(line)) for line in lines]
    return [turns for turns in (found if half == 2 else found[half::2]) if turns]


def _turns(session: dict[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    fresh = itertools.count()
    _add(turns, fresh, session, (), 0.0)
    return turns


def _add(
    turns: list[Turn],
    fresh: Iterator[int],
    agent: dict[str, Any],
    after: tuple[int, ...],
    delay_s: float,
) -> int:
    """Add the turns of an agent and its subagents; return the position of its last, -1 for none."""
    made: list[list[Hashable]] = []
    last = -1
    for row in agent["requests"]:
        if isinstance(row, dict):
            ends = [
                _add(turns, fresh, child, (last,), child["delay_s"]) for child in row["subagents"]
            ]
            after = tuple(end for end in ends if end >= 0) or after
            continue
        size, answer, think_s, _, keep, *origin = row
        if size > MOST_TOKENS:
            break
        head = made[origin[0] if origin else -1][:keep] if made and keep else _shared(agent, size)
        count = size // _RECORDED_BLOCK
        made.append(head + [next(fresh) for _ in range(count - len(head))])
        think_s = min(think_s, MOST_THINK_S) if last >= 0 else delay_s
        start = max((turns[other].ends for other in after), default=0.0) + think_s
        # Equal last blocks stand for equal prompts up to there.
        blocks = tuple(made[-1][_BLOCKS - 1 :: _BLOCKS][: size // BLOCK_TOKENS])
        turns.append(Turn(blocks, size, answer, after, think_s, start))
        last = len(turns) - 1
        after = (last,)
    return last


def _shared(agent: dict[str, Any], size: int) -> list[Hashable]:
    """Return the head of a first prompt: tools, then system prompt."""
    tool, system = agent["tool"], agent["system"]
    tools = min(tool, size) // _RECORDED_BLOCK
    whole = min(tool + system, size) // _RECORDED_BLOCK
    return [("tools", tool, at) for at in range(tools)] + [
        ("system", tool, system, at) for at in range(tools, whole)
    ]


def running(file: Path, rate: float, seed: int, half: int) -> list[PlannedRequest]:
    """Return about REQUESTS requests at about `rate` requests/s, by nominal time.

    The first turn of a session that is under way at the start comes at its nominal time.
    """
    chance = random.Random(seed)
    recorded = sessions(file, half)
    span = REQUESTS / rate
    requests = sum(map(len, recorded)) / len(recorded)
    before = max(turns[-1].ends for turns in recorded)
    names: dict[Hashable, int] = {}
    found: list[tuple[float, int, int, list[Turn]]] = []
    at = -before
    order: list[list[Turn]] = []
    number = 0
    while True:
        at += chance.expovariate(rate / requests)
        if at > span:
            break
        if not order:
            order = chance.sample(recorded, len(recorded))
        turns = order.pop()
        found += [
            (at + turn.at, number, position, turns)
            for position, turn in enumerate(turns)
            if 0 <= at + turn.at <= span
        ]
        number += 1
    found.sort(key=lambda item: item[:3])
    places = {item[1:3]: place for place, item in enumerate(found)}
    out = []
    for nominal, session, position, turns in found:
        turn = turns[position]
        after = _places(places, session, turn.after)
        chain = [names.setdefault(_name(block, session), len(names)) for block in turn.blocks]
        due = turn.think_s if after else nominal
        out.append(
            PlannedRequest(due, chain, turn.prompt_tokens, turn.answer_tokens, session, after)
        )
    return out


def _places(
    places: dict[tuple[int, int], int], session: int, after: Sequence[int]
) -> tuple[int, ...]:
    return tuple(places[session, one] for one in after if (session, one) in places)


def _name(block: Hashable, session: int) -> Hashable:
    return block if isinstance(block, tuple) else (session, block)
