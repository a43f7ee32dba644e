"""Client connection: asyncio callbacks and deadlines.

A client that hangs up cancels its request; a half-closed one still gets its answer. They are
distinguished by writing: a closed socket replies with a reset.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import cast

from routing.engine.errors import Refusal
from routing.engine.http import peer_state
from routing.engine.request_reader import BODY, BUSY, HEAD, LINGER, UPLOAD, RequestReader

_WRITE_HIGH_BYTES = 64 * 1024
_PIPELINED_BYTES = 64 * 1024
# First check interval of a half-closed client; it doubles until the common clock takes over.
_FIRST_CHECK_S, _LAST_CHECK_S = 0.005, 0.5


class ClientConnection(RequestReader):
    __slots__ = ()

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
