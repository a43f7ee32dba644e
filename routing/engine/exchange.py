"""One request and its answer: the pair of a client's connection and a worker's.

Promises, in this order of importance: bytes reach the client as the worker wrote them; an answer
that broke off is never made to look whole (a stream of events gets a last event of ours which
says why, and still ends without its end); a request is sent again only while the client has seen
nothing of an answer and its body is still held; every end is counted once. Nothing is shown to
the client before the answer's first body byte, so a worker which dies while it computes a prompt
(vLLM sends its head before that) costs a retry and not the request.
Must not know how a worker is chosen.
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

# A worker which cannot serve now says one of these before it has done any work.
RETRY_STATUSES = (502, 503, 504)
_FIRST_ERRORS = (b'data: {"error"', b"event: error")
_JUDGED_BYTES = 16_384  # of a 500, held until it is whole
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMENT = b":\n\n"  # every reader of events skips it
_NAMED_EVENTS_PATH = b"/v1/messages"


class Exchange:
    """Lives from the complete request (or its first held part) to the answer's end."""

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
        self.body = body  # None: it is streamed through and cannot be sent twice
        self.uploading = body is None
        self.facts = facts
        self.model = model
        self.decision = decision
        self.ask = ask
        self.keep_alive = head.keep_alive
        self.pinned = False
        self.ticket: Ticket | None = None  # its place among what is limited
        self.trace: Trace | None = None  # of a request which is recorded
        self.placing: Placement | None = None  # what kvaware has to do with it
        self.reading: asyncio.Task[None] | None = None  # of a large body
        self.answered = False
        self.tried: list[Worker] = []
        self.deadline = 0.0
        self._started = started
        self._worker: Worker | None = None
        self._connection: WorkerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._stale_tried = False
        self._charge: Charge | None = None
        self._pending: bytes | None = None  # the answer's head, until its first body byte
        self._events = False
        self._engine_deaths = 0  # workers whose engine died while they had this request
        self._judged: list[bytes] = []  # the body of a 500, held until it is whole
        self.sent_at = 0.0  # when a worker had it, on a connection
        self._unframed = False  # only the connection's end tells the client that all is there
        self._last_bytes = 0.0  # when the worker last sent some
        self.answer = usage.NO_ANSWER  # what it says about tokens

    def go(self, waited_s: float) -> None:
        """It had to wait, and its turn has come."""
        self._router.take_turn(self, waited_s)

    # -- sending

    def send_to(self, worker: Worker, uncached_tokens: int) -> None:
        """Try this worker; its load counts the work from now on."""
        self._worker = worker
        self.tried.append(worker)
        self.decision.attempts += 1
        self._charge = Charge(worker, uncached_tokens)
        if self.placing is not None and self._router.kv is not None:
            self._router.kv.charged(self, self._charge)
        if self.trace is not None:
            self.head.fields = self.trace.attempt(worker.id)
        self.deadline = perf_counter() + self._router.config.limits.response_timeout_s
        # A kept connection may turn out closed, and an upload cannot be sent twice.
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
        """The first pieces of a streamed body with what is to be set there. Raises Refusal."""
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
        """The next part of a streamed body, framed as it must go out."""
        if self._connection is not None:
            self._connection.send_more(data)

    def upload_paused(self, paused: bool) -> None:
        if self.uploading:
            self._client.pause_upload(paused)

    # -- the worker's answer

    def answer_head(self, head: ResponseHead) -> bool:
        status = head.status
        if status >= 500:
            if status in RETRY_STATUSES and self._may_retry("upstream_5xx"):
                self._again("upstream_5xx", f"the worker answered {status}", refused=False)
                return False
            if status in RETRY_STATUSES:  # a 500 may be the request's fault: no ejection for it
                self._router.worker_failed(self._worker, f"answered {status}", refused=False)
            if status != 500:
                self._router.metrics.error("upstream_5xx")
        self.decision.status = status
        self._events = head.events
        framing = b""
        if status in (204, 304):  # no body follows, whatever lengths the worker names
            pass
        elif head.length >= 0:
            framing = b"content-length: %d\r\n" % head.length
        elif head.chunked and self.head.minor:
            framing = b"transfer-encoding: chunked\r\n"
        elif not self.head_only:
            self._unframed = True
            self.keep_alive = False
        if self.uploading:  # answered before the request was whole: nothing can follow it
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
                self._pending = pending + data  # a chunk's size came alone: nothing to see yet
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
        """What the client gets of these: each piece as a chunk of its own."""
        assert self._connection is not None
        kept = stream.feed(pieces)
        stream.aligned = self._connection.between_chunks
        if self._connection.body_done:
            kept = kept + stream.end()
        framed = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in kept])
        return framed + b"0\r\n\r\n" if self._connection.body_done else framed, kept

    def _is_judged(self, pieces: list[bytes], held: int) -> bool:
        """Whether this is a part of a 500 which is held until all of it is known."""
        if self.decision.status != 500 or held > _JUDGED_BYTES:
            return False
        self._judged += pieces
        return True

    def _engine_died(self) -> None:
        """No byte of an answer was passed on. Sent again once only: the request may be what kills
        engines, and must not reach all of them."""
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
        """From here on the answer belongs to the client: the request cannot be sent again."""
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
            self._router.table.answered(worker)  # a trial need not last as long as its stream
        if self._events:
            self.decision.ttft_s = now - self._started

    def answer_done(self) -> None:
        worker = self._worker
        assert worker is not None
        self._connection = None  # somebody else's by now: a slow client must not pause it
        rest = b"".join(self.answer.filter.end()) if self.answer.filter is not None else b""
        if self._pending is not None:  # an answer without a body, or a 500 which is whole now
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
        elif rest:  # without chunks the end comes by itself
            self._client.write(rest)
        worker.served += 1
        if (self.decision.status or 0) < 500:
            self._router.table.answered(worker)
        self._finish("")
        self._client.exchange_done(self.keep_alive)

    def answer_end(self) -> bytes:
        """The last pieces of what the worker said."""
        return self.answer.tail

    def answer_lost(self, code: str, message: str) -> None:
        connection = self._connection
        worker = self._worker
        assert worker is not None
        assert connection is not None
        stale = code == "upstream_reset" and connection.uses > 1 and self.decision.status is None
        if self.answered:
            # After a broken chunk nobody knows what the client has of it: nothing can follow.
            between = code != "upstream_protocol" and self._between_events(connection)
            self._broken_off(Refusal(code, f"The answer broke off: {message}."), between)
        elif stale and not worker.gone and not self._stale_tried and self.body is not None:
            # A kept-alive connection may close just as it is used: that says nothing about the
            # worker, so it is asked once more on a new one.
            self._stale_tried = True
            self._reset_answer()
            self._router.metrics.retry("stale_connection")
            self._connect(worker)
        else:
            self._attempt_failed(code, message, refused=False)

    def _broken_off(self, refusal: Refusal, between_events: bool) -> None:
        """The worker failed in the middle of an answer which the client has begun to read."""
        self._router.worker_failed(self._worker, refusal.message, refused=False)
        if self.answer.filter is not None:
            for event in self.answer.filter.release():
                self._write_event(event)
        if between_events:
            self._write_event(refusal.event(named=self.head.path == _NAMED_EVENTS_PATH))
        self._finish("broken_stream")
        self._client.break_off(self._unframed)

    def _between_events(self, connection: WorkerConnection) -> bool:
        """Could an event of our own follow what was written so far?"""
        if self.answer.filter is not None:
            return self.answer.filter.between
        if not self._events or not (self._unframed or connection.between_chunks):
            return False
        return self.answer.tail.endswith(_EVENT_ENDS)

    def _write_event(self, event: bytes) -> None:
        self._client.write(event if self._unframed else b"%x\r\n%b\r\n" % (len(event), event))

    def ask_client(self) -> bool:
        """Write what changes nothing: does anybody read it? False: there is no way to ask."""
        if not self.answered:
            if self.head.minor:
                self._client.write(_CONTINUE)
            return self.head.minor == 1
        # Inside an event, or in an answer without events, the worker's next bytes do as well.
        if self._connection is not None and self._between_events(self._connection):
            self._write_event(_COMMENT)
        return True

    # -- failing

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
        # What is streamed through is still held until there is a connection to stream it on.
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
        """End with an error of our own; only before any byte of an answer."""
        self.decision.status = refusal.kind.status
        self._finish(refusal.kind.reason)
        self._client.reply_error(refusal, self.head, self.decision.id, close=self.uploading)

    def upload_failed(self, refusal: Refusal) -> None:
        """The rest of a streamed body cannot be had, or not be handed on."""
        self._drop_attempt()
        if refusal.kind.reason == "upstream_timeout":
            self._router.worker_failed(self._worker, refusal.message, refused=False)
        if self.answered:
            self._finish(refusal.kind.reason)
            self._client.break_off(True)
        else:
            self.refuse(refusal)

    def client_gone(self) -> None:
        """The client hung up: the worker must stop its work at once."""
        if self._drop_attempt():
            self.decision.status = 499
        self._finish("client_cancelled")

    def late(self, now: float) -> bool:
        """Has the worker been silent for too long?"""
        if self.answered:
            return now > self._last_bytes + self._router.config.limits.silence_timeout_s
        return 0.0 < self.deadline < now

    def timed_out(self) -> None:
        """Not sent again: the worker may still be computing it."""
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
        """The client stopped reading for too long."""
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

    # -- flow control and ends

    def client_paused(self, paused: bool) -> None:
        self._last_bytes = perf_counter()  # the worker could not have sent any
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
        """How much of the prompt was cached, by the engine's word or else by prediction."""
        decision = self.decision
        cached = decision.cached_tokens
        cached = decision.predicted if cached is None else cached
        if not cached:
            return "none"
        # The last block is always computed, so nearly everything counts as everything.
        return "full" if cached >= 0.9 * decision.prompt_tokens else "partial"
