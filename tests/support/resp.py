"""RESP replies with their types from a plain socket, which client libraries hide."""

from __future__ import annotations

import socket
from typing import Any, Self

# A reply: type byte and value (bytes, int, or list of replies).
Reply = tuple[str, Any]
_LISTS = {"*": 1, "~": 1, ">": 1, "%": 2, "|": 2}


class RawClient:
    """Sends words as an array of bulk strings and returns one reply."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def ask(self, *words: bytes | str) -> Reply:
        self.send(*words)
        return self.read()

    def call(self, line: str) -> Reply:
        """Send space-separated words."""
        return self.ask(*line.split())

    def send(self, *words: bytes | str) -> None:
        self.socket.sendall(encode(*words))

    def read(self) -> Reply:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"closed after {line!r}")
        kind, rest = chr(line[0]), line[1:-2]
        if kind in "+-_#,(":
            return kind, rest
        number = int(rest)
        if kind == ":" or number < 0:
            return kind, number
        if kind in "$=":
            data = self._file.read(number + 2)
            assert data[-2:] == b"\r\n", data[-20:]
            return kind, data[:-2]
        return kind, [self.read() for _ in range(number * _LISTS[kind])]

    def is_closed(self) -> bool:
        """Return whether the peer has closed; blocks until it does or data arrives.

        TCP says it by a reset if the peer had not read all that was sent (RFC 1122, 4.2.2.13).
        """
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True


def encode(*words: bytes | str) -> bytes:
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in raw)
