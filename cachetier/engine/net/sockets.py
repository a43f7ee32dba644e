"""Plain client socket without asyncio transports.

The kernel receives values directly into the store's reservation and sends them from there; a
transport would copy both and buffer unsent data. Nothing blocks. The send queue holds references to
pinned values; a client that does not read is not served further, so what it pins is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from cachetier.engine.net.session import ClientSession, Handler
from cachetier.engine.net.transfer_threads import MAX_PIECES, MIN_BYTES, WAKEUP_BYTES, Copy
from cachetier.engine.node import Node
from cachetier.engine.store import DiskValue, Hold

# Unsent bytes at which serving pauses, and at which it resumes.
HIGH_WATER: Final = 1024 * 1024
LOW_WATER: Final = 256 * 1024
# Reads per client and event loop turn.
_READS_PER_TURN: Final = 8


class ClientSocket(Protocol):
    """Connection of one client, plain or TLS."""

    def leave_if_idle(self) -> None:
        """Close between two requests; replies in progress are still sent."""
        ...

    def leave_if_broken(self) -> None:
        """Close a connection with an undetected error."""
        ...


class ClientEntry:
    """Entry of one client in its node's sessions and in `clients` while it is open."""

    def __init__(self, node: Node, clients: set[ClientSocket], client: ClientSocket) -> None:
        self._node = node
        self._clients = clients
        self._client = client
        self._waiting_op = ""

    def register(
        self, session: ClientSession, peer: object, local: object, hang_up: Callable[[], None]
    ) -> None:
        session.peer = _format_address(peer)
        session.local = _format_address(local)
        session.host = session.peer.rpartition(":")[0].strip("[]")
        session.hang_up = hang_up
        self._node.sessions[session.id] = session
        self._clients.add(self._client)

    def unregister(self, session: ClientSession) -> None:
        self.count_waiting("")
        self._clients.discard(self._client)
        self._node.sessions.pop(session.id, None)
        session.close()

    def count_waiting(self, op: str) -> None:
        if op == self._waiting_op:
            return
        in_flight = self._node.counters.in_flight
        if self._waiting_op:
            in_flight[self._waiting_op] -= 1
        if op:
            in_flight[op] += 1
        self._waiting_op = op


class _File:
    __slots__ = ("left", "place", "value")

    def __init__(self, value: DiskValue) -> None:
        self.value = value
        self.place = value.offset
        self.left = value.length

    def release(self) -> None:
        self.value.release()


# Bytes to send; a hold follows its bytes and is released after them.
_Piece = bytes | memoryview | Hold | _File


class SocketClient:
    def __init__(
        self,
        sock: socket.socket,
        node: Node,
        clients: set[ClientSocket],
        handlers: dict[str, Handler],
    ) -> None:
        self._node = node
        self._entry = ClientEntry(node, clients, self)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._pieces: deque[_Piece] = deque()
        self._queued = 0
        self._is_reading = self._is_writing = False
        self._is_closed = False
        self._is_resting = False  # a reply waits for the disk or a timer
        self._is_away = False  # a transfer thread uses the socket
        self._is_full = False  # it could not send everything: wait for the socket
        self._low_water = 1  # current SO_RCVLOWAT
        self._session = ClientSession(node, self, handlers)
        self._entry.register(self._session, sock.getpeername(), sock.getsockname(), self.abort)
        self._settle()

    def write(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._pieces.append(data)
        self._queued += len(data)

    def send(self, value: Hold | DiskValue) -> None:
        if self._is_closed:
            value.release()
            return
        if isinstance(value, Hold):
            self._pieces.extend(value.views)
            self._pieces.append(value)
        else:
            self._pieces.append(_File(value))
        self._queued += value.length
        self.write(b"\r\n")

    def pending(self) -> int:
        return self._queued

    def is_behind(self) -> bool:
        if self._queued >= HIGH_WATER:
            self._flush()
        return self._queued >= HIGH_WATER or self._is_resting or self._is_away

    def pause(self) -> None:
        self._is_resting = True

    def resume(self) -> None:
        self._run(self._resume)

    def _run(self, step: Callable[[], None]) -> None:
        try:
            step()
        except MemoryError:
            self._node.shortage.failed()
            self.abort()

    def _resume(self) -> None:
        self._is_resting = False
        if not self._is_closed:
            self._session.feed()
            self._settle()

    def _readable(self) -> None:
        session = self._session
        parser = session.parser
        for _ in range(_READS_PER_TURN):
            missing = parser.missing
            if missing >= MIN_BYTES and self._suits_thread(missing, is_receiving=True):
                buffers = parser.get_buffers()
                length = min(missing, sum(map(len, buffers)))
                self._leave(buffers, length, is_receiving=True)
                return
            buffers = parser.get_buffers() if missing else [parser.get_buffer()]
            length = len(buffers[0])
            try:
                if len(buffers) == 1:
                    count = self._sock.recv_into(buffers[0])
                else:
                    length = sum(map(len, buffers))
                    count = self._sock.recvmsg_into(buffers)[0]
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                self.abort()
                return
            if not count:
                session.closing = True
                break
            parser.received(count)
            if not parser.missing:
                session.feed()
            if count < length or session.closing or self.is_behind():
                break
        self._settle()

    def _suits_thread(self, length: int, *, is_receiving: bool) -> bool:
        threads = self._node.transfers
        return threads.suits(self._session.id, length, is_receiving=is_receiving)

    def _leave(self, buffers: list[memoryview], length: int, *, is_receiving: bool) -> None:
        """Let a transfer thread copy; until it is done, nothing here touches the socket."""
        self._is_away = True
        self._listen_no_more()
        self._low_water = 0  # set by the thread
        self._node.transfers.start(Copy(self._sock, buffers, length, is_receiving, self._returned))

    def _returned(self, copy: Copy) -> None:
        try:
            self._return(copy)
        except MemoryError:
            self._node.shortage.failed()
            self.abort()

    def _return(self, copy: Copy) -> None:
        self._is_away = False
        if self._is_closed:
            self._close()
            return
        if copy.failed:
            self.abort()
            return
        if copy.is_receiving:
            if copy.moved:
                self._session.parser.received(copy.moved)
            self._session.closing |= copy.has_ended
        else:
            self._drop_sent(copy.moved)
            self._is_full = copy.moved < copy.length
        self._session.feed()
        self._settle()

    def _writable(self) -> None:
        self._is_full = False
        self._flush()
        if self._queued <= LOW_WATER and not self._is_resting:
            self._session.feed()
        self._settle()

    def _settle(self) -> None:
        """Send pending data and update the awaited events after any change."""
        self._flush()
        if self._is_closed or self._is_away:
            return
        closing = self._session.closing
        if closing and not self._pieces:
            self.abort()
            return
        behind = self._queued >= HIGH_WATER
        self._entry.count_waiting(self._session.last_op if behind else "")
        self._listen(reading=not (behind or closing or self._is_resting))
        missing = self._session.parser.missing
        self._expect(min(missing, WAKEUP_BYTES) if missing >= WAKEUP_BYTES // 4 else 1)

    def _listen(self, *, reading: bool) -> None:
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                self._loop.add_reader(self._fd, self._run, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        writing = bool(self._pieces)
        if writing != self._is_writing:
            self._is_writing = writing
            if writing:
                self._loop.add_writer(self._fd, self._run, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _expect(self, count: int) -> None:
        """Set SO_RCVLOWAT, to be woken for at least `count` bytes."""
        if count != self._low_water:
            self._low_water = count
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            except OSError:  # only costs more wakeups
                return

    def _flush(self) -> None:
        pieces = self._pieces
        try:
            while pieces and not (self._is_away or self._is_full):
                front = pieces[0]
                if isinstance(front, Hold):
                    front.release()
                    pieces.popleft()
                elif isinstance(front, _File):
                    self._send_file(front)
                elif not self._send_pieces():
                    return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()

    def _send_pieces(self) -> bool:
        """Return whether the kernel accepted all bytes."""
        offered = self._next_pieces()
        length = sum(map(len, offered))
        if length >= MIN_BYTES and self._suits_thread(length, is_receiving=False):
            self._leave([memoryview(piece) for piece in offered], length, is_receiving=False)
            return False
        sent = self._sock.send(offered[0]) if len(offered) == 1 else self._sock.sendmsg(offered)
        self._drop_sent(sent)
        return sent == length

    def _next_pieces(self) -> list[bytes | memoryview]:
        """Return bytes for one system call, up to the next file."""
        offered: list[bytes | memoryview] = []
        for piece in self._pieces:
            if isinstance(piece, _File):
                break
            if not isinstance(piece, Hold):
                offered.append(piece)
                if len(offered) == MAX_PIECES:
                    break
        return offered

    def _drop_sent(self, count: int) -> None:
        """Remove sent bytes and release the holds behind them."""
        pieces = self._pieces
        self._queued -= count
        while pieces:
            first = pieces[0]
            if isinstance(first, Hold):
                first.release()
            elif isinstance(first, _File):
                return
            elif count < len(first):
                if count:
                    pieces[0] = memoryview(first)[count:]
                return
            else:
                count -= len(first)
            pieces.popleft()

    def _send_file(self, file: _File) -> None:
        sent = os.sendfile(self._fd, file.value.fd, file.place, file.left)
        if not sent:
            raise OSError("the file is shorter than its value")
        file.place += sent
        file.left -= sent
        self._queued -= sent
        if not file.left:
            file.release()
            self._pieces.popleft()

    def leave_if_idle(self) -> None:
        if self._session.is_between_requests():
            self.abort()

    def leave_if_broken(self) -> None:
        """Close a socket with a pending error.

        uvloop silently stops watching such a socket (a client that closes with unread replies
        resets it), so its pinned values would never be freed.
        """
        if not self._is_closed and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort()

    def abort(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._session.closing = True
        self._listen_no_more()
        if self._is_away:  # the thread still uses the socket and the value's memory
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            return
        self._close()

    def _close(self) -> None:
        while self._pieces:
            piece = self._pieces.popleft()
            if isinstance(piece, Hold | _File):
                piece.release()
        self._queued = 0
        self._entry.unregister(self._session)
        self._sock.close()

    def _listen_no_more(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_reading = self._is_writing = False


def _format_address(place: object) -> str:
    """Format host:port like Redis, IPv6 hosts in brackets."""
    if not isinstance(place, tuple):
        return ""
    host, port = place[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
