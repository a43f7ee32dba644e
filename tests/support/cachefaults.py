"""TCP proxy with faults in the server's replies: stall, cut, corrupt, garble.

A fault applies to all connections, open ones included, from the time it is set. `down_bytes` counts
bytes received from the server, to verify that the fault took effect.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

# Takes bytes to the client; returns what to send instead, None to cut the connection.
Fault = Callable[["Flow", bytes], bytes | None]


@dataclass
class Flow:
    """State of one connection's downstream."""

    passed: int = 0


def passing(_flow: Flow, data: bytes) -> bytes | None:
    return data


def silent(_flow: Flow, _data: bytes) -> bytes | None:
    """Drop everything."""
    return b""


def cut_after(limit: int) -> Fault:
    def fault(flow: Flow, data: bytes) -> bytes | None:
        return data if flow.passed + len(data) <= limit else None

    return fault


def truncate_after(limit: int) -> Fault:
    """Pass the first `limit` bytes, then nothing, with the connection open."""

    def fault(flow: Flow, data: bytes) -> bytes | None:
        return data[: max(limit - flow.passed, 0)]

    return fault


def garbage(_flow: Flow, data: bytes) -> bytes | None:
    return b"\x00HTTP/1.1 418 teapot\r\n\r\n"[: len(data) or 1]


def slow(seconds: float) -> Fault:
    """Delay every segment."""

    def fault(_flow: Flow, data: bytes) -> bytes | None:
        threading.Event().wait(seconds)
        return data

    return fault


def then(limit: int, act: Callable[[], object]) -> Fault:
    """Call `act` once `limit` bytes have been sent to all clients; hold back everything after them.

    What the server had already written before `act` therefore never arrives.
    """
    lock = threading.Lock()
    left = [limit]

    def fault(_flow: Flow, data: bytes) -> bytes | None:
        with lock:
            held_back = left[0] < 0
            left[0] -= len(data)
            acts = left[0] < 0 and not held_back
        if acts:
            act()
        return None if left[0] < 0 else data

    return fault


def flip_after(limit: int) -> Fault:
    """Invert every byte after the first `limit`: lengths match, contents do not."""

    def fault(flow: Flow, data: bytes) -> bytes | None:
        clean = max(limit - flow.passed, 0)
        return data[:clean] + bytes(byte ^ 0xFF for byte in data[clean:])

    return fault


class FaultProxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.resets = False  # cut with RST instead of FIN
        self.fault: Fault = passing
        self.down_bytes = 0
        self.accepted = 0
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread in accept()
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Reset every open connection."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        self._close(sockets)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                behind = socket.create_connection(self.target, timeout=60)
            except OSError:
                client.close()
                continue
            behind.settimeout(None)
            with self._lock:
                self._sockets |= {client, behind}
            threading.Thread(target=self._up, args=(client, behind), daemon=True).start()
            threading.Thread(target=self._down, args=(behind, client), daemon=True).start()

    def _up(self, client: socket.socket, behind: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                behind.sendall(data)
        self._end(client, behind)

    def _down(self, behind: socket.socket, client: socket.socket) -> None:
        flow = Flow()
        with contextlib.suppress(OSError):
            while data := behind.recv(65536):
                self.down_bytes += len(data)
                changed = self.fault(flow, data)
                flow.passed += len(data)
                if changed is None:
                    break
                client.sendall(changed)
        self._end(client, behind)

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._sockets -= set(sockets)
        self._close(set(sockets))

    def _close(self, sockets: set[socket.socket]) -> None:
        for sock in sockets:
            with contextlib.suppress(OSError):
                if self.resets:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.shutdown(socket.SHUT_RD if self.resets else socket.SHUT_RDWR)
            sock.close()
