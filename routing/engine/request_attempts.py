"""Send one request to workers: attempts, retries, cancellation and its end.

A request is retried only while its body is held and no answer byte was sent. Every end is counted
once. The class that handles the answer is in exchange.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from console.processkit.descriptors import NONE_LEFT
from routing.engine.errors import Refusal
from routing.engine.fleet.load import RequestCharge
from routing.engine.fleet.worker_connection import AnswerReceiver
from routing.engine.http import heads
from routing.engine.prompt.engine_request import insert_opening
from routing.engine.tokens import usage

if TYPE_CHECKING:
    from routing.engine.access.callers import Ticket
    from routing.engine.fleet.worker_connection import WorkerConnection
    from routing.engine.fleet.workers import Worker
    from routing.engine.http.http1 import RequestHead
    from routing.engine.kvaware.request_state import RequestPlacement
    from routing.engine.misses.diagnosis import Diagnosis
    from routing.engine.misses.history import SeenPrompt
    from routing.engine.observe.decisions import Decision
    from routing.engine.observe.metrics import ModelMetrics
    from routing.engine.observe.tracing import Trace
    from routing.engine.policies.base import RequestFacts
    from routing.engine.prompt.engine_request import EngineRequest
    from routing.engine.protocols import ClientSide, Dispatcher


# Without the worker's work, or counted elsewhere.
_FREE_RETRIES = ("upstream_connect", "engine_stuck")
# Of requests that a worker lost: above the retry budget they wait instead of failing.
_LOSSES = ("engine_died", "upstream_reset")
_NO_FAILURES = ("engine_died", "engine_stuck", "worker_busy")


class RequestAttempts(AnswerReceiver):
    __slots__ = (
        "_charge",
        "_client",
        "_connecting",
        "_connection",
        "_done",
        "_engine_deaths",
        "_events",
        "_judged",
        "_last_bytes",
        "_pending",
        "_router",
        "_stale_tried",
        "_started",
        "_unframed",
        "_worker",
        "answer",
        "answered",
        "ask",
        "body",
        "deadline",
        "decision",
        "delayed",
        "diagnosis",
        "facts",
        "head",
        "keep_alive",
        "model",
        "pinned",
        "placing",
        "reading",
        "requested_model",
        "seen",
        "sent_at",
        "stored_response",
        "ticket",
        "trace",
        "tried",
        "uploading",
    )  # fmt: skip

    def __init__(
        self,
        router: Dispatcher,
        client: ClientSide,
        head: RequestHead,
        body: bytes | None,
        facts: RequestFacts,
        model: ModelMetrics,
        decision: Decision,
        ask: EngineRequest,
        started: float,
    ) -> None:
        self._router = router
        self._client = client
        self.head = head
        self.head_only = head.method == b"HEAD"
        self.body = body  # None: streamed, cannot be retried
        self.uploading = body is None
        self.facts = facts
        self.model = model
        self.decision = decision
        self.ask = ask
        self.keep_alive = head.keep_alive
        self.pinned = False
        self.ticket: Ticket | None = None  # its admission slot
        self.trace: Trace | None = None
        self.placing: RequestPlacement | None = None
        self.seen: SeenPrompt | None = None
        self.diagnosis: Diagnosis | None = None
        self.reading: asyncio.Task[None] | None = None
        self.requested_model = ""
        self.stored_response = ""  # ID of the response that it reads, cancels or continues
        self.answered = False
        self.delayed = False  # its retry waits for a turn
        self.tried: list[Worker] = []
        self.deadline = 0.0
        self._started = started
        self._worker: Worker | None = None
        self._connection: WorkerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._stale_tried = False
        self._charge: RequestCharge | None = None
        self._pending: bytes | None = None  # withheld response head
        self._events = False
        self._engine_deaths = 0
        self._done = False  # accounted for
        self._judged: list[bytes] = []  # body of a 500, held until complete
        self.sent_at = 0.0
        self._unframed = False  # the answer ends with the connection
        self._last_bytes = 0.0
        self.answer = usage.NO_ANSWER

    @property
    def client(self) -> ClientSide:
        return self._client

    def go(self, waited_s: float) -> None:
        self._router.take_turn(self, waited_s)

    def send_to(self, worker: Worker, uncached_tokens: int) -> None:
        """Send to this worker; its load includes the request from now on."""
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

    def _send_on(self, connection: WorkerConnection) -> None:
        self._connecting = None
        self._connection = connection
        self.sent_at = perf_counter()
        worker = self._worker
        assert worker is not None
        body = self.body
        lines = worker.host_line
        if self.placing is not None and self.placing.seat is not None:
            lines += self.placing.seat.line
        head = heads.worker_request_head(self.head, lines, body, self._router.keys.open)
        connection.send(self, head, body or b"")
        if body is None:
            self._client.upload_ready()

    @property
    def connected(self) -> bool:
        return self._connection is not None

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
        if self._connection is not None:
            self._connection.send_more(data)

    def upload_paused(self, paused: bool) -> None:
        if self.uploading:
            self._client.pause_upload(paused)

    def _connect_failed(self, message: str, refused: bool) -> None:
        self._connecting = None
        if message == NONE_LEFT:
            self._router.descriptors_exhausted()
            self.refuse(Refusal("file_descriptors", "The router has no file descriptor left."))
            return
        self._attempt_failed("upstream_connect", message, refused)

    def _attempt_failed(self, code: str, message: str, refused: bool) -> None:
        if self._may_retry(code):
            self._again(code, message, refused)
            return
        assert self._worker is not None
        self._router.worker_failed(self._worker, message, refused)
        self.refuse(Refusal(code, f"The worker failed to respond: {message}."))

    def _may_retry(self, reason: str) -> bool:
        # A streamed body is still held until a connection is open.
        return (
            (self.body is not None or reason == "upstream_connect")
            and not self.pinned
            and len(self.tried) < self._router.config.retry_attempts
            and self._router.retry_allowed(self, reason in _FREE_RETRIES, reason in _LOSSES)
        )

    def wait_for_retry(self, timeout_s: float) -> None:
        self._worker = None
        self.deadline = perf_counter() + timeout_s

    @property
    def over(self) -> bool:
        return self._done

    def _again(self, reason: str, message: str, refused: bool) -> None:
        worker = self._worker
        assert worker is not None
        self._discharge()
        if self.trace is not None:
            self.trace.failed(reason)
        if reason not in _NO_FAILURES:
            self._router.worker_failed(worker, message, refused)
        self._router.metrics.retry(reason)
        self._reset_answer()
        self._router.send_again(self)

    def _reset_answer(self) -> None:
        self._connection = None
        self._pending = None
        self._unframed = False
        self._judged.clear()
        if self.diagnosis is not None:
            self.diagnosis.reset()
        self.answer = usage.NO_ANSWER
        self.decision.status = None

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error; only before the first answer byte."""
        ticket = self.ticket
        if ticket is not None and ticket.caller.rates and not refusal.lines:
            refusal.lines = ticket.caller.rate_lines(perf_counter())
        self.decision.status = refusal.kind.status
        self._finish(refusal.kind.reason)
        self._client.reply_error(refusal, self.head, self.decision.id, close=self.uploading)

    def upload_failed(self, refusal: Refusal) -> None:
        """Handle a streamed body that cannot be read or forwarded."""
        self._drop_attempt()
        if refusal.kind.reason == "upstream_timeout":
            self._router.worker_failed(self._worker, refusal.message, refused=False)
        if self.answered:
            self._finish(refusal.kind.reason)
            self._client.break_off(True)
        else:
            self.refuse(refusal)

    def worker_stuck(self, worker: Worker) -> None:
        """Go to another worker if this one has not begun to answer."""
        if self._worker is not worker or self.answered or self._charge is None:
            return
        if self._may_retry("engine_stuck"):
            self._drop_attempt()
            self._again("engine_stuck", worker.last_error, refused=False)

    def crashed(self, error: Exception) -> None:
        """End after an exception: with an error before the first byte, else as broken off."""
        self._router.internal_error("request", error)
        self._drop_attempt()
        if self.answered or self._done:
            self._finish("broken_stream")
            self._client.break_off(self._unframed)
        else:
            refusal = Refusal("internal_error", "The router failed to handle this request.")
            self.decision.status = refusal.kind.status
            self._finish("internal_error")
            self._client.reply_error(refusal, self.head, self.decision.id, close=True)

    def client_gone(self) -> None:
        if self._drop_attempt():
            self.decision.status = 499
        self._finish("client_cancelled")

    def stalled(self) -> None:
        self._drop_attempt()
        self._finish("stalled_client")
        self._client.break_off(True)

    def _drop_attempt(self) -> bool:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.abandon()
            self._connection = None
        return not self.answered

    def client_paused(self, paused: bool) -> None:
        self._last_bytes = perf_counter()  # the worker was paused
        if self._connection is not None:
            self._connection.pause(paused)

    def _discharge(self) -> None:
        charge = self._charge
        if charge is not None:
            self._charge = None
            charge.end()

    def _finish(self, error: str) -> None:
        self._connection = None
        if self._done:
            return
        self._done = True
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None
        self._discharge()
        decision = self.decision
        decision.duration_s = perf_counter() - self._started
        decision.error = error
        failed = (error or decision.status != 200) and decision.failed
        if failed and self._worker is not None:
            self._worker.failed_requests += 1
        self._router.finished(self)

    def answer_end(self) -> bytes:
        return self.answer.tail

    def cache_state(self) -> str:
        """Return the cache label for metrics: reported by the engine, else predicted."""
        decision = self.decision
        cached = decision.cached_tokens
        cached = decision.predicted if cached is None else cached
        if not cached:
            return "none"
        # The last block is always computed: nearly all cached counts as all.
        return "full" if cached >= 0.9 * decision.prompt_tokens else "partial"
