"""One request and its answer, between a client and a worker connection.

Invariants: answer bytes reach the client unchanged; a truncated answer never looks complete (an
event stream gets a final error event, without its end marker); a request is retried only while its
body is held and no answer byte was sent; every end is counted once. The head is withheld until the
first body byte, because vLLM sends it before prefill: a worker that dies in prefill costs a retry
only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from routing.engine.errors import Refusal, engine_is_dead
from routing.engine.fleet.load import Charge
from routing.engine.http import heads
from routing.engine.http.http1 import RequestHead, ResponseHead
from routing.engine.prompt.engine_request import opened
from routing.engine.tokens import usage

if TYPE_CHECKING:
    from routing.engine.access.callers import Ticket
    from routing.engine.client_connection import ClientConnection
    from routing.engine.fleet.worker_connection import WorkerConnection
    from routing.engine.fleet.workers import Worker
    from routing.engine.kvaware.placement import Placement
    from routing.engine.observe.decisions import Decision
    from routing.engine.observe.metrics import ModelMetrics
    from routing.engine.observe.tracing import Trace
    from routing.engine.policies.base import RequestFacts
    from routing.engine.prompt.engine_request import EngineRequest
    from routing.engine.router import Router

# Sent by workers that cannot serve, before any work.
RETRY_STATUSES = (502, 503, 504)
_FIRST_ERRORS = (b'data: {"error"', b"event: error")
_JUDGED_BYTES = 16_384  # of a 500, held until complete
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMENT = b":\n\n"  # ignored by all SSE parsers
_NAMED_EVENTS_PATH = b"/v1/messages"


class Exchange:
    """State from the complete request (or its first buffered part) to the answer's end."""

    __slots__ = (
        "_charge",
        "_client",
        "_connecting",
        "_connection",
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
        "facts",
        "head",
        "head_only",
        "keep_alive",
        "model",
        "pinned",
        "placing",
        "reading",
        "sent_at",
        "ticket",
        "trace",
        "tried",
        "uploading",
    )

    def __init__(
        self,
        router: Router,
        client: ClientConnection,
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
        self.trace: Trace | None = None  # set if the request is sampled
        self.placing: Placement | None = None  # kvaware state
        self.reading: asyncio.Task[None] | None = None  # parsing of a large body
        self.answered = False
        self.tried: list[Worker] = []
        self.deadline = 0.0
        self._started = started
        self._worker: Worker | None = None
        self._connection: WorkerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._stale_tried = False
        self._charge: Charge | None = None
        self._pending: bytes | None = None  # withheld response head
        self._events = False
        self._engine_deaths = 0  # workers whose engine died with this request
        self._judged: list[bytes] = []  # body of a 500, held until complete
        self.sent_at = 0.0  # when it was sent to the worker
        self._unframed = False  # the answer ends with the connection
        self._last_bytes = 0.0  # last answer bytes
        self.answer = usage.NO_ANSWER  # token usage of the answer

    def go(self, waited_s: float) -> None:
        """Dispatch after `waited_s` in the queue."""
        self._router.take_turn(self, waited_s)

    def send_to(self, worker: Worker, uncached_tokens: int) -> None:
        """Send to this worker; its load includes the request from now on."""
        self._worker = worker
        self.tried.append(worker)
        self.decision.attempts += 1
        self._charge = Charge(worker, uncached_tokens)
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
        head = heads.to_worker(self.head, lines, body, self._router.keys.open)
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
            return [opened(whole, opening)]
        except ValueError:
            raise Refusal("cache_isolation", "The body must be a JSON object.") from None

    def send_body(self, data: bytes) -> None:
        """Send the next part of a streamed body, already framed."""
        if self._connection is not None:
            self._connection.send_more(data)

    def upload_paused(self, paused: bool) -> None:
        if self.uploading:
            self._client.pause_upload(paused)

    def answer_head(self, head: ResponseHead) -> bool:
        status = head.status
        if status >= 500:
            if status in RETRY_STATUSES and self._may_retry("upstream_5xx"):
                self._again("upstream_5xx", f"the worker answered {status}", refused=False)
                return False
            if status in RETRY_STATUSES:  # a 500 may be the request's fault: no ejection
                self._router.worker_failed(self._worker, f"answered {status}", refused=False)
            if status != 500:
                self._router.metrics.error("upstream_5xx")
        self.decision.status = status
        self._events = head.events
        framing = b""
        if status in (204, 304):  # no body, whatever the length says
            pass
        elif head.length >= 0:
            framing = b"content-length: %d\r\n" % head.length
        elif head.chunked and self.head.minor:
            framing = b"transfer-encoding: chunked\r\n"
        elif not self.head_only:
            self._unframed = True
            self.keep_alive = False
        if self.uploading:  # early answer: the connection cannot be reused
            assert self._connection is not None
            self._connection.not_reusable()
            self.keep_alive = False
        if self._router.closing:
            self.keep_alive = False
        worker = self._worker
        assert worker is not None
        filtered = self.ask.adds_usage and head.events and status == 200 and head.length < 0
        found = usage.StreamFilter(worker) if filtered else None
        self.answer = usage.AnswerTokens(head.events, found)
        self._pending = heads.to_client(
            head, framing, worker.label_line, self.decision.id, self.head, self.keep_alive
        )
        return True

    def answer_body(self, data: bytes, pieces: list[bytes]) -> None:
        events = self.answer.feed(pieces)
        stream = self.answer.filter
        if stream is not None:
            assert self._connection is not None
            if not (stream.lets(data, events) and self._connection.between_chunks):
                data, pieces = self._filtered(stream, pieces)
        if self._unframed:
            data = b"".join(pieces)
        pending = self._pending
        if pending is not None:
            if not pieces or self._is_judged(pieces, len(pending)):
                self._pending = pending + data  # only the chunk size so far
                return
            if self._events and pieces[0].startswith(_FIRST_ERRORS) and engine_is_dead(pieces[0]):
                assert self._connection is not None
                self._connection.abandon()
                self._engine_died()
                return
            data = pending + data
            self._pending = None
            self._first_byte()
        else:
            now = perf_counter()
            if self._events and pieces:
                self.model.itl.observe(now - self._last_bytes)
            self._last_bytes = now
        if data:
            self._client.write(data)

    def _filtered(
        self, stream: usage.StreamFilter, pieces: list[bytes]
    ) -> tuple[bytes, list[bytes]]:
        """Return the wire bytes and the pieces that pass the filter, each as one chunk."""
        assert self._connection is not None
        kept = stream.feed(pieces)
        stream.aligned = self._connection.between_chunks
        if self._connection.body_done:
            kept = kept + stream.end()
        framed = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in kept])
        return framed + b"0\r\n\r\n" if self._connection.body_done else framed, kept

    def _is_judged(self, pieces: list[bytes], held: int) -> bool:
        """Return True if this part of a 500 is withheld until it is complete."""
        if self.decision.status != 500 or held > _JUDGED_BYTES:
            return False
        self._judged += pieces
        return True

    def _engine_died(self) -> None:
        """Retry once; a request may itself kill engines and must not reach all of them."""
        worker = self._worker
        assert worker is not None
        self._engine_deaths += 1
        self._router.engine_died(worker)
        if self._engine_deaths == 1 and self._may_retry("engine_died"):
            self._again("engine_died", "its engine died", refused=False)
            return
        refusal = Refusal("engine_died", "The worker's engine died while it had this request.")
        if self._engine_deaths > 1:
            text = "The engines of two workers died while they had this request. Do not repeat it."
            refusal = Refusal("engine_died", text)
            refusal.final = True
        self.refuse(refusal)

    def _first_byte(self) -> None:
        """Commit the answer to the client: no retry from here on."""
        self.answered = True
        self.deadline = 0.0
        if self.decision.status == 500:
            self._router.metrics.error("upstream_5xx")
        if self.body:
            self.body = b""
            self._client.release()
        now = perf_counter()
        self._last_bytes = now
        assert self._charge is not None
        self._charge.answered()
        if self.placing is not None and self._router.kv is not None:
            self._router.kv.answered(self)
        worker = self._worker
        assert worker is not None
        if worker.circuit.state and (self.decision.status or 500) < 500:
            self._router.table.answered(worker)  # half-open: do not wait for the stream's end
        if self._events:
            self.decision.ttft_s = now - self._started

    def answer_done(self) -> None:
        worker = self._worker
        assert worker is not None
        self._connection = None  # back in the pool: a slow client must not pause it
        rest = b"".join(self.answer.filter.end()) if self.answer.filter is not None else b""
        if self._pending is not None:  # an answer without a body, or a complete 500
            if self.decision.status == 500 and engine_is_dead(b"".join(self._judged)):
                self._engine_died()
                return
            if self._judged:
                self._first_byte()
            elif self.decision.status == 500:
                self._router.metrics.error("upstream_5xx")
            self._client.write(self._pending + rest)
            self._pending = None
            self.answered = True
        elif rest:  # without chunks the end needs no bytes
            self._client.write(rest)
        worker.served += 1
        if (self.decision.status or 0) < 500:
            self._router.table.answered(worker)
        self._finish("")
        self._client.exchange_done(self.keep_alive)

    def answer_end(self) -> bytes:
        """Return the tail of the answer."""
        return self.answer.tail

    def answer_lost(self, code: str, message: str) -> None:
        connection = self._connection
        worker = self._worker
        assert worker is not None
        assert connection is not None
        stale = code == "upstream_reset" and connection.uses > 1 and self.decision.status is None
        if self.answered:
            # After a broken chunk the client's state is unknown: nothing can follow.
            between = code != "upstream_protocol" and self._between_events(connection)
            self._broken_off(Refusal(code, f"The answer broke off: {message}."), between)
        elif stale and not worker.gone and not self._stale_tried and self.body is not None:
            # A keep-alive connection may close as it is used: no worker failure, retry on a new
            # one.
            self._stale_tried = True
            self._reset_answer()
            self._router.metrics.retry("stale_connection")
            self._connect(worker)
        else:
            self._attempt_failed(code, message, refused=False)

    def _broken_off(self, refusal: Refusal, between_events: bool) -> None:
        """Handle a worker failure after the answer began."""
        self._router.worker_failed(self._worker, refusal.message, refused=False)
        if self.answer.filter is not None:
            for event in self.answer.filter.release():
                self._write_event(event)
        if between_events:
            self._write_event(refusal.event(named=self.head.path == _NAMED_EVENTS_PATH))
        self._finish("broken_stream")
        self._client.break_off(self._unframed)

    def _between_events(self, connection: WorkerConnection) -> bool:
        """Return True if an error event can follow what was written."""
        if self.answer.filter is not None:
            return self.answer.filter.between
        if not self._events or not (self._unframed or connection.between_chunks):
            return False
        return self.answer.tail.endswith(_EVENT_ENDS)

    def _write_event(self, event: bytes) -> None:
        self._client.write(event if self._unframed else b"%x\r\n%b\r\n" % (len(event), event))

    def ask_client(self) -> bool:
        """Write bytes without effect to detect a reset; return False if impossible."""
        if not self.answered:
            if self.head.minor:
                self._client.write(_CONTINUE)
            return self.head.minor == 1
        # Inside an event, or without events: the worker's next bytes serve the purpose.
        if self._connection is not None and self._between_events(self._connection):
            self._write_event(_COMMENT)
        return True

    def _connect_failed(self, message: str, refused: bool) -> None:
        self._connecting = None
        self._attempt_failed("upstream_connect", message, refused)

    def _attempt_failed(self, code: str, message: str, refused: bool) -> None:
        if self._may_retry(code):
            self._again(code, message, refused)
            return
        assert self._worker is not None
        self._router.worker_failed(self._worker, message, refused)
        self.refuse(Refusal(code, f"The worker could not answer: {message}."))

    def _may_retry(self, reason: str) -> bool:
        # A streamed body is still held until a connection is open.
        return (
            (self.body is not None or reason == "upstream_connect")
            and not self.pinned
            and len(self.tried) < self._router.config.retry_attempts
            and self._router.retry_allowed(self, free=reason == "upstream_connect")
        )

    def _again(self, reason: str, message: str, refused: bool) -> None:
        worker = self._worker
        assert worker is not None
        self._discharge()
        if self.trace is not None:
            self.trace.failed(reason)
        if reason != "engine_died":
            self._router.worker_failed(worker, message, refused)
        self._router.metrics.retry(reason)
        self._reset_answer()
        self._router.send_again(self)

    def _reset_answer(self) -> None:
        self._connection = None
        self._pending = None
        self._unframed = False
        self._judged.clear()
        self.answer = usage.NO_ANSWER
        self.decision.status = None

    def refuse(self, refusal: Refusal) -> None:
        """Answer with an error; only before the first answer byte."""
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

    def client_gone(self) -> None:
        """Cancel the worker's work: the client hung up."""
        if self._drop_attempt():
            self.decision.status = 499
        self._finish("client_cancelled")

    def late(self, now: float) -> bool:
        """Return True if the worker exceeded its timeout."""
        if self.answered:
            return now > self._last_bytes + self._router.config.limits.silence_timeout_s
        return 0.0 < self.deadline < now

    def timed_out(self) -> None:
        """End without retry: the worker may still be computing."""
        connection = self._connection
        self._drop_attempt()
        if self.answered:
            assert connection is not None
            between = self._between_events(connection)
            self._broken_off(Refusal("upstream_timeout", "The worker fell silent."), between)
            return
        assert self._worker is not None
        self._router.worker_failed(self._worker, "no answer in time", refused=False)
        self.refuse(Refusal("upstream_timeout", "The worker did not begin to answer in time."))

    def stalled(self) -> None:
        """Handle a client that does not read."""
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
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None
        self._discharge()
        decision = self.decision
        decision.duration_s = perf_counter() - self._started
        decision.error = error
        if self._worker is not None and decision.failed:
            self._worker.failed_requests += 1
        self._router.meter.account(self, error)
        self._router.finished(self)

    def cache_state(self) -> str:
        """Return the cache label for metrics: reported by the engine, else predicted."""
        decision = self.decision
        cached = decision.cached_tokens
        cached = decision.predicted if cached is None else cached
        if not cached:
            return "none"
        # The last block is always computed: nearly all cached counts as all.
        return "full" if cached >= 0.9 * decision.prompt_tokens else "partial"
