"""Cost of tokenizing prompts in the router: a whole prompt, and a chat's next turn.

    .venv/bin/python -m bench.tokens [--model FOLDER] [--tokens 8192] [--rounds 15]

Sends a chat of about that many tokens through the tokenizer service as the router does: first turn
(nothing cached), the same again, then turns that each add a response and a question. Prints the
time `submit` blocks the event loop (without parsing the body, which the router does), the time
until the tokens are available, and the longest delay of another callback. Compares with full
tokenization. Times are the best of all rounds, to exclude other load.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from routing.engine.kv import chain
from routing.engine.tokens import requests
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.service import TokenOutcome, TokensConfig, TokenService
from routing.engine.tokens.tokenizer import LocalTokens, load_model_files

CHAT = b"/v1/chat/completions"
_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or which
one had all when there can an their more if will would about out up what time other cache worker
prompt token router block prefix model answer question table window market
"""
_WORDS = _TEXT.split()


def words(chance: random.Random, count: int) -> str:
    picked = [chance.choice(_WORDS) for _ in range(count)]
    for at in range(0, count, 11):
        picked[at] = picked[at].capitalize() + ("," if at % 3 else ".")
    return " ".join(picked)


@dataclass
class Times:
    held: list[float] = field(default_factory=list)
    until: list[float] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)

    def line(self, name: str) -> str:
        numbers = [1e3 * min(values) for values in (self.held, self.until, self.blocked)]
        shown = "".join(f"{number:>12.3f}" for number in numbers)
        return f"{name:<34}{shown}   {', '.join(sorted(self.reasons))}"


class Ticker:
    """Measures the longest pause of the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self.longest = 0.0
        self._on = False

    def start(self) -> None:
        self._on, self.longest, self._last = True, 0.0, time.perf_counter()
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        if self._on:
            self._loop.call_soon(self._tick)

    def stop(self) -> None:
        self._on = False


async def measure(service: TokenService, body: dict[str, Any], times: Times) -> TokenOutcome:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[TokenOutcome] = loop.create_future()
    ticker = Ticker()
    ticker.start()
    await asyncio.sleep(0)
    began = time.perf_counter()
    result = service.submit(CHAT, body, "m", ended.set_result)
    held = time.perf_counter() - began
    outcome = result if isinstance(result, TokenOutcome) else await ended
    assert outcome.tokens is not None, outcome.reason
    before = time.perf_counter()
    outcome.tokens.chain(1, 16)
    hashing = time.perf_counter() - before
    times.until.append(time.perf_counter() - began)
    await asyncio.sleep(0)
    ticker.stop()
    times.held.append(held + hashing)
    times.blocked.append(max(ticker.longest, hashing))
    times.reasons.add(outcome.reason)
    return outcome


async def run(local: LocalTokens, tokens: int, rounds: int, turns: int) -> None:
    names = ("first turn", "the same again", "next turn", "a long next turn (2k tokens)")
    times = {name: Times() for name in names}
    full = Times()
    count = 0
    for number in range(rounds):
        chance = random.Random(number)
        each = tokens // (turns * 2)
        messages: list[dict[str, str]] = [{"role": "system", "content": words(chance, 40)}]
        for turn in range(turns * 2 - 1):
            role = "assistant" if turn % 2 else "user"
            messages.append({"role": role, "content": words(chance, each)})
        service = TokenService(TokensConfig(wait_s=30), local)
        body: dict[str, Any] = {"messages": messages}
        outcome = await measure(service, body, times["first turn"])
        assert outcome.tokens is not None
        count = outcome.tokens.count
        await measure(service, body, times["the same again"])
        for name, answer in (("next turn", 150), ("a long next turn (2k tokens)", 1900)):
            messages.append({"role": "assistant", "content": words(chance, answer)})
            messages.append({"role": "user", "content": words(chance, 40)})
            outcome = await measure(service, body, times[name])
        assert outcome.tokens is not None
        began = time.perf_counter()
        requested = requests.read_prompt(CHAT, body, local.defaults)
        assert isinstance(requested, requests.ChatPrompt)
        ids = local.ids(requested)
        chain.extend_chain(1, ids.tobytes(), 16)
        full.held.append(time.perf_counter() - began)
        assert ids.tobytes() == outcome.tokens.data
        await service.close()
    full.until = full.blocked = full.held
    full.reasons.add("no memory, no thread")
    print(f"{count} tokens, {turns * 2} messages, best of {rounds}; milliseconds")
    print(f"{'':<34}{'loop held':>12}{'until there':>12}{'blocked':>12}")
    for name in names:
        print(times[name].line(name))
    print(full.line("all of it, on the loop"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("var/models/smollm2-135m-instruct"))
    parser.add_argument("--template", type=Path)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    local = LocalTokens(load_model_files(given.model, given.template), ServerDefaults())
    uvloop.run(run(local, given.tokens, given.rounds, given.turns))


if __name__ == "__main__":
    main()
