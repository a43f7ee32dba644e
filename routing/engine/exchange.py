"""One request at workers: attempts, retries, cancellation and its end.

A request is retried only while its body is held and no answer byte was sent. Every end is counted
once. The answer of an attempt is in answer.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from console.processkit.descriptors import NONE_LEFT
from routing.engine.answer import Answer
from routing.engine.errors import Refusal
from routing.engine.fleet.load import RequestCharge
from routing.engine.http import heads
from routing.engine.prompt.engine_request import insert_opening
from routing.engine.request import RoutedRequest
from routing.engine.tokens.usage import NO_ANSWER

if TYPE_CHECKING:
    from routing.engine.fleet.worker_connection import WorkerConnection
    from routing.engine.fleet.workers import Worker
    from routing.engine.http.http1 import RequestHead
    from routing.engine.observe.decisions import Decision
    from routing.engine.observe.metrics import ModelMetrics
    from routing.engine.policies.base import RequestFacts
    from routing.engine.prompt.engine_request import EngineRequest
    from routing.engine.protocols import ClientSide, Dispatcher
    from routing.engine.router import Router

# Without the worker's work, or counted elsewhere.
_FREE_RETRIES: Final = ("upstream_connect", "engine_stuck")
# Of requests that a worker lost: above the retry budget they wait instead of failing.
_LOSSES: Final = ("engine_died", "upstream_reset")
_NO_FAILURES: Final = ("engine_died", "engine_stuck", "worker_busy")
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Exchange(RoutedRequest):
    """State from the complete request (or its first buffered part) to the answer's end."""

    __slots__ = (
        "_answer", "_charge", "_client", "_connecting", "_dispatcher", "_done", "_engine_deaths",
        "_router", "_stale_tried", "_started", "_worker", "deadline", "reading",
    )  # fmt: skip

    def __init__(
        self,
        router: Router,
        dispatcher: Dispatcher,
        client: ClientSide,
        head: RequestHead,
        body: bytes | None,
        facts: RequestFacts,
        model: ModelMetrics,
        decision: Decision,
        ask: EngineRequest,
        started: float,
    ) -> None:
        super().__init__(head, body, facts, model, decision, ask)
        self._router = router
        self._dispatcher = dispatcher
        self._client = client
        self._started = started
        self.reading: asyncio.Task[None] | None = None
        self.deadline = 0.0
        self._worker: Worker | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._answer: Answer | None = None  # of the attempt that is connected
        self._charge: RequestCharge | None = None
        self._stale_tried = False
        self._engine_deaths = 0
        self._done = False  # accounted for

    @property
    def client(self) -> ClientSide:
        return self._client

    @property
    def over(self) -> bool:
        return self._done

    def go(self, waited_s: float) -> None:
        self._dispatcher.take_turn(self, waited_s)

    # -- attempts

    def send_to(self, worker: Worker, uncached_tokens: int) -> None:
        self._worker = worker
        self.tried.append(worker)
        if not worker.own_in_flight:
            worker.progress_at = perf_counter()
        self.decision.attempts += 1
        features = self.facts
        self._charge = RequestCharge(worker, uncached_tokens, features.tokens, features.chain)
        if self.placing is not None and self._router.kv is not None:
            self._router.kv.charged(self, self._charge)
        if self.trace is not None:
            self.head.fields = self.trace.attempt(worker.id)
        self.deadline = perf_counter() + self._router.config.limits.response_timeout_s
        # A kept connection may prove closed, and a streamed body cannot be sent twice.
        connection = worker.pool.take() if self.body is not None else None
        if connection is not None:
            self._send_on(connection)
        else:
            self._connect(worker)

    def _connect(self, worker: Worker) -> None:
        self._connecting = worker.pool.connect(self._send_on, self._connect_failed)

    def _connect_failed(self, message: str, refused: bool) -> None:
        self._connecting = None
        if message == NONE_LEFT:
            self._router.descriptors_exhausted()
            self.refuse(Refusal("file_descriptors", "The router has no file descriptor left."))
            return
        self.attempt_failed("upstream_connect", message, refused)

    def _send_on(self, connection: WorkerConnection) -> None:
        self._connecting = None
        worker, body = self._worker, self.body
        assert worker is not None
        answer = Answer(self, self._client, self._router, worker, connection, self._started)
        self._answer = answer
        self.sent_at = perf_counter()
        lines = worker.host_line
        if self.placing is not None and self.placing.seat is not None:
            lines += self.placing.seat.line
        head = heads.worker_request_head(self.head, lines, body, self._router.keys.open)
        connection.send(answer, head, body or b"")
        if body is None:
            self._client.upload_ready()

    def may_retry(self, reason: str) -> bool:
        # A streamed body is still held until a connection is open.
        return (
            (self.body is not None or reason == "upstream_connect")
            and not self.pinned
            and len(self.tried) < self._router.config.retry.attempts
            and self._dispatcher.retry_allowed(self, reason in _FREE_RETRIES, reason in _LOSSES)
        )

    def retry(self, reason: str, message: str, refused: bool = False) -> None:
        worker = self._worker
        assert worker is not None
        self._discharge()
        if self.trace is not None:
            self.trace.failed(reason)
        if reason not in _NO_FAILURES:
            self._router.worker_failed(worker, message, refused)
        self._router.metrics.retry(reason)
        self._forget_answer()
        self._dispatcher.send_again(self)

    def _forget_answer(self) -> None:
        self._answer = None
        self.answer = NO_ANSWER
        self.decision.status = None

    def wait_for_retry(self, timeout_s: float) -> None:
        self._worker = None
        self.deadline = perf_counter() + timeout_s

    def reconnect(self) -> bool:
        worker = self._worker
        assert worker is not None
        if self._stale_tried or worker.gone or self.body is None:
            return False
        self._stale_tried = True
        self._forget_answer()
        self._router.metrics.retry("stale_connection")
        self._connect(worker)
        return True

    def attempt_failed(self, code: str, message: str, refused: bool = False) -> None:
        if self.may_retry(code):
            self.retry(code, message, refused)
            return
        self._router.worker_failed(self._worker, message, refused)
        self.refuse(Refusal(code, f"The worker failed to respond: {message}."))

    def engine_died(self) -> None:
        """Retry once; a request may itself kill engines and must not reach all of them."""
        worker = self._worker
        assert worker is not None
        self._engine_deaths += 1
        self._router.engine_died(worker)
        if self._engine_deaths == 1 and self.may_retry("engine_died"):
            self.retry("engine_died", "its engine died")
            return
        text = "The worker's engine died while it processed this request."
        if self._engine_deaths > 1:
            text = (
                "The engines of two workers died while they processed this request. Do "
                "not repeat it."
            )
        refusal = Refusal("engine_died", text)
        refusal.final = self._engine_deaths > 1
        self.refuse(refusal)

    def worker_stuck(self, worker: Worker) -> None:
        """Go to another worker if this one has not begun to answer."""
        if self._worker is not worker or self.answered or self._charge is None:
            return
        if self.may_retry("engine_stuck"):
            self._drop_attempt()
            self.retry("engine_stuck", worker.last_error)

    def _drop_attempt(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._answer is not None:
            self._answer.drop()

    # -- a streamed body

    @property
    def connected(self) -> bool:
        return self._answer is not None and self._answer.connection is not None

    def opened(self, pieces: Sequence[bytes | bytearray]) -> Sequence[bytes | bytearray]:
        """Return the first pieces of a streamed body with the router's fields inserted. Raise
        Refusal.
        """
        opening = self.ask.opening
        whole = b"".join(pieces) if opening else b""
        if not whole.strip():
            return pieces
        self.ask.opening = b""
        try:
            return [insert_opening(whole, opening)]
        except ValueError:
            raise Refusal("cache_isolation", "The body must be a JSON object.") from None

    def send_body(self, data: bytes) -> None:
        """Send the next part of a streamed body, already framed."""
        if self._answer is not None and self._answer.connection is not None:
            self._answer.connection.send_more(data)

    def upload_failed(self, refusal: Refusal) -> None:
        """Handle a streamed body that cannot be read or forwarded."""
        self._drop_attempt()
        if refusal.kind.reason == "upstream_timeout":
            self._router.worker_failed(self._worker, refusal.message, refused=False)
        if self.answered:
            self.finish(refusal.kind.reason)
            self._client.break_off(True)
        else:
            self.refuse(refusal)

    # -- the client, and time

    def client_gone(self) -> None:
        self._drop_attempt()
        if not self.answered:
            self.decision.status = 499
        self.finish("client_cancelled")

    def client_paused(self, paused: bool) -> None:
        if self._answer is not None:
            self._answer.pause(paused)

    def stalled(self) -> None:
        self._drop_attempt()
        self.finish("stalled_client")
        self._client.break_off(True)

    def probe_client(self) -> bool:
        """Write bytes without effect to detect a reset; return False if impossible."""
        if not self.answered:
            if self.head.minor:
                self._client.write(_CONTINUE)
            return self.head.minor == 1
        if self._answer is not None:
            self._answer.write_comment()
        return True

    def late(self, now: float) -> bool:
        """Return True if the worker exceeded its timeout."""
        if self.answered:
            return self._answer is not None and self._answer.is_silent(now)
        return 0.0 < self.deadline < now

    def timed_out(self) -> None:
        """End without retry: the worker may still be computing."""
        if self._worker is None:
            self.refuse(Refusal("queue_timeout", "The router could not send this request in time."))
            return
        text = "The worker did not start its response in time."
        if self.answered:
            text = "The worker stopped sending."
        self._router.worker_failed(self._worker, text, refused=False)
        self._stop(Refusal("upstream_timeout", text))

    def cut(self) -> None:
        self._stop(Refusal("shutting_down", "The router shuts down: its grace period is over."))

    def _stop(self, refusal: Refusal) -> None:
        if self.answered and self._answer is not None:
            self._answer.stop(refusal)
            return
        self._drop_attempt()
        self.refuse(refusal)

    # -- the end

    def first_byte(self) -> None:
        self.answered = True
        self.deadline = 0.0
        if self.decision.status == 500:
            self._router.metrics.error("upstream_5xx")
        if self.body:
            self.body = b""
            self._client.release()
        assert self._charge is not None
        self._charge.answered()
        for observe in self._router.observers.answered:
            observe(self)
        worker = self._worker
        assert worker is not None
        if worker.circuit.state and (self.decision.status or 500) < 500:
            self._router.table.answered(worker)  # half-open: do not wait for the stream's end

    def refuse(self, refusal: Refusal) -> None:
        ticket = self.ticket
        if ticket is not None and ticket.caller.rates and not refusal.lines:
            refusal.lines = ticket.caller.rate_lines(perf_counter())
        self.decision.status = refusal.kind.status
        self.finish(refusal.kind.reason)
        self._client.reply_error(refusal, self.head, self.decision.id, close=self.uploading)

    def crashed(self, error: Exception) -> None:
        self._router.internal_error("request", error)
        self._drop_attempt()
        if self.answered or self._done:
            unframed = self._answer is not None and self._answer.unframed
            self.finish("broken_stream")
            self._client.break_off(unframed)
        else:
            refusal = Refusal("internal_error", "The router failed to handle this request.")
            self.decision.status = refusal.kind.status
            self.finish("internal_error")
            self._client.reply_error(refusal, self.head, self.decision.id, close=True)

    def _discharge(self) -> None:
        charge = self._charge
        if charge is not None:
            self._charge = None
            charge.end()

    def finish(self, error: str) -> None:
        if self._answer is not None:
            self._answer.connection = None
            self._answer = None  # each knows the other: freed now, not by the garbage collector
        if self._done:
            return
        self._done = True
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None
        decision = self.decision
        if (
            decision.ttft_s is not None
            and self._charge is not None
            and decision.attempts == 1
            and not decision.queued_s
            and not self.ask.skips_cache
        ):
            self._router.timed(self._charge, decision.ttft_s)
        self._discharge()
        decision.duration_s = perf_counter() - self._started
        decision.error = error
        failed = (error or decision.status != 200) and decision.failed
        if failed and self._worker is not None:
            self._worker.failed_requests += 1
        self._dispatcher.finished(self)
