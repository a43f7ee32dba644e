"""Node that leases values in shared memory, incorrectly on demand.

Supports the commands a client needs; the test puts values into its arena.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from pathlib import Path

from cachetier.wire import arena, envelope

PAGE = 16 * 1024


class LeasingNode:
    """`lease_reply`, if set, is the raw reply to LEASE."""

    def __init__(self, folder: Path, name: str = "arena") -> None:
        self.folder, self.name = folder, name
        self.token = os.urandom(16)
        self.lease_reply: bytes | None = None
        self.values: dict[bytes, list[tuple[int, int]]] = {}
        self.unleased: list[bytes] = []
        self.commands: list[bytes] = []
        self._end = PAGE
        self._next_lease = 0
        self.path = folder / name
        self.path.write_bytes(bytes(PAGE))
        self.write_header(self.token)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def write_header(self, token: bytes) -> None:
        with self.path.open("r+b") as file:
            file.write(arena.pack(arena.Header(PAGE, os.getpid(), token, 1 << 30)))

    def put(self, key: bytes, body: bytes, *cuts: int) -> None:
        """Store the value in `len(cuts) + 1` runs with a gap between each."""
        value = envelope.pack_header(key, body) + body
        bounds = [0, *cuts, len(value)]
        runs = []
        with self.path.open("r+b") as file:
            for start, stop in itertools.pairwise(bounds):
                file.seek(self._end)
                file.write(value[start:stop])
                runs.append((self._end, stop - start))
                self._end += stop - start + PAGE
        self.values[key] = runs

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        pending = b""
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                pending += data
                words, pending = _requests(pending)
                for request in words:
                    self.commands.append(request[0])
                    client.sendall(self._answer(request))

    def _answer(self, request: list[bytes]) -> bytes:
        match request:
            case [b"LEASE", _, *keys]:
                return self.lease_reply or self._lease(keys)
            case [b"UNLEASE", number]:
                self.unleased.append(number)
                return b":1\r\n"
            case [b"GET", key] if key in self.values:
                with self.path.open("rb") as file:
                    value = b"".join(
                        os.pread(file.fileno(), length, offset)
                        for offset, length in self.values[key]
                    )
                return b"$%d\r\n%b\r\n" % (len(value), value)
        return b"$-1\r\n"

    def _lease(self, keys: list[bytes]) -> bytes:
        self._next_lease += 1
        name = self.name.encode()
        parts = [b"*4\r\n:%d\r\n$%d\r\n%b\r\n" % (self._next_lease, len(name), name)]
        parts.append(b"$16\r\n%b\r\n*%d\r\n" % (self.token, len(keys)))
        for key in keys:
            runs = self.values.get(key)
            if runs is None:
                parts.append(b"*-1\r\n")
                continue
            parts.append(b"*%d\r\n:%d\r\n" % (1 + len(runs), sum(size for _, size in runs)))
            parts += [b"*2\r\n:%d\r\n:%d\r\n" % run for run in runs]
        return b"".join(parts)


def _requests(data: bytes) -> tuple[list[list[bytes]], bytes]:
    """Return complete requests and the remaining bytes."""
    found = []
    while data.startswith(b"*"):
        rest = data
        line, _, rest = rest.partition(b"\r\n")
        words = []
        for _ in range(int(line[1:])):
            line, mark, rest = rest.partition(b"\r\n")
            length = int(line[1:] or b"0") if mark else 0
            if not mark or len(rest) < length + 2:
                return found, data
            words.append(rest[:length])
            rest = rest[length + 2 :]
        found.append(words)
        data = rest
    return found, data
