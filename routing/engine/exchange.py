"""Forward the answer of one request from its worker to its client.

Bytes reach the client unchanged, and a truncated answer never looks complete: an event stream gets
a final error event without its end marker. The head is withheld until the first body byte, because
vLLM sends it before prefill: a worker that fails in prefill costs only a retry.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import TYPE_CHECKING

from routing.engine.errors import Refusal, find_error_event, is_engine_dead
from routing.engine.http import cors, heads
from routing.engine.http.http1 import ResponseHead
from routing.engine.misses import annotation
from routing.engine.request_attempts import RequestAttempts
from routing.engine.tokens import usage

if TYPE_CHECKING:
    from routing.engine.fleet.worker_connection import WorkerConnection
    from routing.engine.fleet.workers import Worker
    from routing.engine.misses.diagnosis import Diagnosis

# Sent by workers that cannot serve, before any work.
RETRY_STATUSES = (502, 503, 504)
_FIRST_ERRORS = (b'data: {"error"', b"event: error")
_HELD_ERROR_BYTES = 16_384
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SSE_COMMENT = b":\n\n"  # ignored by all SSE parsers
# vLLM's first events of /v1/responses, before it computes.
_BEFORE_TOKENS = (
    b"event: response.created",
    b"event: response.queued",
    b"event: response.in_progress",
)


class Exchange(RequestAttempts):
    """State from the complete request (or its first buffered part) to the answer's end."""

    __slots__ = ()

    def answer_head(self, head: ResponseHead) -> bool:
        status = head.status
        if status == 429 and self.decision.attempts == 1 and self._may_retry("worker_busy"):
            self._again("worker_busy", "the worker responded 429", refused=False)
            return False
        if status >= 500:
            if status in RETRY_STATUSES and self._may_retry("upstream_5xx"):
                self._again("upstream_5xx", f"the worker responded {status}", refused=False)
                return False
            if status in RETRY_STATUSES:  # a 500 may be the request's fault: no ejection
                self._router.worker_failed(self._worker, f"responded {status}", refused=False)
            if status != 500:
                self._router.metrics.error("upstream_5xx")
        self.decision.status = status
        self._events = head.events
        framing = b""
        if status in (204, 304):  # no body, despite a Content-Length
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
        if 300 <= status < 400 and status != 304:
            fields = heads.redirect_within(head.fields, str(worker.address))
            if fields is None:
                self.refuse(Refusal("upstream_protocol", "The worker redirects to another host."))
                return False
            head.fields = fields
        filtered = self.ask.adds_usage and head.events and status == 200 and head.length < 0
        stream_filter = usage.StreamFilter(worker) if filtered else None
        self.answer = usage.AnswerTokens(head.events, stream_filter)
        if self.diagnosis is not None and status == 200 and not self.head_only:
            framing = self._annotate(self.diagnosis, head, framing)
        more = worker.label_line
        if self.head.origin:
            more += cors.answer_lines(self.head, self._router.config.allowed_origins)
        ticket = self.ticket
        if ticket is not None and ticket.caller.rates:
            more += ticket.caller.rate_lines(perf_counter())
        self._pending = heads.client_response_head(
            head, framing, more, self.decision.id, self.head, self.keep_alive
        )
        return True

    def _annotate(self, diagnosis: Diagnosis, head: ResponseHead, framing: bytes) -> bytes:
        """Prepare to add diagnostics; return the framing, without a length that will change."""
        if head.events:
            if head.length < 0:
                path, opening = self.ask.path, diagnosis.opening()
                diagnosis.events = annotation.EventAnnotator(path, opening)
        elif 0 < head.length <= annotation.MAX_HELD_BYTES:
            diagnosis.holds = True
            return b""
        return framing

    def answer_body(self, data: bytes, pieces: list[bytes]) -> None:
        events = self.answer.feed(pieces)
        stream = self.answer.filter
        diagnosis = self.diagnosis
        if diagnosis is not None:
            if diagnosis.holds:
                diagnosis.held += pieces
                return
            if diagnosis.events is not None:
                if stream is not None:
                    pieces = stream.feed(pieces)
                data, pieces = self._framed(diagnosis.events.feed(pieces))
                stream = None
        if stream is not None:
            assert self._connection is not None
            if not (stream.lets(data, events) and self._connection.between_chunks):
                data, pieces = self._filtered(stream, pieces)
        if self._unframed:
            data = b"".join(pieces)
        pending = self._pending
        if pending is not None:
            if not pieces or (
                self.decision.status == 500 and self._is_judged(pieces, len(pending))
            ):
                self._pending = pending + data  # only the chunk size so far
                return
            if self._events and pieces[0].startswith(_FIRST_ERRORS) and is_engine_dead(pieces[0]):
                assert self._connection is not None
                self._connection.abandon()
                self._engine_died()
                return
            data = pending + data
            self._pending = None
            if pieces and (diagnosis is not None or self.ask.path == annotation.RESPONSES):
                self.decision.answer_id = annotation.find_answer_id(pieces[0])
            self._first_byte()
            if self._events and self.decision.ttft_s is None:
                self._find_token(pieces)
        else:
            now = perf_counter()
            assert self._worker is not None
            self._worker.progress_at = now
            if self._events and pieces:
                if self.decision.ttft_s is None:
                    self._find_token(pieces)
                else:
                    self.model.itl.observe(now - self._last_bytes)
            self._last_bytes = now
        if data:
            self._client.transport.write(data)

    def _find_token(self, pieces: list[bytes]) -> None:
        if pieces and not pieces[-1].startswith(_BEFORE_TOKENS):
            self.decision.ttft_s = perf_counter() - self._started

    def answer_chunk(self, data: bytes, piece: bytes) -> None:
        """Take one chunk; events of a stream under way pass with few calls."""
        if (
            self.decision.ttft_s is None
            or self.diagnosis is not None
            or not self._events
            or self._unframed
            or not self.answer.passes(data, piece)
        ):
            self.answer_body(data, [piece])
            return
        now = perf_counter()
        gap = now - self._last_bytes
        self._last_bytes = now
        assert self._worker is not None
        self._worker.progress_at = now
        itl = self.model.itl  # Histogram.observe, without its call
        itl.counts[bisect_left(itl.bounds, gap)] += 1
        itl.sum += gap
        self._client.transport.write(data)

    def _filtered(
        self, stream: usage.StreamFilter, pieces: list[bytes]
    ) -> tuple[bytes, list[bytes]]:
        """Return the wire bytes and the pieces that pass the filter, each as one chunk."""
        assert self._connection is not None
        held_back = stream.feed(pieces)
        stream.aligned = self._connection.between_chunks
        if self._connection.body_done:
            held_back = held_back + stream.end()
        framed, held_back = self._framed(held_back)
        return framed + b"0\r\n\r\n" if self._connection.body_done else framed, held_back

    def _framed(self, pieces: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the pieces, each as one chunk, and the pieces."""
        if self._unframed:
            return b"".join(pieces), pieces
        return b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]), pieces

    def _is_judged(self, pieces: list[bytes], held: int) -> bool:
        if held > _HELD_ERROR_BYTES:
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
        refusal = Refusal(
            "engine_died", "The worker's engine died while it processed this request."
        )
        if self._engine_deaths > 1:
            text = (
                "The engines of two workers died while they processed this request. Do "
                "not repeat it."
            )
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
        worker.progress_at = now
        if worker.circuit.state and (self.decision.status or 500) < 500:
            self._router.table.answered(worker)  # half-open: do not wait for the stream's end
        if self._events and self.ask.path != annotation.RESPONSES:
            self.decision.ttft_s = now - self._started

    def answer_done(self) -> None:
        worker = self._worker
        assert worker is not None
        self._connection = None  # back in the pool: a slow client must not pause it
        if self.diagnosis is not None and (self.diagnosis.holds or self.diagnosis.events):
            self._diagnosed(self.diagnosis, worker)
            return
        rest = b"".join(self.answer.filter.end()) if self.answer.filter is not None else b""
        if self._pending is not None:  # an answer without a body, or a complete 500
            if self.decision.status == 500 and is_engine_dead(b"".join(self._judged)):
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
        self._ended(worker)
        self._client.exchange_done(self.keep_alive)

    def _ended(self, worker: Worker) -> None:
        """Account for a complete answer; a stream may end with an error that its worker reports."""
        worker.served += 1
        error = find_error_event(self.answer.tail) if self._events else b""
        if error and is_engine_dead(error):
            self._router.engine_died(worker)
        elif (self.decision.status or 0) < 500:
            self._router.table.answered(worker)
        self._finish("broken_stream" if error else "")

    def _diagnosed(self, diagnosis: Diagnosis, worker: Worker) -> None:
        """End an answer with its diagnostics, which its accounting yields."""
        stream, pending = self.answer.filter, self._pending
        self._pending = None
        held = b"".join(diagnosis.held)
        if diagnosis.holds:
            self.decision.answer_id = annotation.find_answer_id(held)
        if pending is not None:
            self._first_byte()
        self._ended(worker)
        fields = diagnosis.fields(self.decision, streams=not diagnosis.holds)
        if diagnosis.events is None:
            body = annotation.add_fields(held, fields)
            length = b"content-length: %d\r\n" % len(body)
            data = heads.with_framing(pending or b"", length) + body
        else:
            rest = diagnosis.events.feed(stream.end()) if stream is not None else []
            data, _ = self._framed(
                [field for field in rest + diagnosis.events.end(fields) if field]
            )
            data = (pending or b"") + data + (b"" if self._unframed else b"0\r\n\r\n")
        self._client.write(data)
        self._client.exchange_done(self.keep_alive)

    def answer_lost(self, code: str, message: str) -> None:
        connection = self._connection
        worker = self._worker
        assert worker is not None
        assert connection is not None
        stale = code == "upstream_reset" and connection.uses > 1 and self.decision.status is None
        if self.answered:
            # After a broken chunk the client's state is unknown: nothing can follow.
            refusal = Refusal(code, f"The response was cut off: {message}.")
            self._router.worker_failed(worker, refusal.message, refused=False)
            between = code != "upstream_protocol" and self._between_events(connection)
            self._broken_off(refusal, between)
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
        if self.answer.filter is not None:
            for event in self.answer.filter.release():
                self._write_event(event)
        if self.diagnosis is not None and self.diagnosis.events is not None:
            for event in self.diagnosis.events.release():
                self._write_event(event)
        if between_events:
            self._write_event(refusal.event(self.head.path))
        self._finish("broken_stream")
        self._client.break_off(self._unframed)

    def _between_events(self, connection: WorkerConnection) -> bool:
        if self.diagnosis is not None and self.diagnosis.events is not None:
            return self.diagnosis.events.between
        if self.answer.filter is not None:
            return self.answer.filter.between
        if not self._events or not (self._unframed or connection.between_chunks):
            return False
        return self.answer.tail.endswith(_EVENT_ENDS)

    def _write_event(self, event: bytes) -> None:
        self._client.write(event if self._unframed else b"%x\r\n%b\r\n" % (len(event), event))

    def probe_client(self) -> bool:
        """Write bytes without effect to detect a reset; return False if impossible."""
        if not self.answered:
            if self.head.minor:
                self._client.write(_CONTINUE)
            return self.head.minor == 1
        # Inside an event, or without events: the worker's next bytes serve the purpose.
        if self._connection is not None and self._between_events(self._connection):
            self._write_event(_SSE_COMMENT)
        return True

    def late(self, now: float) -> bool:
        """Return True if the worker exceeded its timeout."""
        if self.answered:
            return now > self._last_bytes + self._router.config.limits.silence_timeout_s
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
        connection = self._connection
        self._drop_attempt()
        if self.answered:
            between = connection is not None and self._between_events(connection)
            self._broken_off(refusal, between)
        else:
            self.refuse(refusal)
