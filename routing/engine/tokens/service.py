"""Token lookup for requests: inline when cached, else in a thread or by a worker.

Callers get an outcome within `wait_s`; late results are cached for the next turn unless the queue
is busy. Event loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from routing.engine.tokens import outcomes, remote, requests
from routing.engine.tokens.outcomes import NoTokens
from routing.engine.tokens.requests import ChatPrompt, IdsPrompt, Json, ServerDefaults, TextPrompt
from routing.engine.tokens.segments import CachedTokens, SegmentCache, TokenSequence
from routing.engine.tokens.splitter import Splitter
from routing.engine.tokens.tokenizer import LocalTokens, TokenizerUnusable

CHECK_EVERY = 512  # verify one in this many cached results
UNVERIFIED, VERIFIED, MISMATCH = "unverified", "verified", "mismatch"


@dataclass(frozen=True)
class TokensConfig:
    threads: int = 1  # one tokenizes about 1 million tokens/s
    queue: int = 64  # bound on queued prompts; excess ones get no tokens
    wait_s: float = 0.5  # 64k tokens take 0.1 s on an idle core
    inline_chars: int = 2048  # inline limit of new text: 0.4 ms
    inline_messages: int = 128  # inline limit of messages to render
    cache_bytes: int = 256 * 1024 * 1024
    max_chars: int = 4 * 1024 * 1024
    remote_limit: int = 16  # concurrent worker queries
    server: ServerDefaults = field(default_factory=ServerDefaults)


@dataclass(slots=True, eq=False)
class TokenOutcome:
    reason: str
    tokens: TokenSequence | None = None
    detail: str = ""


Done = Callable[[TokenOutcome], None]
# Thread part of a job; its remaining loop part, which may start another thread part.
_Work = Callable[[], "_Rest"]
_Rest = Callable[[], "TokenOutcome | _Work"]


class TokenTicket:
    """Pending result; `done` is called once, never after `cancel`."""

    __slots__ = ("_counts", "_done", "_timer")

    def __init__(
        self,
        done: Done,
        counts: dict[str, int] | None,
        loop: asyncio.AbstractEventLoop,
        wait_s: float,
    ) -> None:
        self._done: Done | None = done
        self._counts = counts
        self._timer = loop.call_later(wait_s, self.deliver, TokenOutcome(outcomes.TIMEOUT))

    @property
    def waits(self) -> bool:
        return self._done is not None

    def cancel(self) -> None:
        self._done = None
        self._timer.cancel()

    def uncount(self) -> None:
        self._counts = None

    def deliver(self, outcome: TokenOutcome) -> None:
        done, self._done = self._done, None
        if done is None:
            return
        self._timer.cancel()
        if self._counts is not None:
            self._counts[outcome.reason] += 1
        done(outcome)


@dataclass(slots=True, eq=False)
class _Job:
    """One prompt in progress and all its waiters."""

    key: object
    tickets: list[TokenTicket] = field(default_factory=list)


class TokenService:
    """Without `local` and `ask` only prompts of ids have tokens."""

    def __init__(
        self, config: TokensConfig, local: LocalTokens | None, ask: remote.Ask | None = None
    ) -> None:
        self.config = config
        self.local = local
        self.counts = dict.fromkeys(outcomes.REASONS, 0)
        self.checks = 0
        self.check_failures = 0
        self.trust = UNVERIFIED
        self.cache: SegmentCache | None = None
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[object, _Job] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._until_check = CHECK_EVERY
        self._prefix = self._suffix = b""
        self._threads: ThreadPoolExecutor | None = None
        if local is not None:
            self._threads = ThreadPoolExecutor(config.threads, "tokenize")
            self.cache = SegmentCache(Splitter(local.tokenizer), config.cache_bytes)
            self._prefix = local.tokenizer.prefix.tobytes()
            self._suffix = local.tokenizer.suffix.tobytes()

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    async def close(self) -> None:
        for job in self._jobs.values():
            for ticket in job.tickets:
                ticket.cancel()
        self._jobs.clear()
        for task in self._questions:
            task.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def submit(
        self, path: bytes, data: Json, model: str, done: Done, counted: bool = True
    ) -> TokenOutcome | TokenTicket:
        """Return an outcome, or a ticket whose `done` is called within `wait_s`. `counted`: a
        caller's request.
        """
        try:
            result = self._submit(path, data, model, done)
        except NoTokens as error:
            result = TokenOutcome(error.reason, detail=str(error))
        if isinstance(result, TokenTicket):
            if not counted:
                result.uncount()
        elif counted:
            self.counts[result.reason] += 1
        return result

    def _submit(
        self, path: bytes, data: Json, model: str, done: Done
    ) -> TokenOutcome | TokenTicket:
        try:
            prompt = requests.read_prompt(path, data, self.config.server)
        except NoTokens as error:
            renders = error.reason == outcomes.UNSUPPORTED_FIELD and path in remote.RENDERED_PATHS
            if not renders or self._ask is None:
                raise
            return self._submit_remote(remote.render_body(data), done, f"{path.decode()}/render")
        if isinstance(prompt, IdsPrompt):
            return TokenOutcome(outcomes.IDS, TokenSequence(prompt.data))
        reason = self._why_not_local(prompt)
        if not reason:
            return self._submit_local(prompt, done)
        if self._ask is None:
            raise NoTokens(reason)
        return self._submit_remote(remote.tokenize_body(prompt, model), done)

    def _why_not_local(self, prompt: TextPrompt | ChatPrompt) -> str:
        local = self.local
        if local is None or (isinstance(prompt, ChatPrompt) and local.template_problem):
            return outcomes.NO_TOKENIZER
        if self.trust == MISMATCH:
            return outcomes.MISMATCH
        if self.trust == UNVERIFIED and local.doubts:
            return outcomes.UNVERIFIED
        return ""

    def _submit_local(
        self, prompt: TextPrompt | ChatPrompt, done: Done
    ) -> TokenOutcome | TokenTicket:
        assert self.local is not None
        if isinstance(prompt, ChatPrompt) and len(prompt.messages) > self.config.inline_messages:
            return self._start(object(), self._rendering(self.local, prompt), done)
        text = self.local.text(prompt)
        surrounded = prompt.add_special_tokens
        result = self._from_text(self.local, text, surrounded)
        if isinstance(result, TokenOutcome):
            return result
        return self._start((text, surrounded), result, done)

    def _from_text(self, local: LocalTokens, text: str, surrounded: bool) -> TokenOutcome | _Work:
        cache = self.cache
        assert cache is not None
        if len(text) > self.config.max_chars:
            raise NoTokens(outcomes.TOO_LARGE)
        if surrounded and self._suffix:  # the next turn does not contain the suffix
            return self._encoding_whole(local, text)
        looked_up = cache.look_up(text, self._prefix if surrounded else b"")
        missing = looked_up.missing
        if sum(map(len, missing)) > self.config.inline_chars:
            return self._encoding(local, looked_up, missing)
        if not missing:
            reason = outcomes.CACHED
        else:
            reason = outcomes.EXTENDED if looked_up.nodes else outcomes.SHORT
        tokens = cache.put_together(looked_up, _encode(local, missing) if missing else [])
        if looked_up.nodes:
            self._check_sometimes(local, TextPrompt(text, surrounded), tokens)
        return TokenOutcome(reason, tokens)

    # -- threads

    def _start(self, key: object, work: _Work, done: Done) -> TokenTicket:
        """Start work in a thread; identical prompts share one job."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= self.config.queue:
                raise NoTokens(outcomes.QUEUE_FULL)
            job = self._jobs[key] = _Job(key)
            ticket = self._wait(job, done)
            self._hand_over(job, work)
            return ticket
        return self._wait(job, done)

    def _wait(self, job: _Job, done: Done) -> TokenTicket:
        ticket = TokenTicket(done, self.counts, self._loop, self.config.wait_s)
        job.tickets.append(ticket)
        return ticket

    def _hand_over(self, job: _Job, work: _Work) -> None:
        assert self._threads is not None
        self._threads.submit(self._in_thread, job, work)

    def _in_thread(self, job: _Job, work: _Work) -> None:
        rest: _Rest = _thread_failed
        try:
            if self._is_late(job):
                raise NoTokens(outcomes.TIMEOUT)
            rest = work()
        except NoTokens as error:
            rest = _failed_outcome(error)
        finally:  # always release the waiters and the queue slot
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                self._loop.call_soon_threadsafe(self._finished, job, rest)

    def _is_late(self, job: _Job) -> bool:
        """Return True if a job has no waiters while others are queued."""
        return len(self._jobs) > self.config.queue // 2 and not any(
            ticket.waits for ticket in list(job.tickets)
        )

    def _finished(self, job: _Job, rest: _Rest) -> None:
        if self._jobs.get(job.key) is not job:
            return
        try:
            result = rest()
        except NoTokens as error:
            result = TokenOutcome(error.reason, detail=str(error))
        if not isinstance(result, TokenOutcome):
            self._hand_over(job, result)
            return
        del self._jobs[job.key]
        for ticket in job.tickets:
            self._loop.call_soon(ticket.deliver, result)

    def _rendering(self, local: LocalTokens, chat: ChatPrompt) -> _Work:
        def work() -> _Rest:
            text = local.text(chat)
            return lambda: self._from_text(local, text, chat.add_special_tokens)

        return work

    def _encoding(self, local: LocalTokens, found: CachedTokens, missing: list[str]) -> _Work:
        cache = self.cache
        assert cache is not None

        def work() -> _Rest:
            ids = _encode(local, missing)
            return lambda: TokenOutcome(outcomes.TOKENIZED, cache.put_together(found, ids))

        return work

    def _encoding_whole(self, local: LocalTokens, text: str) -> _Work:
        def work() -> _Rest:
            tokens = TokenSequence(local.ids(TextPrompt(text, True)).tobytes())
            return lambda: TokenOutcome(outcomes.TOKENIZED, tokens)

        return work

    def _check_sometimes(
        self, local: LocalTokens, prompt: TextPrompt, tokens: TokenSequence
    ) -> None:
        """Sometimes compare a cached result with full tokenization, when idle."""
        self._until_check -= 1
        if self._until_check > 0 or self._jobs:
            return
        self._until_check = CHECK_EVERY

        def work() -> _Rest:
            same = local.ids(prompt).tobytes() == tokens.data
            return lambda: self._checked(same)

        job = self._jobs[tokens] = _Job(tokens)
        self._hand_over(job, work)

    def _checked(self, same: bool) -> TokenOutcome:
        self.checks += 1
        if not same:  # invalid cuts for this tokenizer: disable splitting
            self.check_failures += 1
            self.cache = SegmentCache(Splitter(None), self.config.cache_bytes)
        return TokenOutcome(outcomes.TOKENIZED)

    def _submit_remote(self, body: bytes, done: Done, path: str = remote.PATH) -> TokenTicket:
        job = self._jobs.get(body)
        if job is None:
            if len(self._questions) >= self.config.remote_limit:
                raise NoTokens(outcomes.QUEUE_FULL)
            job = self._jobs[body] = _Job(body)
            task = self._loop.create_task(self._ask_worker(job, body, path))
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)
        return self._wait(job, done)

    async def _ask_worker(self, job: _Job, body: bytes, path: str) -> None:
        assert self._ask is not None
        outcome = TokenOutcome(outcomes.REMOTE_ERROR)
        try:
            ids = await remote.tokenize(self._ask, body, self.config.wait_s, path)
            reason = outcomes.REMOTE if path == remote.PATH else outcomes.RENDERED
            outcome = TokenOutcome(reason, TokenSequence(ids.tobytes()))
        except NoTokens as error:
            outcome = TokenOutcome(error.reason, detail=str(error))
        finally:
            self._finished(job, lambda: outcome)


def _failed_outcome(error: NoTokens) -> _Rest:
    outcome = TokenOutcome(error.reason, detail=str(error))
    return lambda: outcome


def _thread_failed() -> TokenOutcome:
    return TokenOutcome(outcomes.ERROR, detail="the thread failed")


def _encode(local: LocalTokens, texts: list[str]) -> list[array[int]]:
    try:
        return local.tokenizer.encode_all(texts)
    except TokenizerUnusable as error:
        raise NoTokens(outcomes.ERROR, str(error)) from None
