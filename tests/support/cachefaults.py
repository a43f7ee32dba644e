"""A TCP proxy that breaks the wire on purpose: stalls, cuts, corrupts or garbles what comes back.

A fault holds for every connection from the moment it is set; what was open then is broken too.
`down_bytes` counts what came back from behind, so that a test can see the fault bite.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

# Takes bytes on their way to the client; returns what to send instead, None to cut the connection.
Fault = Callable[["Flow", bytes], bytes | None]


@dataclass
class Flow:
    """One connection's way down so far."""

    passed: int = 0


def passing(_flow: Flow, data: bytes) -> bytes | None:
    return data


def silent(_flow: Flow, _data: bytes) -> bytes | None:
    """A black hole: takes everything, answers nothing."""
    return b""


def cut_after(limit: int) -> Fault:
    def fault(flow: Flow, data: bytes) -> bytes | None:
        return data if flow.passed + len(data) <= limit else None

    return fault


def truncate_after(limit: int) -> Fault:
    """The first `limit` bytes come, then nothing more, and the connection stays open."""

    def fault(flow: Flow, data: bytes) -> bytes | None:
        return data[: max(limit - flow.passed, 0)]

    return fault


def garbage(_flow: Flow, data: bytes) -> bytes | None:
    return b"\x00HTTP/1.1 418 teapot\r\n\r\n"[: len(data) or 1]


def slow(seconds: float) -> Fault:
    """Every segment comes, each so much later."""

    def fault(_flow: Flow, data: bytes) -> bytes | None:
        threading.Event().wait(seconds)
        return data

    return fault


def then(limit: int, act: Callable[[], object]) -> Fault:
    """Once somebody was sent `limit` bytes, do something to the server behind; once only."""
    done = threading.Lock()

    def fault(flow: Flow, data: bytes) -> bytes | None:
        if flow.passed + len(data) > limit and done.acquire(blocking=False):
            act()
        return data

    return fault


def flip_after(limit: int) -> Fault:
    """Every byte past the first `limit` is inverted: lengths agree, contents do not."""

    def fault(flow: Flow, data: bytes) -> bytes | None:
        clean = max(limit - flow.passed, 0)
        return data[:clean] + bytes(byte ^ 0xFF for byte in data[clean:])

    return fault


class FaultProxy:
    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.resets = False  # what is cut is cut with RST instead of FIN
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
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Cut every open connection, as a reset would."""
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
                behind = socket.create_connection(self.target, timeout=5)
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
