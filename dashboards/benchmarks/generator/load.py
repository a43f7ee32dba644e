"""Run a job against one endpoint and measure it.

Open-loop arrivals: at a rate, a session starts on time whether or not earlier ones finished, and
durations count from the due time (no coordinated omission). Requests beyond `MAX_IN_FLIGHT` are
counted as not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from dashboards.benchmarks.generator.job import APIS, CHAT_API, RATE, Job
from dashboards.benchmarks.generator.samples import Histogram, RequestSample, Series
from dashboards.benchmarks.generator.wire import BrokenError, HttpTarget, Reply
from dashboards.benchmarks.generator.workloads import Turn, WorkloadSession, make_sessions

MAX_IN_FLIGHT = 2048
MAX_ERROR_EXAMPLES = 20
DRAIN_S = 30.0
CUT_OFF = "cut_at_the_end"
"""Responses unfinished at the end of the drain: neither successes nor errors."""


class Load:
    def __init__(self, job: Job, target: HttpTarget, model: str) -> None:
        self.job = job
        self.samples: list[RequestSample] = []
        self.errors: dict[str, int] = {}
        self.examples: dict[str, str] = {}
        self.gaps = Histogram()
        self.series = Series()
        self.sent = self.tokens = self.in_flight = self.skipped = 0
        self.stopped_by = ""
        self._target = target
        self._model = model
        self._path = APIS[job.api]
        self._recent: deque[bool] = deque(maxlen=MAX_ERROR_EXAMPLES)
        self._stop = asyncio.Event()
        self._abort = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.began = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def stop(self, reason: str) -> None:
        """Send no new requests; the first reason is kept."""
        if not self._stop.is_set():
            self.stopped_by = reason
            self._stop.set()

    def abort(self, reason: str) -> None:
        """End at once, closing requests in flight."""
        if not self._abort.is_set():
            self.stopped_by = reason
        self._stop.set()
        self._abort.set()

    async def run(self) -> None:
        self.began = time.monotonic()
        timer = self._loop.call_later(self.job.duration_s, self.stop, "duration_s")
        try:
            offering = self._loop.create_task(self._offer())
            await self._or_stopped(offering)
            if not self._stop.is_set():  # all sessions have started: let them finish
                await self._or_stopped(self._loop.create_task(self._all_ended()))
                self.stop("trace")
            offering.cancel()
            await self._drain()
        finally:
            timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _offer(self) -> None:
        source = make_sessions(self.job)
        if self.job.mode == RATE:
            await self._at_a_rate(source)
            return
        users = [self._start(self._user(source)) for _ in range(self.job.concurrency)]
        await asyncio.wait(users)  # cancelled, this leaves them to the drain

    async def _at_a_rate(self, source: Iterator[WorkloadSession]) -> None:
        for session in source:
            due = self.began + session.at
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            elif session.number % 64 == 0:
                await asyncio.sleep(0)  # late: send what is due, but keep reading responses
            if len(self._tasks) >= MAX_IN_FLIGHT:
                self.skipped += len(session.turns)
                continue
            self._start(self._converse(session, due))

    async def _user(self, source: Iterator[WorkloadSession]) -> None:
        """Run sessions in sequence (closed loop); a request is due when its user would send it."""
        for session in source:
            if self._stop.is_set():
                return
            await self._converse(session, time.monotonic())

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _or_stopped(self, work: asyncio.Task[None]) -> None:
        stopped = self._loop.create_task(self._stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if work.done() and not work.cancelled() and work.exception():
            raise work.exception() or RuntimeError("the load ended")

    async def _all_ended(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _drain(self) -> None:
        if not self._tasks or self._abort.is_set():
            return
        ending = self._loop.create_task(self._all_ended())
        aborted = self._loop.create_task(self._abort.wait())
        limit = min(DRAIN_S, self.job.request_s)
        await asyncio.wait({ending, aborted}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        aborted.cancel()

    async def _converse(self, session: WorkloadSession, due: float) -> None:
        messages = [session.opening()] if session.opening else []
        for number, turn in enumerate(session.turns):
            if turn.pause_s:
                due = time.monotonic() + turn.pause_s
                await self._pause(turn.pause_s)
            if self._stop.is_set() or not self._may_send():
                return
            messages.append(turn.text())
            reply = await self._send(session, number, turn, messages, due)
            if reply is None or reply.error:
                return  # without this response the conversation cannot continue
            messages.append("".join(reply.text))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _may_send(self) -> bool:
        if self.sent >= self.job.max_requests:
            self.stop("max_requests")
        return not self._stop.is_set()

    async def _send(
        self, session: WorkloadSession, number: int, turn: Turn, messages: list[str], due: float
    ) -> Reply | None:
        body = self._body(session, messages, turn.answer_tokens)
        sent = time.monotonic()
        self.sent += 1
        self.in_flight += 1
        self.series.at(sent - self.began).sent += 1
        reply, code, text = None, "", ""
        try:
            async with asyncio.timeout(self.job.request_s):
                reply = await self._target.post(self._path, body)
            code, text = find_fault(reply)
        except TimeoutError:
            code, text = "timeout", f"Incomplete after {self.job.request_s:g} s."
        except BrokenError as error:
            code, text = error.code, str(error)
        except asyncio.CancelledError:
            code = CUT_OFF
            raise
        finally:
            self.in_flight -= 1
            self._ended((session.number, number), due, sent, reply, (code, text))
        if reply is not None and code:
            reply.error = text or code
        return reply

    def _body(
        self, session: WorkloadSession, messages: list[str], answer_tokens: int
    ) -> dict[str, Any]:
        """Build the request. vLLM's `ignore_eos` gives responses the planned length on every
        endpoint.
        """
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": answer_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.job.api != CHAT_API:
            return {**body, "prompt": "\n".join(messages)}
        roles = itertools.cycle(("user", "assistant"))
        first = [{"role": "system", "content": messages[0]}] if session.opening else []
        rest = messages[len(first) :]
        talk = [{"role": role, "content": text} for text, role in zip(rest, roles, strict=False)]
        return {**body, "messages": first + talk}

    def _ended(
        self,
        which: tuple[int, int],
        due: float,
        sent: float,
        reply: Reply | None,
        why: tuple[str, str],
    ) -> None:
        now, (code, text) = time.monotonic(), why
        end = reply.last_at if reply is not None and not code else now
        first = reply.first_at if reply is not None and not code else None
        sample = RequestSample(
            at=due - self.began,
            session=which[0],
            turn=which[1],
            lag_s=max(0.0, sent - due),
            ttft_s=None if first is None else first - due,
            duration_s=end - due,
            prompt_tokens=(reply.prompt_tokens or 0) if reply else 0,
            completion_tokens=(reply.completion_tokens or len(reply.text)) if reply else 0,
            cached_tokens=reply.cached_tokens if reply else None,
            worker=reply.worker if reply else "",
            error=code,
            counted=due - self.began >= self.job.warmup_s and code != CUT_OFF,
        )
        self.samples.append(sample)
        self.series.ended(sample)
        if code:
            self.errors[code] = self.errors.get(code, 0) + 1
            self.examples.setdefault(code, text[:200])
        elif sample.counted and reply is not None:
            for gap in reply.gaps:
                self.gaps.add(gap)
        self._limits(sample)

    def _limits(self, sample: RequestSample) -> None:
        self.tokens += sample.prompt_tokens + sample.completion_tokens
        if self.tokens >= self.job.max_tokens:
            self.stop("max_tokens")
        if sample.error == CUT_OFF:
            return
        self._recent.append(sample.ok)
        bad = self._recent.count(False)
        if (
            len(self._recent) == MAX_ERROR_EXAMPLES
            and bad * 100 >= self.job.error_percent * MAX_ERROR_EXAMPLES
        ):
            self.stop("errors")


def find_fault(reply: Reply) -> tuple[str, str]:
    """Return an error code and a sentence; both "" for a valid response."""
    if reply.status != 200:
        return f"http_{reply.status}", _message(reply)
    if reply.error:
        return reply.code or "stream_error", reply.error
    if reply.first_at is None:
        return "no_token", "The response had no tokens."
    if not reply.ended:
        return "broken", "The stream was interrupted."
    return "", ""


def _message(reply: Reply) -> str:
    try:
        return str(json.loads(reply.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return reply.body[:200].decode(errors="replace")
