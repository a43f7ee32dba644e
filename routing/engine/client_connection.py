"""Client connection: asyncio callbacks, reading of requests, answers, deadlines.

Requests are handled one at a time and in order; all limits are enforced with bounded memory. A
client that hangs up cancels its request; a half-closed one still gets its answer. They are
distinguished by writing: a closed socket replies with a reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, cast

from routing.engine.config import Key
from routing.engine.errors import Refusal
from routing.engine.http import cors, peer_state
from routing.engine.http.bodies import UploadDeadline, append_pieces
from routing.engine.http.head_cache import read_request
from routing.engine.http.heads import refusal_headers, router_answer
from routing.engine.http.http1 import ChunkedBody, ProtocolError, RequestHead

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker
    from routing.engine.protocols import ServedRequest
    from routing.engine.router import Router

_WRITE_HIGH_BYTES: Final = 64 * 1024
_PIPELINED_BYTES: Final = 64 * 1024
# First check interval of a half-closed client; it doubles until the common clock takes over.
_FIRST_CHECK_S, _LAST_CHECK_S = 0.005, 0.5
_LINGER_S: Final = 2.0
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# LINGER: read the rest after an early rejection, so that a reset does not overtake the answer.
HEAD: Final = 0
BODY: Final = 1
UPLOAD: Final = 2
BUSY: Final = 3
LINGER: Final = 4


class RequestHandler(Protocol):
    """The request path (request_path.py) as seen by a connection."""

    router: Router

    def name_request(self, head: RequestHead) -> None: ...
    def admit(self, head: RequestHead) -> Key: ...
    def handle(
        self, client: ClientConnection, head: RequestHead, key: Key, body: bytes | None, seen: bytes
    ) -> None: ...


class ClientConnection:
    """A client's connection: buffered bytes, the request being read, its answer.

    Acts like an asyncio.Protocol without being a subclass: a class with a foreign base cannot be
    compiled to a native one.
    """

    __slots__ = (
        "_advancing", "_arrival", "_at", "_buffer", "_charged", "_chunks", "_end_sent", "_exchange",
        "_head", "_held", "_key", "_need", "_path", "_pieces", "_probed", "_read_paused", "_router",
        "_state", "_upload_paused", "_upload_read", "_write_paused", "deadline", "transport",
    )  # fmt: skip

    def __init__(self, path: RequestHandler) -> None:
        self._path = path
        self._router = path.router
        self._state = HEAD
        self._buffer = b""
        self._at = 0
        self._advancing = False
        self._charged = 0  # bytes of the router's buffer budget
        self._read_paused = False
        self._write_paused = False
        self._end_sent = False  # FIN received
        self._probed = False  # a probe was written to detect a reset
        self._upload_paused = False
        self._upload_read = False  # the body is complete, the worker connection is not open yet
        self._head: RequestHead | None = None
        self._key: Key | None = None
        self._chunks: ChunkedBody | None = None
        self._pieces: list[bytes | bytearray] = []
        self._held = 0
        self._arrival = UploadDeadline()
        self._need = 0
        self._exchange: ServedRequest | None = None
        self.deadline = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self.deadline = perf_counter() + self._router.config.limits.idle_timeout_s
        clients = self._router.clients
        clients.add(self)
        if len(clients) > self._router.most_clients:
            self._turn_away()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._router.clients.discard(self)
        self._state = LINGER
        self._buffer = b""
        self._at = 0
        self._pieces.clear()
        self.release()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    def data_received(self, data: bytes) -> None:
        try:
            self._receive(data)
        except Exception as error:  # noqa: BLE001 - asyncio would close without an answer
            self._crashed(error)

    def _crashed(self, error: Exception) -> None:
        if self._exchange is not None:
            self._exchange.crashed(error)
            return
        self._router.internal_error("connection", error)
        if self._state == LINGER:
            self.transport.abort()
        else:
            self._reject(Refusal("internal_error", "The router failed to read this request."))

    def _receive(self, data: bytes) -> None:
        state = self._state
        if state == HEAD:
            self._buffer = self._buffer + data if self._buffer else data
            self._advance()
            if self._write_paused:
                room = self._charge(len(self._buffer))
                if len(self._buffer) > _PIPELINED_BYTES or not room:
                    self._pause_reading(True)
        elif state in (BODY, UPLOAD):
            self._read_body(data)
        elif state == BUSY:
            self._buffer += data
            room = self._charge(self._charged + len(data))
            if len(self._buffer) > _PIPELINED_BYTES or not room:
                self._pause_reading(True)

    def eof_received(self) -> bool:
        """Return True to keep the connection open for pending answers."""
        self._end_sent = True
        if not peer_state.can_half_close(self.transport):
            return False
        if self._state == HEAD:
            return self._write_paused and bool(self._buffer)  # complete requests may be buffered
        if self._state != BUSY:
            return False
        if self._exchange is None or not self._exchange.probe_client():
            return False
        self._check_reset_later(_FIRST_CHECK_S)
        return True

    def _check_reset_later(self, delay: float) -> None:
        asyncio.get_running_loop().call_later(delay, self._check_reset, delay)

    def _check_reset(self, delay: float) -> None:
        if self._state != BUSY or self.transport.is_closing():
            return
        if peer_state.was_reset(self.transport):
            self.transport.abort()
        elif delay < _LAST_CHECK_S:
            self._check_reset_later(delay * 2)

    def pause_writing(self) -> None:
        self._write_paused = True
        self.deadline = perf_counter() + self._router.config.limits.stall_timeout_s
        if self._exchange is not None:
            self._exchange.client_paused(True)

    def resume_writing(self) -> None:
        try:
            self._resume()
        except Exception as error:  # noqa: BLE001 - as in data_received
            self._crashed(error)

    def _resume(self) -> None:
        self._write_paused = False
        if self._state == BUSY:
            self.deadline = 0.0
        if self._exchange is not None:
            self._exchange.client_paused(False)
        elif self._state == HEAD:
            self.deadline = perf_counter() + self._router.config.limits.idle_timeout_s
            self._pause_reading(False)
            self._advance()

    def _turn_away(self) -> None:
        refusal = Refusal("too_many_clients", "The connection limit of the router is reached.")
        self._router.refused(refusal)
        self.reply_error(refusal, None)
        self.transport.close()

    def tick(self, now: float) -> None:
        try:
            self._check_deadlines(now)
        except Exception as error:  # noqa: BLE001 - the other connections have theirs
            self._crashed(error)

    def _check_deadlines(self, now: float) -> None:
        exchange = self._exchange
        if (self._end_sent or self._read_paused) and peer_state.was_reset(self.transport):
            self.transport.abort()
            return
        if (
            exchange is not None
            and self._state == BUSY
            and not self._write_paused
            and exchange.late(now)
        ):
            exchange.timed_out()
            return
        if (
            exchange is not None
            and self._state == UPLOAD
            and self._read_paused
            and not self._probed
            # paused writes: the client does not read, so a probe would not reach it
            and peer_state.sent_fin(self.transport)
        ):
            self._probed = True
            if not peer_state.can_half_close(self.transport) or not exchange.probe_client():
                self.transport.abort()
                return
        if not self.deadline or now < self.deadline:
            return
        if self._write_paused:
            if exchange is not None:
                exchange.stalled()
            else:
                self.transport.abort()
        elif self._state == BODY or (self._state == HEAD and self._buffer):
            self._reject(Refusal("request_timeout", "The request took too long to arrive."))
        elif self._state == UPLOAD and self._upload_paused:
            self._bad_body(Refusal("upstream_timeout", "The worker stopped reading the request."))
        elif self._state == UPLOAD and exchange is not None and not self._read_paused:
            self._bad_body(Refusal("request_timeout", "The request took too long to arrive."))
        elif self._state == HEAD:
            self.transport.close()
        elif self._state == LINGER:
            self.transport.abort()

    def cut(self) -> None:
        """End now; a request under way ends with an error."""
        if self._exchange is not None:
            self._exchange.cut()
        else:
            self.transport.abort()

    def shut(self) -> None:
        """Close an idle connection now, a busy one after its answer."""
        if self._state == HEAD and self._exchange is None:
            self.transport.close()

    def _advance(self) -> None:
        """Process buffered heads; a loop, because local answers complete immediately."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._state == HEAD and self._at < len(self._buffer) and not self._write_paused:
                if not self._read_head():
                    break
        finally:
            self._advancing = False
            if self._at:  # cut once for all requests read
                self._buffer = self._buffer[self._at :]
                self._at = 0
        if self._end_sent and self._state == HEAD and not self._write_paused:
            self._hang_up(False)  # the rest can never become a request

    def _read_head(self) -> bool:
        buffer = self._buffer
        start = self._at
        while buffer.startswith(b"\r\n", start):
            start += 2  # RFC 9112 2.2: empty lines before a request
        self._at = start
        self._head = None
        limits = self._router.config.limits
        end = buffer.find(b"\r\n\r\n", start)
        if end < 0:
            line = buffer.find(b"\n", start)
            if len(buffer) - start > limits.header_bytes + 3:  # part of the end may be buffered
                self._reject(Refusal("headers_too_large", "The request's head is too large."))
            elif not self._charge(len(buffer) - start):
                self._reject(self._router.budget.full())
            elif line == start or (line > start and buffer[line - 1] != 0x0D):
                self._reject(Refusal("bad_request", "Lines must end with CR LF."))
            elif not self.deadline or self.deadline > perf_counter() + limits.header_timeout_s:
                self.deadline = perf_counter() + limits.header_timeout_s
            return False
        try:
            if end - start > limits.header_bytes:
                raise Refusal("headers_too_large", "The request's head is too large.")
            head = read_request(buffer[start : end + 2])
            self._path.name_request(head)
            self._head = head
            self._key = self._path.admit(head)
        except Refusal as refusal:
            self._reject(refusal)
            return False
        self._at = end + 4
        self._begin_body(head)
        return True

    def _begin_body(self, head: RequestHead) -> None:
        limits = self._router.config.limits
        if head.length <= 0 and not head.chunked:
            self._dispatch(b"")
            return
        if not head.chunked and head.length <= limits.hold_bytes:
            end = self._at + head.length
            if end <= len(self._buffer):
                body, self._at = self._buffer[self._at : end], end
                self._dispatch(body)
                return
        data, self._buffer, self._at = self._buffer[self._at :], b"", 0
        if head.expect and not data:
            self.transport.write(_CONTINUE)
        self._chunks = ChunkedBody() if head.chunked else None
        self._need = head.length
        self._held = 0
        self.release()
        self._state = BODY
        self._measure_pace()
        if head.length > limits.hold_bytes:
            self._begin_upload()
        if data and self._state in (BODY, UPLOAD):
            self._read_body(data)

    def _measure_pace(self) -> None:
        """Restart the pace measurement after backpressure."""
        self.deadline = self._arrival.begin(self._router.config.limits.body_timeout_s)

    def _read_body(self, data: bytes) -> None:
        limits = self._router.config.limits
        self.deadline = self._arrival.came(len(data), limits.body_timeout_s)
        done = False
        if self._chunks is not None:
            try:
                used = self._chunks.feed(data)
            except ProtocolError as error:
                self._bad_body(Refusal("bad_request", f"The body is not valid: {error}."))
                return
            pieces = self._chunks.pieces
            done = self._chunks.done
            self._buffer = data[used:]
        else:
            if len(data) >= self._need:
                data, self._buffer = data[: self._need], data[self._need :]
                done = True
            self._need -= len(data)
            pieces = [data]
        self._held += sum(map(len, pieces))
        if self._held > limits.body_bytes:
            message = f"The body is larger than {limits.body_bytes} bytes."
            self._bad_body(Refusal("body_too_large", message))
            return
        exchange = self._exchange
        waits = exchange is None or not exchange.connected
        if waits and not self._charge(self._charged + len(data)):
            self._bad_body(self._router.budget.full())
            return
        if self._state == UPLOAD:
            self._forward(pieces, done)
            return
        append_pieces(self._pieces, pieces)
        if done:
            body = b"".join(self._pieces)  # a single piece is not copied
            self._pieces = []
            self._dispatch(body)
        elif self._held > limits.hold_bytes:
            self._begin_upload()

    def _bad_body(self, refusal: Refusal) -> None:
        if self._exchange is not None:
            self._exchange.upload_failed(refusal)
        else:
            self._reject(refusal)

    def _begin_upload(self) -> None:
        self._state = UPLOAD
        self._upload_read = False
        self._pause_reading(True)  # until the worker connection is open
        assert self._head is not None
        assert self._key is not None
        self._path.handle(self, self._head, self._key, None, b"".join(self._pieces[:1]))

    def upload_ready(self) -> None:
        pieces, self._pieces = self._pieces, []
        self._forward(pieces, self._upload_read)
        self.release()
        self.pause_upload(self._upload_paused)

    def pause_upload(self, paused: bool) -> None:
        """Apply the worker's backpressure to the client."""
        self._upload_paused = paused
        self._pause_reading(paused)
        if self._state != UPLOAD:
            return
        if paused:
            self.deadline = perf_counter() + self._router.config.limits.stall_timeout_s
        else:
            self._measure_pace()

    def _forward(self, pieces: Sequence[bytes | bytearray], done: bool) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if not exchange.connected:
            append_pieces(self._pieces, pieces)
            self._upload_read = done
            return
        try:
            pieces = exchange.opened(pieces)
        except Refusal as refusal:
            exchange.upload_failed(refusal)
            return
        data = b"".join(pieces)  # a single piece is not copied
        if data:
            chunked = self._chunks is not None
            exchange.send_body(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if done:
            if self._chunks is not None:
                exchange.send_body(b"0\r\n\r\n")
            exchange.uploading = False
            self._state = BUSY
            self.deadline = 0.0

    def _dispatch(self, body: bytes) -> None:
        self._state = BUSY
        self.deadline = 0.0
        assert self._head is not None
        assert self._key is not None
        size = len(body) + len(self._buffer) - self._at
        if size and not self._charge(size):
            refusal = self._router.budget.full()
            self._router.refused(refusal)
            self.reply_error(refusal, self._head)
            return
        self._path.handle(self, self._head, self._key, body, body)

    def _charge(self, size: int) -> bool:
        if self._router.budget.hold(self._charged, size):
            self._charged = size
            return True
        return False

    def recharge(self, body_bytes: int) -> bool:
        """Count a body of another size, as after decoding; return False above the budget."""
        return self._charge(body_bytes + len(self._buffer) - self._at)

    def release(self) -> None:
        """Free the request's body; read-ahead data stays."""
        size = len(self._buffer) - self._at
        if self._charged > size:
            self._router.budget.used -= self._charged - size
            self._charged = size

    def begin(self, exchange: ServedRequest) -> None:
        self._exchange = exchange

    def worker_stuck(self, worker: Worker) -> None:
        if self._exchange is not None:
            self._exchange.worker_stuck(worker)

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    def exchange_done(self, keep_alive: bool) -> None:
        self._exchange = None
        if self._charged:
            self.release()
        if not keep_alive or self._state == UPLOAD or self._router.closing:
            self._hang_up(self._state == UPLOAD or self._read_paused)
            return
        self._state = HEAD
        if not self._write_paused:  # otherwise wait until the client has read the answer
            self.deadline = perf_counter() + self._router.config.limits.idle_timeout_s
        if self._read_paused:
            self._pause_reading(False)
        if self._buffer or self._end_sent:
            self._advance()

    def break_off(self, reset: bool) -> None:
        """Close the connection so that the client detects a truncated answer."""
        self._exchange = None
        self._state = LINGER
        if reset:
            # Without length or chunks only a reset marks truncation.
            sock = self.transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self._hang_up(False)

    def reply(self, status: int, body: bytes, head: RequestHead | None, more: bytes = b"") -> None:
        """Answer locally; `more`: additional header lines. Keep the connection if possible."""
        keep = head is not None and head.keep_alive and self._state == BUSY
        keep = keep and not self._router.closing
        if head is not None and head.origin and b"access-control-" not in more:
            more += cors.answer_lines(head, self._router.config.allowed_origins)
        self.transport.write(router_answer(status, body, head, more, keep))
        if keep:
            self.exchange_done(True)
        else:
            self._exchange = None
            self._hang_up(self._state != BUSY)

    def reply_error(
        self, refusal: Refusal, head: RequestHead | None, decision: str = "", close: bool = False
    ) -> None:
        if close and head is not None:
            head.keep_alive = False
        body = refusal.body(b"" if head is None else head.path)
        self.reply(refusal.kind.status, body, head, refusal_headers(refusal, decision))

    def _reject(self, refusal: Refusal) -> None:
        """Reject a request before it was read whole; the connection is closed afterwards."""
        head, self._head = self._head, None
        self._router.refused(refusal)
        self.reply_error(refusal, head, close=True)

    def _hang_up(self, unread: bool) -> None:
        self._state = LINGER
        self._buffer = b""
        self._at = 0
        self._pieces = []
        self.release()
        if not unread or self._end_sent:
            self.deadline = perf_counter() + self._router.config.limits.stall_timeout_s
            self.transport.close()
            return
        # Closing with unread bytes would send a reset, which can overtake the answer.
        self.deadline = perf_counter() + _LINGER_S
        self._pause_reading(False)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _pause_reading(self, paused: bool) -> None:
        if self._end_sent:  # reading would return EOF again
            self._read_paused = False
        elif paused != self._read_paused and not self.transport.is_closing():
            self._read_paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
