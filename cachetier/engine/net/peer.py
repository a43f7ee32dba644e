"""RESP client connection to another node, for handover.

Every wait has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from cachetier.engine.config import Config, ListenAddress
from cachetier.wire import replies

_CONNECT_S = 5.0
_ANSWER_S = 30.0
_MAX_LINE = 64 * 1024

Piece = bytes | memoryview


class PeerError(Exception):
    """Peer unusable; the message names peer and reason and contains no secret."""


@dataclass(frozen=True, slots=True)
class PeerFacts:
    used_bytes: int
    capacity_bytes: int


def make_peer_tls(config: Config) -> ssl.SSLContext | None:
    """Return a context with this node's CA and certificate, as its own clients use."""
    files = config.guards.tls
    if files is None:
        return None
    context = ssl.create_default_context(cafile=files.client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key, password="")
    return context


class Peer:
    def __init__(self, place: ListenAddress) -> None:
        self.place = place
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, config: Config, password: str, tls: ssl.SSLContext | None) -> PeerFacts:
        """Connect and log in as this node's clients do."""
        try:
            async with asyncio.timeout(_CONNECT_S):
                self._reader, self._writer = await asyncio.open_connection(
                    self.place.host, self.place.port, ssl=tls, limit=_MAX_LINE
                )
        except (OSError, TimeoutError) as exc:
            raise PeerError(f"{self.place} cannot be reached: {exc or 'no reply'}") from None
        if password:
            user = config.guards.users[0].encode()
            await self._ask([command(b"AUTH", user, password.encode())])
        await self._ask([command(b"CLIENT", b"SETNAME", b"handover")])
        text = (await self._ask([command(b"INFO")]))[0]
        facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return PeerFacts(_parse_number(facts, "used_memory"), _parse_number(facts, "maxmemory"))

    async def _ask(self, commands: Sequence[Piece]) -> list[str]:
        found = await self.ask(commands, len(commands))
        for reply in found:
            if reply.startswith("-"):
                raise PeerError(f"{self.place} rejected the request: {reply[1:200]}")
        return found

    async def ask(self, pieces: Sequence[Piece], count: int) -> list[str]:
        """Send the pieces and return `count` replies; errors start with "-"."""
        assert self._reader is not None
        assert self._writer is not None
        try:
            async with asyncio.timeout(_ANSWER_S):
                for piece in pieces:
                    self._writer.write(piece)
                await self._writer.drain()
                return [await self._reply(self._reader) for _ in range(count)]
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as exc:
            raise PeerError(f"{self.place} is gone: {exc or 'no reply'}") from None

    async def _reply(self, reader: asyncio.StreamReader) -> str:
        line = (await reader.readuntil(b"\r\n"))[:-2].decode(errors="replace")
        kind, rest = line[:1], line[1:]
        if kind == "-":
            return line
        if kind == "$" and int(rest) >= 0:
            data = await reader.readexactly(int(rest) + 2)
            return data[:-2].decode(errors="replace")
        if kind in "+:$":
            return rest
        raise PeerError(f"{self.place} does not respond like a cache node")

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._writer.wait_closed()


def command(*words: bytes) -> bytes:
    return replies.array([replies.bulk(word) for word in words])


def _parse_number(facts: dict[str, str], name: str) -> int:
    text = facts.get(name, "0")
    return int(text) if text.isdigit() else 0
