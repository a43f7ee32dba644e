"""Sessions of a job: texts, order and start times; deterministic.

Each word is one token in common vocabularies (and in the simulated worker).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from dashboards.benchmarks.generator.job import CHAT, RATE, TRACE, Job, TraceRow
from dashboards.benchmarks.generator.traces import BLOCK_TOKENS

# Three letters and a space: four bytes per token, as in English.
_WORDS = """
the and for are but not you all any can had her was one our out day get has him his how man
new now old see two way who boy did its let put say she too use dad mom sun sky sea ice oil
air arm art bag bed box bus car cat cup cut dog dry ear eat egg end eye far fat fly fun gas
gun hat hit hot job key kid law lay leg lie lip log lot low map mix net nor off own pay pen
"""
WORDS = tuple(_WORDS.split())
Text = Callable[[], str]
"""Created when sent: a plan of fifty thousand requests needs only their lengths."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Text added to the conversation, and the maximum length of the response."""

    text: Text
    tokens: int  # planned, of `text`
    answer_tokens: int
    pause_s: float = 0.0  # since the previous response


@dataclass(frozen=True, slots=True)
class WorkloadSession:
    """A conversation; `opening` is its system prompt or document, None for none."""

    number: int
    at: float
    opening: Text | None
    opening_tokens: int
    turns: tuple[Turn, ...]


def make_sessions(job: Job) -> Iterator[WorkloadSession]:
    """Yield sessions with increasing start times `at`; endless unless a trace."""
    if job.workload == TRACE:
        return _trace(job)
    return _chats(job) if job.workload == CHAT else _documents(job)


def _arrivals(job: Job, per_session: int) -> Iterator[float]:
    """Yield Poisson arrivals with the given mean of requests/s."""
    chance = random.Random(f"arrivals {job.seed}")
    clock = 0.0
    while True:
        yield clock
        clock += chance.expovariate(job.rate / per_session)


def _chats(job: Job) -> Iterator[WorkloadSession]:
    opening = partial(_opening, job.nonce, job.system_tokens, f"system {job.seed}")
    for number, arrival in enumerate(_arrivals(job, job.turns)):
        turns = tuple(
            Turn(
                partial(words, job.turn_tokens, f"chat {job.seed} {number} {turn}"),
                job.turn_tokens,
                job.answer_tokens,
                job.think_s if turn else 0.0,
            )
            for turn in range(job.turns)
        )
        yield WorkloadSession(number, arrival, opening, job.system_tokens, turns)


def _documents(job: Job) -> Iterator[WorkloadSession]:
    chance = random.Random(f"documents {job.seed}")
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(job.documents)))
    names = range(job.documents)
    for number, arrival in enumerate(_arrivals(job, 1)):
        name = chance.choices(names, cum_weights=weights)[0]
        opening = partial(_opening, job.nonce, job.document_tokens, f"document {job.seed} {name}")
        question = partial(words, job.question_tokens, f"question {job.seed} {number}")
        turn = Turn(question, job.question_tokens, job.answer_tokens)
        yield WorkloadSession(number, arrival, opening, job.document_tokens, (turn,))


def _trace(job: Job) -> Iterator[WorkloadSession]:
    for number, row in enumerate(job.rows):
        tokens = min(row.prompt_tokens, job.prompt_limit)
        text = partial(_row_text, job, number, row, tokens)
        turn = Turn(text, tokens, min(row.answer_tokens, job.answer_tokens))
        yield WorkloadSession(
            number, row.at / job.speed if job.mode == RATE else 0.0, None, 0, (turn,)
        )


def _row_text(job: Job, number: int, row: TraceRow, tokens: int) -> str:
    """Return the texts of the blocks up to the limit, followed by unique words."""
    whole = row.blocks[: tokens // BLOCK_TOKENS]
    rest = tokens - len(whole) * BLOCK_TOKENS
    parts = [_block(job.seed, name) for name in whole]
    if rest:
        parts.append(words(rest, f"own {job.seed} {number}"))
    return _mark(job.nonce) + " ".join(parts)


def words(tokens: int, seed: str) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=tokens))


@lru_cache(maxsize=256)
def _opening(nonce: str, tokens: int, seed: str) -> str:
    return _mark(nonce) + words(tokens, seed)


@lru_cache(maxsize=4096)
def _block(seed: int, name: int) -> str:
    return words(BLOCK_TOKENS, f"block {seed} {name}")


def _mark(nonce: str) -> str:
    """Return the first words of a prompt: a prefix cache matches from there."""
    return f"Run {nonce}. "


@dataclass(frozen=True, slots=True)
class Plan:
    """Maximum load of a job, assuming immediate responses of full length."""

    requests: int
    prompt_tokens: int
    answer_tokens: int
    seconds: float
    ends_by: str  # duration_s, max_requests, max_tokens or trace: the first limit reached


def plan_load(job: Job) -> Plan:
    requests = prompt = answers = 0
    last = 0.0
    for session in make_sessions(job):
        if job.mode == RATE and session.at > job.duration_s:
            return Plan(requests, prompt, answers, job.duration_s, "duration_s")
        clock, tokens = session.at, session.opening_tokens
        for turn in session.turns:
            clock += turn.pause_s
            if job.mode == RATE and clock > job.duration_s:
                break
            tokens += turn.tokens
            requests, prompt = requests + 1, prompt + tokens
            answers += turn.answer_tokens
            tokens += turn.answer_tokens
            last = max(last, clock)
            if requests >= job.max_requests:
                return Plan(requests, prompt, answers, _end(job, last), "max_requests")
            if prompt + answers >= job.max_tokens:
                return Plan(requests, prompt, answers, _end(job, last), "max_tokens")
    return Plan(requests, prompt, answers, _end(job, last), "trace")


def _end(job: Job, last: float) -> float:
    return min(job.duration_s, last) if job.mode == RATE else job.duration_s
