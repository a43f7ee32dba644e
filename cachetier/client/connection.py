"""Blocking connection to a cache node; every wait is bounded by a monotonic deadline.

Bodies are received directly into the caller's memory and sent from it, with the GIL released. A
long body is received in parts while it arrives (SO_RCVLOWAT and poll): a wakeup per segment would
cost both sides, waiting for all of it would leave the receiver idle. Not thread-safe. Raises
CacheError only; afterwards the stream is out of sync and the connection must be closed.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Any

from cachetier.client.address import Address


class CacheError(Exception):
    """Connection failure; `reason` is a stable counter label."""

    reason = "error"


class TimedOutError(CacheError):
    reason = "timeout"


class UnreachableError(CacheError):
    reason = "unreachable"


class BrokenError(CacheError):
    """Invalid or unexpected reply; the stream is out of sync."""

    reason = "protocol"


class DeniedError(CacheError):
    """Wrong or missing password; a retry does not help."""

    reason = "denied"


_TIMEVAL = struct.Struct("@ll")
_CHUNK = 4096
_MAX_LINE = 8192
_DISCARD_BYTES = 65536
# Minimum rest of a body received in parts, and bytes per wakeup.
_LONG_BYTES = 512 * 1024
_WAKEUP_BYTES = 256 * 1024
# sendmsg takes at most IOV_MAX (1024) buffers.
_MAX_PIECES = 512
# Limits of metadata replies (slots, leases): array items, string bytes, nesting depth.
_MAX_METADATA_BYTES = 65536
_MAX_DEPTH = 8

Piece = bytes | memoryview


class ReplyError(Exception):
    """Error reply; the connection stays in sync."""


class Connection:
    """Connection, established and logged in on construction."""

    def __init__(self, address: Address, password: str, deadline: float) -> None:
        self._buffer = bytearray(_CHUNK)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._tls = address.tls
        self._socket = _connect(address, deadline)
        self._low_water = 1  # current SO_RCVLOWAT
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        try:
            self._log_in(address, password, deadline)
        except ReplyError as exc:
            self.close()
            raise DeniedError(str(exc)) from None
        except CacheError:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """Unblock the thread that waits on this connection. Callable from any thread."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _log_in(self, address: Address, password: str, deadline: float) -> None:
        if password:
            names = [address.user.encode()] if address.user else []
            self.send([command(b"AUTH", *names, password.encode())], deadline)
            self.read_ok(deadline)
        if address.database:
            self.send([command(b"SELECT", b"%d" % address.database)], deadline)
            self.read_ok(deadline)

    def send(self, pieces: Sequence[Piece], deadline: float) -> None:
        """Send all `pieces` in order without joining them."""
        waiting = [memoryview(piece) for piece in pieces if len(piece)]
        while waiting:
            sent = self._send_some(waiting[:_MAX_PIECES], deadline)
            drop_prefix(waiting, sent)

    def _send_some(self, pieces: list[memoryview], deadline: float) -> int:
        left = _seconds_left(deadline)
        try:
            if self._tls:
                self._socket.settimeout(left)
                return self._socket.send(pieces[0])
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _pack_timeval(left))
            return self._socket.sendmsg(pieces)
        except (BlockingIOError, TimeoutError):
            raise TimedOutError("send timed out") from None
        except OSError as exc:
            raise UnreachableError(f"connection lost while sending: {exc}") from None

    def _receive(self, view: memoryview, deadline: float, *, whole: bool) -> int:
        left = _seconds_left(deadline)
        try:
            if self._tls:
                self._socket.settimeout(left)
                count = self._socket.recv_into(view)
            else:
                self._expect(1)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _pack_timeval(left))
                flags = socket.MSG_WAITALL if whole else 0
                count = self._socket.recv_into(view, view.nbytes, flags)
        except (BlockingIOError, TimeoutError):
            raise TimedOutError("no reply before the deadline") from None
        except OSError as exc:
            raise UnreachableError(f"connection lost while waiting: {exc}") from None
        if count == 0:
            raise UnreachableError("the cache closed the connection")
        return count

    def read_into(self, target: memoryview, deadline: float) -> None:
        """Read exactly `target.nbytes` bytes."""
        done = min(self._end - self._start, target.nbytes)
        target[:done] = self._view[self._start : self._start + done]
        self._start += done
        while done < target.nbytes:
            rest = target[done:]
            if self._tls or rest.nbytes < _LONG_BYTES:
                done += self._receive(rest, deadline, whole=True)
            else:
                self._receive_in_parts(rest, deadline)
                return

    def _receive_in_parts(self, target: memoryview, deadline: float) -> None:
        """Fill `target`; bytes that follow it are buffered."""
        done, length = 0, target.nbytes
        while done < length:
            self._expect(min(length - done, _WAKEUP_BYTES))
            if not self._readable.poll(math.ceil(_seconds_left(deadline) * 1000)):
                raise TimedOutError("no reply before the deadline")
            try:
                count = self._socket.recvmsg_into(
                    [target[done:], self._view], 0, socket.MSG_DONTWAIT
                )[0]
            except BlockingIOError:
                continue
            except OSError as exc:
                raise UnreachableError(f"connection lost while waiting: {exc}") from None
            if count == 0:
                raise UnreachableError("the cache closed the connection")
            done += count
        self._start, self._end = 0, done - length

    def _expect(self, count: int) -> None:
        """Set SO_RCVLOWAT, to be woken for at least `count` bytes."""
        if count != self._low_water:
            self._low_water = count
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def skip(self, count: int, deadline: float) -> None:
        """Discard `count` bytes to stay in sync."""
        scrap = memoryview(bytearray(min(count, _DISCARD_BYTES)))
        while count:
            part = scrap[: min(count, _DISCARD_BYTES)]
            self.read_into(part, deadline)
            count -= part.nbytes

    def read_line(self, deadline: float) -> bytes:
        line = bytearray()
        while True:
            line_end = self._buffer.find(b"\n", self._start, self._end)
            stop = self._end if line_end < 0 else line_end + 1
            line += self._view[self._start : stop]
            self._start = stop
            if line_end >= 0:
                break
            if len(line) > _MAX_LINE:
                raise BrokenError("reply line too long")
            self._start = 0
            self._end = self._receive(self._view, deadline, whole=False)
        if len(line) < 3 or not line.endswith(b"\r\n"):
            raise BrokenError("reply line without CR LF")
        return bytes(line[:-2])

    def read_integer(self, deadline: float) -> int:
        line = self.read_line(deadline)
        return _parse_number(line, b":")

    def read_ok(self, deadline: float) -> bool:
        """Return True for +OK, False for null (condition not met)."""
        line = self.read_line(deadline)
        if line == b"+OK":
            return True
        if line in (b"$-1", b"_"):
            return False
        _raise_reply(line)
        raise BrokenError("expected OK or null")

    def read_bulk_length(self, deadline: float) -> int:
        """Return the length of the following bulk string, -1 for null."""
        line = self.read_line(deadline)
        return -1 if line == b"_" else _parse_number(line, b"$")

    def read_value(self, deadline: float, depth: int = 0) -> Any:
        """Read a short metadata reply: integers, bytes, None and lists of them."""
        line = self.read_line(deadline)
        kind, rest = line[:1], line[1:]
        if kind in (b"$", b"*"):
            count = _parse_number(line, kind)
            if count > _MAX_METADATA_BYTES or depth > _MAX_DEPTH:
                raise BrokenError("reply longer than expected")
            if count < 0:
                return None
            if kind == b"*":
                return [self.read_value(deadline, depth + 1) for _ in range(count)]
            body = bytearray(count)
            self.read_into(memoryview(body), deadline)
            self.end_bulk(deadline)
            return bytes(body)
        if kind == b":":
            return _parse_number(line, b":")
        if kind == b"+":
            return rest
        if kind == b"_":
            return None
        _raise_reply(line)
        raise BrokenError(f"unknown reply type: {line[:20]!r}")

    def end_bulk(self, deadline: float) -> None:
        two = bytearray(2)
        if self._start == self._end:  # the next reply may have arrived with them
            self._start, self._end = 0, self._receive(self._view, deadline, whole=False)
        self.read_into(memoryview(two), deadline)
        if two != b"\r\n":
            raise BrokenError("bulk string not terminated at its length")


def drop_prefix(views: list[memoryview], count: int) -> None:
    """Remove the first `count` bytes from `views`, in place."""
    while views and count >= views[0].nbytes:
        count -= views[0].nbytes
        del views[0]
    if count:
        views[0] = views[0][count:]


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


def _parse_number(line: bytes, kind: bytes) -> int:
    if line[:1] != kind:
        _raise_reply(line)
        raise BrokenError(f"expected {kind.decode()!r}, got {line[:20]!r}")
    try:
        return int(line[1:])
    except ValueError:
        raise BrokenError(f"not a number: {line[:20]!r}") from None


def _raise_reply(line: bytes) -> None:
    if line[:1] == b"-":
        raise ReplyError(line[1:200].decode(errors="replace"))


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOutError("the deadline passed")
    return left


def _pack_timeval(seconds: float) -> bytes:
    # Zero would disable the timeout.
    micros = max(int(seconds * 1e6), 1000)
    return _TIMEVAL.pack(micros // 1_000_000, micros % 1_000_000)


def _connect(address: Address, deadline: float) -> socket.socket:
    try:
        plain = socket.create_connection(
            (address.host, address.port), timeout=_seconds_left(deadline)
        )
    except TimeoutError:
        raise TimedOutError(f"connection to {address} timed out") from None
    except OSError as exc:
        raise UnreachableError(f"{address}: {exc}") from None
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.tls:
        plain.settimeout(None)  # blocking: the kernel enforces timeouts (SO_RCVTIMEO, SO_SNDTIMEO)
        return plain
    try:
        plain.settimeout(_seconds_left(deadline))
        # Loaded per connection: certificates are rotated while workers run.
        context = ssl.create_default_context(cafile=address.ca_file or None)
        if address.cert_file:
            context.load_cert_chain(address.cert_file, address.key_file)
        return context.wrap_socket(plain, server_hostname=address.server_name or address.host)
    except TimeoutError:
        plain.close()
        raise TimedOutError(f"TLS handshake with {address} timed out") from None
    except OSError as exc:  # includes ssl.SSLError
        plain.close()
        raise UnreachableError(f"TLS with {address} failed: {exc}") from None
    except CacheError:
        plain.close()
        raise
