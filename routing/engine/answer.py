"""The answer of one attempt, on its way from the worker to the client.

Bytes pass unchanged, except that an event the router asked for is removed and diagnostics that the
client asked for are added. A truncated answer never looks complete: an event stream gets a final
error event without its end marker. The head is withheld until the first body byte, because vLLM
sends it before prefill: a worker that fails in prefill costs only a retry.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import TYPE_CHECKING, Final

from routing.engine.errors import Refusal, find_error_event, is_engine_dead
from routing.engine.fleet.worker_connection import AnswerReceiver
from routing.engine.http import cors, heads
from routing.engine.http.http1 import ResponseHead
from routing.engine.misses import annotation
from routing.engine.tokens import usage

if TYPE_CHECKING:
    from routing.engine.fleet.worker_connection import WorkerConnection
    from routing.engine.fleet.workers import Worker
    from routing.engine.misses.diagnosis import Diagnosis
    from routing.engine.protocols import ClientSide
    from routing.engine.request import RoutedRequest
    from routing.engine.router import Router

# Sent by workers that cannot serve, before any work.
RETRY_STATUSES: Final = (502, 503, 504)
_FIRST_ERRORS: Final = (b'data: {"error"', b"event: error")
_HELD_ERROR_BYTES: Final = 16_384
_EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
_LAST_CHUNK: Final = b"0\r\n\r\n"
_SSE_COMMENT: Final = b":\n\n"  # ignored by all SSE parsers
# vLLM's first events of /v1/responses, before it computes.
_BEFORE_TOKENS: Final = (
    b"event: response.created",
    b"event: response.queued",
    b"event: response.in_progress",
)


class Answer(AnswerReceiver):
    """Receiver of one attempt's answer. `unframed`: the answer ends with the connection.
    `connection`: None once it is complete or given up.
    """

    __slots__ = (
        "_annotator", "_client", "_diagnosis", "_direct", "_events", "_held", "_holds", "_judged",
        "_last_bytes", "_pending", "_request", "_router", "_started", "_tokens", "_worker",
        "connection", "unframed",
    )  # fmt: skip

    def __init__(
        self,
        request: RoutedRequest,
        client: ClientSide,
        router: Router,
        worker: Worker,
        connection: WorkerConnection,
        started: float,
    ) -> None:
        self.head_only = request.head.method == b"HEAD"
        self._request = request
        self._client = client
        self._router = router
        self._worker = worker
        self._started = started
        self.connection: WorkerConnection | None = connection
        self.unframed = False
        self._events = False
        self._direct = False  # events pass in their chunks unless `_tokens` objects
        self._tokens = usage.NO_ANSWER
        self._pending: bytes | None = None  # withheld head
        self._judged: list[bytes] = []  # body of a 500, held until complete
        self._last_bytes = 0.0
        self._diagnosis: Diagnosis | None = None
        self._annotator: annotation.EventAnnotator | None = None
        self._holds = False  # the whole body, since its length changes
        self._held: list[bytes] = []

    # -- from the worker

    def answer_head(self, head: ResponseHead) -> bool:
        request, router = self._request, self._router
        status = head.status
        if status == 429 and request.decision.attempts == 1 and request.may_retry("worker_busy"):
            request.retry("worker_busy", "the worker responded 429")
            return False
        if status >= 500:
            if status in RETRY_STATUSES and request.may_retry("upstream_5xx"):
                request.retry("upstream_5xx", f"the worker responded {status}")
                return False
            if status in RETRY_STATUSES:  # a 500 may be the request's fault: no ejection
                router.worker_failed(self._worker, f"responded {status}", refused=False)
            if status != 500:
                router.metrics.error("upstream_5xx")
        request.decision.status = status
        if 300 <= status < 400 and status != 304:
            fields = heads.redirect_within(head.fields, str(self._worker.address))
            if fields is None:
                text = "The worker redirects to another host."
                request.refuse(Refusal("upstream_protocol", text))
                return False
            head.fields = fields
        self._events = head.events
        filtered = request.ask.adds_usage and head.events and status == 200 and head.length < 0
        stream_filter = usage.StreamFilter(self._worker) if filtered else None
        self._tokens = request.answer = usage.AnswerTokens(head.events, stream_filter)
        framing = self._framing(head)
        if request.diagnosis is not None and status == 200 and not self.head_only:
            framing = self._annotate(request.diagnosis, head, framing)
        self._direct = head.events and not self.unframed and request.diagnosis is None
        more = self._worker.label_line
        if request.head.origin:
            more += cors.answer_lines(request.head, router.config.allowed_origins)
        ticket = request.ticket
        if ticket is not None and ticket.caller.rates:
            more += ticket.caller.rate_lines(perf_counter())
        self._pending = heads.client_response_head(
            head, framing, more, request.decision.id, request.head, request.keep_alive
        )
        return True

    def _framing(self, head: ResponseHead) -> bytes:
        """Return the line that frames the body, "" for none, and decide about the connections."""
        request = self._request
        framing = b""
        if head.status in (204, 304):  # no body, despite a Content-Length
            pass
        elif head.length >= 0:
            framing = b"content-length: %d\r\n" % head.length
        elif head.chunked and request.head.minor:
            framing = b"transfer-encoding: chunked\r\n"
        elif not self.head_only:
            self.unframed = True
            request.keep_alive = False
        if request.uploading:  # early answer: the connection cannot be reused
            assert self.connection is not None
            self.connection.not_reusable()
            request.keep_alive = False
        if self._router.closing:
            request.keep_alive = False
        return framing

    def _annotate(self, diagnosis: Diagnosis, head: ResponseHead, framing: bytes) -> bytes:
        """Prepare to add diagnostics; return the framing, without a length that will change."""
        self._diagnosis = diagnosis
        if head.events:
            if head.length < 0:
                path = self._request.ask.path
                self._annotator = annotation.EventAnnotator(path, diagnosis.opening())
        elif 0 < head.length <= annotation.MAX_HELD_BYTES:
            self._holds = True
            return b""
        return framing

    def answer_chunk(self, data: bytes, piece: bytes) -> None:
        """Take one chunk; events of a stream under way pass with few calls."""
        request = self._request
        if (
            request.decision.ttft_s is None
            or not self._direct
            or not self._tokens.passes(data, piece)
        ):
            self.answer_body(data, [piece])
            return
        now = perf_counter()
        gap = now - self._last_bytes
        self._last_bytes = now
        self._worker.progress_at = now
        itl = request.model.itl  # Histogram.observe, without its call
        itl.counts[bisect_left(itl.bounds, gap)] += 1
        itl.sum += gap
        self._client.transport.write(data)

    def answer_body(self, data: bytes, pieces: list[bytes]) -> None:
        request = self._request
        events = self._tokens.feed(pieces)
        if self._holds:
            self._held += pieces
            return
        data, pieces = self._changed(data, pieces, events)
        pending = self._pending
        if pending is not None:
            if not pieces or (
                request.decision.status == 500 and self._is_judged(pieces, len(pending))
            ):
                self._pending = pending + data  # only the chunk size so far
                return
            if self._events and pieces[0].startswith(_FIRST_ERRORS) and is_engine_dead(pieces[0]):
                self.drop()
                request.engine_died()
                return
            data = pending + data
            self._pending = None
            if request.diagnosis is not None or request.ask.path == annotation.RESPONSES:
                request.decision.answer_id = annotation.find_answer_id(pieces[0])
            self._first_byte()
            if self._events and request.decision.ttft_s is None:
                self._find_token(pieces)
        else:
            now = perf_counter()
            self._worker.progress_at = now
            if self._events and pieces:
                if request.decision.ttft_s is None:
                    self._find_token(pieces)
                else:
                    request.model.itl.observe(now - self._last_bytes)
            self._last_bytes = now
        if data:
            self._client.transport.write(data)

    def _changed(self, data: bytes, pieces: list[bytes], events: int) -> tuple[bytes, list[bytes]]:
        """Return what the client gets of these bytes, in which `events` events ended, and the
        pieces in it.
        """
        removed = self._tokens.filter
        if self._annotator is not None:
            if removed is not None:
                pieces = removed.feed(pieces)
            return self._framed(self._annotator.feed(pieces))
        if removed is not None:
            connection = self.connection
            assert connection is not None
            if not (removed.lets(data, events) and connection.between_chunks):
                pieces = removed.feed(pieces)
                removed.aligned = connection.between_chunks
                if not connection.body_done:
                    return self._framed(pieces)
                data, pieces = self._framed(pieces + removed.end())
                data += _LAST_CHUNK
        return b"".join(pieces) if self.unframed else data, pieces

    def _framed(self, pieces: list[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the pieces, each as one chunk, and the pieces."""
        if self.unframed:
            return b"".join(pieces), pieces
        return b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]), pieces

    def _find_token(self, pieces: list[bytes]) -> None:
        if pieces and not pieces[-1].startswith(_BEFORE_TOKENS):
            self._request.decision.ttft_s = perf_counter() - self._started

    def _is_judged(self, pieces: list[bytes], held: int) -> bool:
        if held > _HELD_ERROR_BYTES:
            return False
        self._judged += pieces
        return True

    def _first_byte(self) -> None:
        request = self._request
        now = self._last_bytes = self._worker.progress_at = perf_counter()
        request.first_byte()
        if self._events and request.ask.path != annotation.RESPONSES:
            request.decision.ttft_s = now - self._started

    def answer_done(self) -> None:
        request = self._request
        self.connection = None  # back in the pool: a slow client must not pause it
        if self._holds or self._annotator is not None:
            assert self._diagnosis is not None
            self._diagnosed(self._diagnosis)
            return
        rest = b"".join(self._tokens.filter.end()) if self._tokens.filter is not None else b""
        if self._pending is not None:  # an answer without a body, or a complete 500
            if request.decision.status == 500 and is_engine_dead(b"".join(self._judged)):
                request.engine_died()
                return
            if self._judged:
                self._first_byte()
            elif request.decision.status == 500:
                self._router.metrics.error("upstream_5xx")
            self._client.write(self._pending + rest)
            self._pending = None
            request.answered = True
        elif rest:  # without chunks the end needs no bytes
            self._client.write(rest)
        self._ended()
        self._client.exchange_done(request.keep_alive)

    def _ended(self) -> None:
        """Account for a complete answer; a stream may end with an error that its worker reports."""
        worker, request = self._worker, self._request
        worker.served += 1
        error = find_error_event(self._tokens.tail) if self._events else b""
        if error and is_engine_dead(error):
            self._router.engine_died(worker)
        elif (request.decision.status or 0) < 500:
            self._router.table.answered(worker)
        request.finish("broken_stream" if error else "")

    def _diagnosed(self, diagnosis: Diagnosis) -> None:
        """End an answer with its diagnostics, which its accounting yields."""
        request, removed, pending = self._request, self._tokens.filter, self._pending
        self._pending = None
        held = b"".join(self._held)
        if self._holds:
            request.decision.answer_id = annotation.find_answer_id(held)
        if pending is not None:
            self._first_byte()
        self._ended()
        fields = diagnosis.fields(request.decision, streams=not self._holds)
        if self._annotator is None:
            body = annotation.add_fields(held, fields)
            length = b"content-length: %d\r\n" % len(body)
            data = heads.with_framing(pending or b"", length) + body
        else:
            rest = self._annotator.feed(removed.end()) if removed is not None else []
            data, _ = self._framed([piece for piece in rest + self._annotator.end(fields) if piece])
            data = (pending or b"") + data + (b"" if self.unframed else _LAST_CHUNK)
        self._client.write(data)
        self._client.exchange_done(request.keep_alive)

    def answer_lost(self, code: str, message: str) -> None:
        request, connection = self._request, self.connection
        assert connection is not None
        stale = code == "upstream_reset" and connection.uses > 1 and request.decision.status is None
        if request.answered:
            # After a broken chunk the client's state is unknown: nothing can follow.
            refusal = Refusal(code, f"The response was cut off: {message}.")
            self._router.worker_failed(self._worker, refusal.message, refused=False)
            self.break_off(refusal, code != "upstream_protocol" and self._between_events())
        elif not (stale and request.reconnect()):
            request.attempt_failed(code, message)

    def crashed(self, error: Exception) -> None:
        self._request.crashed(error)

    def upload_paused(self, paused: bool) -> None:
        if self._request.uploading:
            self._client.pause_upload(paused)

    # -- from the request

    def drop(self) -> None:
        """Give the attempt up; the worker aborts it."""
        if self.connection is not None:
            self.connection.abandon()
            self.connection = None

    def stop(self, refusal: Refusal) -> None:
        """Give up an answer of which the client has a part."""
        between = self.connection is not None and self._between_events()
        self.drop()
        self.break_off(refusal, between)

    def break_off(self, refusal: Refusal, between_events: bool) -> None:
        """End an answer that is not complete, with the refusal as its last event if one fits."""
        if self._tokens.filter is not None:
            for event in self._tokens.filter.release():
                self._write_event(event)
        if self._annotator is not None:
            for event in self._annotator.release():
                self._write_event(event)
        if between_events:
            self._write_event(refusal.event(self._request.head.path))
        self._request.finish("broken_stream")
        self._client.break_off(self.unframed)

    def pause(self, paused: bool) -> None:
        """Read from the worker no faster than the client does."""
        self._last_bytes = perf_counter()  # the worker was paused
        if self.connection is not None:
            self.connection.pause(paused)

    def write_comment(self) -> None:
        """Write bytes without effect. Inside an event, or without events, the worker's next ones
        serve the purpose.
        """
        if self.connection is not None and self._between_events():
            self._write_event(_SSE_COMMENT)

    def is_silent(self, now: float) -> bool:
        return now > self._last_bytes + self._router.config.limits.silence_timeout_s

    def _between_events(self) -> bool:
        """Return True if an event of the router's own may follow."""
        if self._annotator is not None:
            return self._annotator.between
        if self._tokens.filter is not None:
            return self._tokens.filter.between
        connection = self.connection
        assert connection is not None
        if not self._events or not (self.unframed or connection.between_chunks):
            return False
        return self._tokens.tail.endswith(_EVENT_ENDS)

    def _write_event(self, event: bytes) -> None:
        self._client.write(event if self.unframed else b"%x\r\n%b\r\n" % (len(event), event))
