"""Probe many addresses concurrently for HTTP 200.

All results arrive within the longest single deadline, even if a server drips, and no thread or
connection is kept.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

OK = "ok"
LATE = "no response within"
_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    host: str
    port: int
    path: str
    timeout_s: float


class _ProbeRequest:
    def __init__(self, target: ProbeTarget) -> None:
        self.target = target
        self.deadline = time.monotonic() + target.timeout_s
        self.answer = ""  # set on completion
        self._received = b""
        host = f"{target.host}:{target.port}"
        self._unsent = (
            f"GET {target.path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.connect_ex((target.host, target.port))

    @property
    def wants(self) -> int:
        return selectors.EVENT_WRITE if self._unsent else selectors.EVENT_READ

    def advance(self) -> None:
        """Process a ready socket; set `answer` when the exchange is complete."""
        try:
            if self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
                return
            chunk = self.socket.recv(_HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.answer = (error.strerror or "connection failed").lower()
            return
        self._received += chunk
        line, newline, _ = self._received.partition(b"\r\n")
        if newline:
            self.answer = _judge(line)
        elif not chunk:
            self.answer = "closed without a response"
        elif len(self._received) > _HEAD_BYTES:
            self.answer = "no HTTP response"


def probe_targets(targets: Sequence[ProbeTarget]) -> list[str]:
    """Return OK or a short reason for each target (starting with LATE after its deadline)."""
    asking = [_ProbeRequest(target) for target in targets]
    with selectors.DefaultSelector() as selector:
        for target in asking:
            selector.register(target.socket, target.wants, target)
        while open_ones := [target for target in asking if not target.answer]:
            wait_s = max(0.0, min(target.deadline for target in open_ones) - time.monotonic())
            for key, _ in selector.select(wait_s):
                key.data.advance()
                if key.data.answer:
                    selector.unregister(key.data.socket)
                else:
                    selector.modify(key.data.socket, key.data.wants, key.data)
            _expire(open_ones, selector)
    for target in asking:
        target.socket.close()
    return [target.answer for target in asking]


def _expire(asking: Sequence[_ProbeRequest], selector: selectors.BaseSelector) -> None:
    now = time.monotonic()
    for request in asking:
        if not request.answer and now >= request.deadline:
            request.answer = f"{LATE} {request.target.timeout_s:g} s"
            selector.unregister(request.socket)


def _judge(line: bytes) -> str:
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
        return "no HTTP response"
    return OK if parts[1] == b"200" else f"answers {parts[1].decode()}"
