"""Read values through leases: maps the node's arena as a client on the same machine."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import ConnectionError as GoneError

from cachetier.wire import arena
from tests.soak.node import PASSWORD

TTL_MS = 30_000


@dataclass(slots=True)
class Lease:
    number: int
    values: list[bytes | None] = field(default_factory=list)
    places: list[list[tuple[int, int]]] = field(default_factory=list)


class Reader:
    """Uses its own connection: a lease ends with it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: redis.Connection | None = None
        self._token = b""
        self._map: mmap.mmap | None = None

    def lease(self, keys: Sequence[bytes]) -> Lease:
        number, name, token, answers = self._ask("LEASE", TTL_MS, *keys)
        self._open(name.decode(), token)
        found = Lease(number)
        for answer in answers:
            places = [(int(at), int(size)) for at, size in answer[1:]] if answer else []
            if self._map is not None and any(at + size > len(self._map) for at, size in places):
                self._map = None  # the node has grown
                self._open(name.decode(), token)
            found.places.append(places)
            found.values.append(self._bytes(places) if places else None)
        return found

    def read(self, lease: Lease, place: int) -> bytes:
        return self._bytes(lease.places[place])

    def end(self, lease: Lease) -> None:
        self._ask("UNLEASE", lease.number)

    def _ask(self, *words: object) -> Any:
        if self._connection is None:
            self._connection = redis.Connection(
                port=self._port, password=PASSWORD, socket_timeout=20
            )
            self._connection.connect()
        try:
            self._connection.send_command(*words)
            return self._connection.read_response()
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            self._connection.disconnect()
            self._connection = None
            raise

    def _open(self, name: str, token: bytes) -> None:
        if self._map is not None and self._token == token:
            return
        fd = os.open(Path(arena.FOLDER) / name, os.O_RDONLY)
        try:
            self._map = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        header = arena.unpack(self._map[: arena.HEADER_BYTES])
        if header is None or header.token != token:
            self._map = None  # the node was restarted
            raise GoneError("not the arena which was leased from")
        self._token = token

    def _bytes(self, places: list[tuple[int, int]]) -> bytes:
        assert self._map is not None
        return b"".join(self._map[at : at + size] for at, size in places)
