"""Connection to a worker: send a request, forward the answer, detect its end.

Bytes are forwarded unchanged as they arrive. A connection is reused only after a complete answer to
a completely sent request.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Protocol, cast

from routing.engine.http import peer_state
from routing.engine.http.head_cache import read_response
from routing.engine.http.http1 import ChunkedBody, ProtocolError, ResponseHead

MAX_HEAD_BYTES: Final = 65_536
# Limit of informational (1xx) responses before an answer; servers send one or two.
MAX_INTERIM_RESPONSES: Final = 16
_NO_BODY: Final = (204, 304)
_HEAD: Final = 0
_LENGTH: Final = 1
_CHUNKED: Final = 2
_TO_CLOSE: Final = 3
_WRITE_HIGH_BYTES: Final = 256 * 1024


class AnswerReceiver:
    """Receiver of a worker's response. `head_only`: HEAD request, no body follows."""

    __slots__ = ("head_only",)

    def __init__(self) -> None:
        self.head_only = False

    def answer_head(self, head: ResponseHead) -> bool:
        """Take the response head; return False to reject the answer and close the connection."""
        raise NotImplementedError

    def answer_body(self, data: bytes, pieces: list[bytes]) -> None:
        """Take body data: `data` as received, `pieces` the payload without chunk framing."""

    def answer_chunk(self, data: bytes, piece: bytes) -> None:
        """Take body data that is exactly one chunk, `piece` its payload."""

    def answer_done(self) -> None: ...
    def answer_lost(self, code: str, message: str) -> None: ...

    def crashed(self, error: Exception) -> None:
        """Take an exception that one of these methods raised."""
        self.answer_lost("upstream_protocol", f"{type(error).__name__}: {error}")

    def upload_paused(self, paused: bool) -> None: ...


class ConnectionOwner(Protocol):
    def lost(self, connection: WorkerConnection) -> None: ...
    def give(self, connection: WorkerConnection) -> None: ...


def _closed_cleanly(transport: asyncio.Transport) -> bool:
    """Return True if TLS ended with close_notify.

    asyncio does not distinguish a truncated stream; the TLS session does.
    """
    session = transport.get_extra_info("ssl_object")
    if session is None:
        return True
    try:
        return not session.read(1)
    except ssl.SSLZeroReturnError:
        return True
    except ssl.SSLError:
        return False


class WorkerConnection:
    """Acts like an asyncio.Protocol without being a subclass, as ClientConnection does."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_interim",
        "_left",
        "_paused",
        "_pool",
        "_receiver",
        "_reusable",
        "_state",
        "idle_since",
        "tls",
        "transport",
        "uses",
    )

    def __init__(self, pool: ConnectionOwner, tls: ssl.SSLContext | None = None) -> None:
        self._pool = pool
        self.tls = tls  # checked its worker's certificate
        self._receiver: AnswerReceiver | None = None
        self._buffer = b""
        self._state = _HEAD
        self._left = 0
        self._interim = 0
        self._chunks: ChunkedBody | None = None
        self._reusable = True
        self._paused = False
        self.uses = 0
        self.idle_since = 0.0
        self.transport: asyncio.Transport

    # -- asyncio protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass
        self.transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        peer_state.enable_keepalive(transport)

    def eof_received(self) -> None:
        """Let the transport close itself; `connection_lost` follows."""

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upload_paused(True)

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.upload_paused(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.lost(self)
        receiver = self._receiver
        if receiver is None:
            return
        self._receiver = None
        try:
            if self._state == _TO_CLOSE and exc is None and _closed_cleanly(self.transport):
                receiver.answer_done()
            else:
                receiver.answer_lost("upstream_reset", "the worker closed the connection")
        except Exception as error:  # noqa: BLE001 - asyncio would only log it
            receiver.crashed(error)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self.close()  # unsolicited bytes
            return
        try:
            if self._chunks is not None:
                piece = self._chunks.whole(data)
                if piece:
                    receiver.answer_chunk(data, piece)
                    return
            if self._state == _HEAD:
                head = self._read_head(receiver, data)
                if head is None:
                    return
                data = head
            self._read_body(receiver, data)
        except ProtocolError as error:
            self._receiver = None
            self.close()
            receiver.answer_lost("upstream_protocol", str(error))
        except Exception as error:  # noqa: BLE001 - asyncio would only close this connection
            if self._receiver is receiver:
                self.abandon()
            receiver.crashed(error)

    # -- router interface

    def send(self, receiver: AnswerReceiver, head: bytes, body: bytes) -> None:
        """Send a request; a streamed body follows with `send_more`."""
        self._receiver = receiver
        self._state = _HEAD
        self._interim = 0
        self._reusable = True
        self.uses += 1
        if len(body) < 16_384:
            self.transport.write(head + body)
        else:
            self.transport.write(head)
            self.transport.write(body)

    def send_more(self, data: bytes) -> None:
        self.transport.write(data)

    def abandon(self) -> None:
        """Drop the answer; the close makes the worker abort the request."""
        self._receiver = None
        if not self.transport.is_closing():
            self.transport.abort()

    def close(self) -> None:
        self.transport.close()

    def pause(self, paused: bool) -> None:
        """Pause reading while the client is slower than the worker (TCP backpressure)."""
        if paused != self._paused and not self.transport.is_closing():
            self._paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def not_reusable(self) -> None:
        self._reusable = False

    @property
    def between_chunks(self) -> bool:
        return self._chunks is not None and self._chunks.between

    @property
    def body_done(self) -> bool:
        """Return True if the chunked answer is complete."""
        return self._chunks is not None and self._chunks.done

    # -- reading

    def _read_head(self, receiver: AnswerReceiver, data: bytes) -> bytes | None:
        """Return the first body bytes; None if more data is needed or the answer ended."""
        length = len(self._buffer)
        buffer = self._buffer + data if length else data
        start = 0
        while True:
            end = buffer.find(b"\r\n\r\n", max(start, length - 3))
            if end < 0:
                if len(buffer) - start > MAX_HEAD_BYTES:
                    raise ProtocolError("the worker's response head is too large")
                self._buffer = buffer[start:]
                return None
            head = read_response(buffer[start : end + 2])
            start = end + 4
            if head.status >= 200:
                break
            if head.status == 101:
                raise ProtocolError("the worker sent an unsolicited 101 response")
            self._interim += 1
            if self._interim > MAX_INTERIM_RESPONSES:
                raise ProtocolError(
                    f"the worker sent more than {MAX_INTERIM_RESPONSES} 1xx responses"
                )
        buffer = buffer[start:]
        self._buffer = b""
        if not head.keep_alive:
            self._reusable = False
        if receiver.head_only or head.status in _NO_BODY:
            self._state, self._left = _LENGTH, 0
        elif head.chunked:
            self._state, self._chunks = _CHUNKED, ChunkedBody()
        elif head.length >= 0:
            self._state, self._left = _LENGTH, head.length
        else:
            self._state, self._reusable = _TO_CLOSE, False
        if not receiver.answer_head(head):
            self._receiver = None
            self.close()
            return None
        if self._state == _LENGTH and self._left == 0:
            self._finish(receiver, buffer)
            return None
        return buffer or None

    def _read_body(self, receiver: AnswerReceiver, data: bytes) -> None:
        if self._state == _CHUNKED:
            chunks = self._chunks
            assert chunks is not None
            used = chunks.feed(data)
            rest = b""
            if used < len(data):
                data, rest = data[:used], data[used:]
            receiver.answer_body(data, chunks.pieces)
            if chunks.done and self._receiver is receiver:
                self._finish(receiver, rest)
        elif self._state == _LENGTH:
            rest = b""
            if len(data) > self._left:
                data, rest = data[: self._left], data[self._left :]
            self._left -= len(data)
            receiver.answer_body(data, [data])
            if self._left == 0 and self._receiver is receiver:
                self._finish(receiver, rest)
        else:
            receiver.answer_body(data, [data])

    def _finish(self, receiver: AnswerReceiver, rest: bytes) -> None:
        self._receiver = None
        self._chunks = None
        self._state = _HEAD
        if self._reusable and not rest and not self.transport.is_closing():
            if self._paused:
                self.pause(False)
            self._pool.give(self)
        else:
            self.close()
        receiver.answer_done()
