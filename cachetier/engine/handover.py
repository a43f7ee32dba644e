"""Handover of the most valuable values to other nodes before this one stops.

Keys are placed on the remaining nodes as clients place them. Expiry is kept, existing values are
not overwritten, a peer evicts at most a quarter of its capacity for them, and the send rate is
limited. All results are counted by reason. Clients are served meanwhile; any failure costs only
misses. Every wait for a peer has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cachetier.client.rendezvous import Rendezvous
from cachetier.engine.config import Config, ListenAddress, PeerConfig
from cachetier.engine.net.access import PasswordFile
from cachetier.engine.policies.base import EvictionPolicy
from cachetier.engine.store import Hold, Store
from cachetier.wire import replies

log = logging.getLogger(__name__)

DEFAULT_RATE: Final = 200 * 1024 * 1024  # bytes/s
# Maximum bytes pinned and in flight per peer.
_BATCH_BYTES: Final = 8 * 1024 * 1024
_BATCH_KEYS: Final = 64
# Share of a peer's capacity that may be filled even if it must evict.
_PEER_SHARE: Final = 4
_TOO_MANY_REFUSALS: Final = 64
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
            raise PeerError(f"{self.place} is unreachable: {exc or 'no reply'}") from None
        if password:
            user = config.guards.users[0].encode()
            await self._ask([command(b"AUTH", user, password.encode())])
        await self._ask([command(b"CLIENT", b"SETNAME", b"handover")])
        text = (await self._ask([command(b"INFO")]))[0]
        fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return PeerFacts(_parse_number(fields, "used_memory"), _parse_number(fields, "maxmemory"))

    async def _ask(self, commands: Sequence[Piece]) -> list[str]:
        replies = await self.ask(commands, len(commands))
        for reply in replies:
            if reply.startswith("-"):
                raise PeerError(f"{self.place} rejected the request: {reply[1:200]}")
        return replies

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


class HandoverRunningError(Exception): ...


class HandoverOutcome(StrEnum):
    HANDED = "handed"
    THERE = "there"  # present on the peer
    GONE = "gone"  # evicted or moved to disk before its turn
    REFUSED = "refused"  # error reply from the peer
    FULL = "full"  # the peer's share is used up
    LOST = "lost"  # peer connection lost


class HandoverState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class _Lane:
    def __init__(self, peer: Peer, budget: int) -> None:
        self.peer = peer
        self.budget = budget
        self.keys: list[bytes] = []
        self.bytes = 0
        self.refusals = 0
        self.problem = ""


class Handover:
    """One handover; call `run` once. Its task may be cancelled at any time."""

    def __init__(
        self,
        config: Config,
        store: Store,
        policy: EvictionPolicy,
        password_file: PasswordFile,
        peers: Sequence[PeerConfig],
        rate: int = DEFAULT_RATE,
    ) -> None:
        self.state = HandoverState.RUNNING
        self.problem = ""
        self.counts = dict.fromkeys(HandoverOutcome, 0)
        self.bytes = 0
        self._config = config
        self._store = store
        self._policy = policy
        self._password_file = password_file
        self._rate = rate
        self._started_at = time.monotonic()
        self._lanes: dict[str, _Lane] = {}
        self._places = {peer.name: peer.place for peer in peers}
        self._placing = Rendezvous({peer.name: peer.weight for peer in peers})

    def facts(self) -> dict[str, object]:
        return {
            "to": list(self._places),
            "state": self.state.value,
            "problem": self.problem,
            "bytes": self.bytes,
            **{outcome.value: count for outcome, count in self.counts.items()},
        }

    async def run(self) -> None:
        try:
            await self._open()
            for key in self._policy.ranking():
                await self._add(key)
            for lane in self._lanes.values():
                await self._send(lane)
            problems = [lane.problem for lane in self._lanes.values() if lane.problem]
            self.state = HandoverState.FAILED if problems else HandoverState.DONE
            self.problem = "; ".join(problems)
        except PeerError as exc:
            self.state, self.problem = HandoverState.FAILED, str(exc)
        except asyncio.CancelledError:
            self.state, self.problem = HandoverState.FAILED, "the node stopped"
            raise
        finally:
            for lane in self._lanes.values():
                await lane.peer.close()
            level = logging.INFO if self.state is HandoverState.DONE else logging.WARNING
            log.log(level, "handover %s: %s", self.state.value, self.facts())

    async def _open(self) -> None:
        """Connect to all peers or none: keys of a missing peer would go to the wrong nodes."""
        tls = make_peer_tls(self._config)
        password = next(iter(self._password_file.lines), "")
        for name, place in self._places.items():
            peer = Peer(place)
            self._lanes[name] = _Lane(peer, 0)
            peer_info = await peer.connect(self._config, password, tls)
            free = peer_info.capacity_bytes - peer_info.used_bytes
            self._lanes[name].budget = max(free, peer_info.capacity_bytes // _PEER_SHARE)

    async def _add(self, key: bytes) -> None:
        lane = self._lanes[self._placing.place(key)[0]]
        entry = self._store.peek(key, time.monotonic())
        if entry is None or entry.on_disk:
            self.counts[HandoverOutcome.GONE] += 1
        elif lane.problem:
            self.counts[HandoverOutcome.LOST] += 1
        elif lane.budget < entry.cost:
            self.counts[HandoverOutcome.FULL] += 1
        else:
            lane.budget -= entry.cost
            lane.keys.append(key)
            lane.bytes += entry.length
            if len(lane.keys) >= _BATCH_KEYS or lane.bytes >= _BATCH_BYTES:
                await self._send(lane)

    async def _send(self, lane: _Lane) -> None:
        keys, lane.keys, lane.bytes = lane.keys, [], 0
        if not keys or lane.problem:
            return
        holds: dict[bytes, Hold] = {}
        settled = self._settled()
        try:
            missing = await self._missing(lane, keys)
            pieces: list[Piece] = []
            for key in missing:
                self._take(key, holds, pieces)
            answers = await lane.peer.ask(pieces, len(holds))
            for key, answer in zip(holds, answers, strict=True):
                self._note(lane, answer, holds[key].length)
        except PeerError as exc:
            self.counts[HandoverOutcome.LOST] += len(keys) - (self._settled() - settled)
            lane.problem = str(exc)
        finally:
            for hold in holds.values():
                hold.release()
        await self._slow_down()

    def _settled(self) -> int:
        return sum(self.counts.values())

    async def _missing(self, lane: _Lane, keys: list[bytes]) -> list[bytes]:
        """Return the keys absent on the peer, queried without counting as a use."""
        commands = [command(b"STRLEN", key) for key in keys]
        lengths = await lane.peer.ask(commands, len(commands))
        missing = [key for key, length in zip(keys, lengths, strict=True) if length == "0"]
        self.counts[HandoverOutcome.THERE] += len(keys) - len(missing)
        return missing

    def _take(self, key: bytes, holds: dict[bytes, Hold], pieces: list[Piece]) -> None:
        """Pin the value and append the command that stores it on the peer if absent."""
        now = time.monotonic()
        left = self._store.ttl(key, now)
        value = self._store.acquire(key, now)
        if left is None or not isinstance(value, Hold):
            self.counts[HandoverOutcome.GONE] += 1
            if value is not None:
                value.release()
            return
        holds[key] = value
        life = [] if left == math.inf else [b"PX", b"%d" % max(1, int(left * 1000))]
        tail = [b"NX", *life]
        head = b"*%d\r\n$3\r\nSET\r\n$%d\r\n%b\r\n" % (3 + len(tail), len(key), key)
        pieces += [head + b"$%d\r\n" % value.length, *value.views]
        pieces.append(b"\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in tail))

    def _note(self, lane: _Lane, answer: str, length: int) -> None:
        if answer == "OK":
            self.counts[HandoverOutcome.HANDED] += 1
            self.bytes += length
            lane.refusals = 0
        elif answer == "-1":  # stored by another client since the query
            self.counts[HandoverOutcome.THERE] += 1
        else:
            self.counts[HandoverOutcome.REFUSED] += 1
            lane.refusals += 1
            if lane.refusals >= _TOO_MANY_REFUSALS:
                lane.problem = f"{lane.peer.place} keeps rejecting values: {answer[1:200]}"

    async def _slow_down(self) -> None:
        ahead_s = self._started_at + self.bytes / self._rate - time.monotonic()
        await asyncio.sleep(max(ahead_s, 0.0))
