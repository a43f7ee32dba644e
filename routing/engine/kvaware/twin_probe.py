"""Twin probes: send a new prompt twice to a worker and verify prediction and cache hit.

Detects template mismatch, missing events and disabled caching. Runs only on an idle worker, under
its own salt; excluded from request metrics.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from routing.engine.fleet.probe_request import ProbeError, send_probe
from routing.engine.kv.match import match, match_ranks, usable_blocks
from routing.engine.kvaware.ranks import ordered_ranks, rank_header
from routing.engine.tokens.service import TokenOutcome

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker, WorkerTable
    from routing.engine.kv.match import Blocks
    from routing.engine.kvaware.placement import KvRouting
    from routing.engine.tokens.segments import TokenSequence

HIT = "hit"
REMEDIES = {
    "no_tokens": "the prompt was not tokenized: see kv.tokenizer in /index",
    "unreachable": "the worker did not respond: check its health and log",
    "refused": "the worker rejected a plain prompt: see `error`",
    "not_told": "no KV events arrived for the computed prompt: check that the tokenizer matches "
    "the worker's (chat template, model) and that the event endpoint is correct",
    "not_reported": "start the worker with --enable-prompt-tokens-details: predictions cannot be "
    "verified without it",
    "not_cached": "the engine did not have blocks reported by its events: another engine is behind "
    "this address, or its cache is too small for two requests",
}
FAILURES = tuple(REMEDIES)
# Skip reasons: the worker's own requests come first.
BUSY, DOWN, NOT_FOLLOWED, SEVERAL_RANKS = "busy", "down", "not_followed", "several_ranks"
RESULTS = (HIT, *FAILURES, BUSY, DOWN, NOT_FOLLOWED, SEVERAL_RANKS)

FIRST_AFTER_S = 10.0  # after router start
MIN_PAUSE_S = 0.1  # between two workers
ANSWER_TIMEOUT_S = 30.0
EVENTS_TIMEOUT_S = 10.0  # longer than kv.recovery.IDLE_POLL_S, which finds lost last events
POLL_INTERVAL_S = 0.05
UNKNOWN_BLOCK_TOKENS = 128  # vLLM's largest default (CPU)
_CHAT, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_PROMPT_WORDS = [
    "river", "stone", "cloud", "engine", "paper", "green", "window", "market", "light", "water",
    "house", "table",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Result of a comparison with the engine's tokenizer. `remedy` and `error` are empty on
    success; `path`: API used.
    """

    result: str
    at: float
    path: str = ""
    prompt_tokens: int = 0
    predicted: int = 0
    reported: int | None = None
    error: str = ""
    remedy: str = ""
    rank: int = -1  # -1: single rank

    @property
    def failed(self) -> bool:
        return self.result in FAILURES


class _NoVerdictYet(Exception):
    def __init__(self, result: str, error: str = "") -> None:
        super().__init__(error or result)
        self.result = result
        self.error = error


LogEvent = Callable[..., None]


class Prober:
    """Prober of tokenizers. `model`: model to request; `ranks`: number of ranks of a worker, 0
    until all are followed; ranks are probed in turn.
    """

    def __init__(
        self,
        table: WorkerTable,
        routing: KvRouting,
        interval_s: float,
        model: Callable[[], str],
        ranks: Callable[[str], int],
        log: LogEvent,
    ) -> None:
        self.last: dict[str, ProbeVerdict] = {}  # last result by worker, without skips
        self.skipped: dict[str, str] = {}  # last skip reason by worker
        self.counts: Counter[tuple[str, str]] = Counter()
        self._table = table
        self._routing = routing
        self._interval_s = interval_s
        self._model = model
        self._ranks = ranks
        self._log = log
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._chat = True  # False once a worker reports a missing chat template

    async def run(self) -> None:
        await asyncio.sleep(min(FIRST_AFTER_S, self._interval_s))
        while True:
            worker = self._next()
            if worker is not None:
                await self.probe(worker)
            workers = max(len(self._table.workers), 1)
            pause = max(self._interval_s / workers, MIN_PAUSE_S)
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))  # desynchronize replicas

    def _next(self) -> Worker | None:
        workers = self._table.workers
        for turns in (self._turns, self.last, self.skipped):
            for gone in set(turns) - set(workers):
                del turns[gone]
        for name in [name for name in self.counts if name[0] not in workers]:
            del self.counts[name]
        if not workers:
            return None
        self._turn += 1
        worker = min(workers.values(), key=lambda one: self._turns.get(one.id, 0))
        self._turns[worker.id] = self._turn
        return worker

    async def probe(self, worker: Worker) -> None:
        skip = self._why_not(worker)
        if skip:
            self.skipped[worker.id] = skip
            self.counts[worker.id, skip] += 1
            return
        self.skipped.pop(worker.id, None)
        chat, rank = self._form(worker.id)
        twins = _Twins(worker, self._routing, self._model(), chat, rank)
        try:
            await twins.run()
            verdict = twins.verdict(HIT)
        except _NoVerdictYet as end:
            verdict = twins.verdict(end.result, end.error)
        except ProbeError as error:
            verdict = twins.verdict("unreachable", str(error))
        self._chat = self._chat and not twins.no_chat
        if verdict.result == BUSY:
            self.skipped[worker.id] = BUSY
        else:
            self._report(worker, verdict)
        self.counts[worker.id, verdict.result] += 1

    def _why_not(self, worker: Worker) -> str:
        if worker.state != "up":
            return DOWN
        ranks = self._ranks(worker.id)
        if not ranks:
            return NOT_FOLLOWED
        if ranks > 1 and not ordered_ranks(self._routing.policy.index, worker.id):
            return SEVERAL_RANKS  # the second twin may reach another rank
        return BUSY if worker.in_flight else ""

    def _form(self, worker_id: str) -> tuple[bool, int]:
        """Return whether to use the chat API, and the rank: all ranks in one form, then in the
        other.
        """
        ranks = self._ranks(worker_id)
        before = self.last.get(worker_id)
        if before is None:
            return self._chat, 0 if ranks > 1 else -1
        rank = (before.rank + 1) % ranks if ranks > 1 else -1
        chat = before.path == _CHAT
        return self._chat and (chat if rank > 0 else not chat), rank

    def _report(self, worker: Worker, verdict: ProbeVerdict) -> None:
        before = self.last.get(worker.id)
        self.last[worker.id] = verdict
        if before is None or before.result != verdict.result:
            self._log(
                "warning" if verdict.failed else "info",
                "kv_probe",
                worker=worker.id,
                **{key: value for key, value in asdict(verdict).items() if key != "at"},
            )

    def show(self) -> dict[str, Any]:
        verdicts = {worker: asdict(verdict) for worker, verdict in self.last.items()}
        return {"interval_s": self._interval_s, "workers": verdicts, "skipped": dict(self.skipped)}


class _Twins:
    def __init__(
        self, worker: Worker, routing: KvRouting, model: str, chat: bool, rank: int
    ) -> None:
        self.no_chat = False
        self._worker = worker
        self._routing = routing
        self._model = model
        self._chat = chat
        self._rank = rank
        self._path = ""
        self._count = self._predicted = 0
        self._reported: int | None = None

    def verdict(self, result: str, error: str = "") -> ProbeVerdict:
        return ProbeVerdict(
            result,
            time.time(),
            self._path,
            self._count,
            self._predicted,
            self._reported,
            error[:300],
            REMEDIES.get(result, ""),
            self._rank,
        )

    async def run(self) -> None:
        """Raise _NoVerdictYet and AskError."""
        salt = f"probe-{secrets.token_hex(8)}"
        words = " ".join(random.choices(_PROMPT_WORDS, k=2 * self._block() + 2))
        self._path = _CHAT if self._chat else _COMPLETIONS
        body = self._body(words, salt)
        status, answer = await self._send(body)
        if status in (400, 404) and self._chat:
            self.no_chat = True  # a base model has no template
            self._path = _COMPLETIONS
            body = self._body(words, salt)
            status, answer = await self._send(body)
        self._refused(status, answer)
        tokens = await self._tokens(body)
        self._count = tokens.count
        await self._await_events(tokens, salt)
        status, answer = await self._send(body)
        self._refused(status, answer)
        self._judge(answer)

    def _block(self) -> int:
        return max(self._sizes() or {UNKNOWN_BLOCK_TOKENS})

    def _sizes(self) -> set[int]:
        return self._routing.policy.index.block_sizes(self._worker.id)

    def _body(self, words: str, salt: str) -> dict[str, Any]:
        body = {"model": self._model, "max_tokens": 1, "temperature": 0, "cache_salt": salt}
        if self._path == _CHAT:
            return {**body, "messages": [{"role": "user", "content": words}]}
        return {**body, "prompt": words}

    async def _send(self, body: dict[str, Any]) -> tuple[int, bytes]:
        if self._worker.in_flight:
            raise _NoVerdictYet(BUSY)
        ordered_ranks = rank_header(self._rank) if self._rank >= 0 else b""
        return await send_probe(
            self._worker, self._path, ANSWER_TIMEOUT_S, orjson.dumps(body), ordered_ranks
        )

    @staticmethod
    def _refused(status: int, answer: bytes) -> None:
        if status in (429, 503):
            raise _NoVerdictYet(BUSY)
        if status != 200:
            text = answer[:200].decode("utf-8", "replace")
            raise _NoVerdictYet("refused", f"{status}: {text}")

    async def _tokens(self, body: dict[str, Any]) -> TokenSequence:
        service = self._routing.tokens
        if service is None:
            raise _NoVerdictYet("no_tokens", "the tokenizer is being loaded")
        come: asyncio.Future[TokenOutcome] = asyncio.get_running_loop().create_future()
        accepted = service.submit(
            self._path.encode(), body, self._model, come.set_result, counted=False
        )
        if not isinstance(accepted, TokenOutcome):
            try:
                accepted = await come
            finally:
                come.cancel()
        if accepted.tokens is None:
            raise _NoVerdictYet("no_tokens", accepted.detail or accepted.reason)
        return accepted.tokens

    async def _await_events(self, tokens: TokenSequence, salt: str) -> None:
        """Wait for the block events, looked up like a caller's."""
        end = time.monotonic() + EVENTS_TIMEOUT_S
        while True:
            sizes = self._sizes()
            least_tokens = max(
                (usable_blocks(tokens.count, size) * size for size in sizes), default=1
            )
            blocks = self._routing.blocks(tokens, self._model, salt)
            self._predicted = self._held(blocks)
            if self._predicted >= least_tokens:
                return
            if time.monotonic() >= end:
                raise _NoVerdictYet("not_told")
            await asyncio.sleep(POLL_INTERVAL_S)

    def _held(self, blocks: Blocks) -> int:
        index = self._routing.policy.index
        if self._rank < 0:
            holding = match(index, blocks.chains).workers.get(self._worker.id)
        else:
            ranks = index.ranks_of(self._worker.id)
            holding = match_ranks(index, blocks.chains, ranks).get(self._rank)
        return 0 if holding is None else holding.tokens

    def _judge(self, answer: bytes) -> None:
        try:
            usage = orjson.loads(answer)["usage"]
            reported = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            raise _NoVerdictYet("refused", "the response has no usage") from None
        if type(reported) is not int:
            raise _NoVerdictYet("not_reported")
        self._reported = reported
        if reported + self._block() < self._predicted:
            raise _NoVerdictYet("not_cached")
