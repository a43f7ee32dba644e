"""Invariants of the cache node's RESP reader and session.

The reader's constants are reduced, so that short inputs reach limits of 16 KiB in production.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

from cachetier.engine import store
from cachetier.engine.commands import arguments, connection, retrieval, scan, values
from cachetier.engine.commands import node as commands_node
from cachetier.engine.config import parse
from cachetier.engine.memory import memory_store
from cachetier.engine.net import session
from cachetier.engine.net.access import Gatekeeper
from cachetier.engine.net.session import ClientSession
from cachetier.engine.node import Node
from cachetier.engine.server import HANDLERS
from cachetier.engine.store import DiskValue, Hold
from cachetier.wire import frames
from cachetier.wire.frames import Buffer, Limits, ProtocolError, RefusedFrame, RequestParser
from tests.fuzz import resp_reference as reference
from tests.fuzz.splitting import splits

DIRECT, SCRATCH = 48, 256
LIMITS = Limits(
    max_args=50, max_short_bytes=2000, max_value_bytes=300, max_bulk_bytes=500,
    max_request_bytes=700,
)  # fmt: skip


def _shrink() -> None:
    frames.DIRECT_BYTES = session.DIRECT_BYTES = DIRECT
    frames.SCRATCH_BYTES = SCRATCH
    frames._FRAMING_BYTES, frames._MAX_TARGETS, frames._WORD_BYTES = 40, 3, 8
    store.LONG_BYTES = memory_store.LONG_BYTES = DIRECT
    frames._MAX_LENGTH_LINE = 24


class Pieces:
    """Landing buffer in parts of 17 bytes, as in a store."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.views = [memoryview(bytearray(min(17, length - at))) for at in range(0, length, 17)]


def fill(parser: RequestParser, data: bytes, scatter: bool) -> int:
    """Copy what fits the parser's buffers, like a socket; return the number of bytes."""
    places = parser.get_buffers() if scatter else [parser.get_buffer()]
    done = 0
    for place in places:
        assert len(place) > 0, "a place without room stops a transport"
        part = data[done : done + len(place)]
        place[: len(part)] = part
        done += len(part)
    parser.received(done)
    return done


# -- the reader


class Outcome(NamedTuple):
    requests: list[list[bytes | tuple[str, int]]]
    error: str
    idle: bool


def _read(parts: list[bytes], scatter: bool, pieces: bool) -> Outcome:
    def land(_before: frames.Request, length: int) -> frames.Landing | RefusedFrame:
        assert DIRECT <= length <= LIMITS.max_value_bytes
        if length % 7 == 0:
            return RefusedFrame("backpressure", length)
        return Pieces(length) if pieces else Buffer(length)

    parser = RequestParser(LIMITS, land)
    found: list[list[bytes | tuple[str, int]]] = []
    try:
        for part in parts:
            rest = part
            while rest:
                rest = rest[fill(parser, rest, scatter) :]
                while (request := parser.next_request()) is not None:
                    assert request, "an empty request"
                    found.append([_whole(argument) for argument in request])
    except ProtocolError:
        return Outcome(found, "closed", False)
    return Outcome(found, "", parser.is_idle)


def _whole(argument: frames.Argument) -> bytes | tuple[str, int]:
    if isinstance(argument, RefusedFrame):
        return argument.reason, argument.length
    return argument if isinstance(argument, bytes) else b"".join(argument.views)


def requests(data: bytes) -> None:
    """However the input is split and buffered, the requests equal those of the reference reader."""
    _shrink()
    steer, wire = data[:4], data[4:]
    expected = Outcome(*reference.read(wire, LIMITS, DIRECT))
    for parts in splits(wire, steer):
        for scatter in (False, True):
            outcome = _read(parts, scatter, pieces=bool(steer[:1] and steer[0] & 1))
            assert outcome == expected, f"{outcome} is not {expected}"


# -- a session


class _Out:
    """Client that reads replies, or pauses after each `slow` bytes."""

    def __init__(self, slow: int) -> None:
        self.data = bytearray()
        self.holds: list[Hold | DiskValue] = []
        self._slow = slow
        self._since = 0

    def write(self, data: bytes) -> None:
        self.data += data
        self._since += len(data)

    def send(self, value: Hold | DiskValue) -> None:
        assert isinstance(value, Hold)
        for view in value.views:
            self.write(bytes(view))
        self.write(b"\r\n")
        value.release()

    def pending(self) -> int:
        return 0

    def pause(self) -> None:
        raise AssertionError("time stands still, and there is no disk to wait for")

    resume = pause

    def is_behind(self) -> bool:
        return bool(self._slow) and self._since > self._slow

    def take(self) -> None:
        self._since = 0


# One node for all runs, flushed in between: creating one is slower than a run.
_NODE = Node(parse(("--memory", "1MiB", "--allow-flush")))


class _Clock:
    """Frozen clock, for reproducible replies."""

    @staticmethod
    def monotonic() -> float:
        return 1000.0

    perf_counter = monotonic

    @staticmethod
    def time() -> float:
        return 1.7e9

    @staticmethod
    def time_ns() -> int:
        return 1_700_000_000_000_000_000


def _stop_clocks() -> None:
    for module in (commands_node, connection, arguments, retrieval, values, scan):
        assert "time" in vars(module)
        vars(module)["time"] = _Clock
    assert "monotonic" in vars(session)
    vars(session)["monotonic"] = _Clock.monotonic


def _converse(parts: list[bytes], slow: int, scatter: bool) -> list[str]:
    node = _NODE
    node.store.clear(_Clock.monotonic())
    node._ids = itertools.count(1)
    node.gate = Gatekeeper(("default",), (), 20)
    out = _Out(slow)
    talk = ClientSession(node, out, HANDLERS)
    node.sessions[talk.id] = talk
    node.store.put(b"k", b"v" * 60, now=0.0, ttl_s=None, condition=store.Condition.ALWAYS)
    for part in parts:
        rest = part
        while rest and not talk.closing:
            rest = rest[fill(talk.parser, rest, scatter) :]
            talk.feed()
            while out.is_behind() and not talk.closing:
                out.take()
                talk.feed()
            usage = node.store.usage()
            assert usage.used_bytes <= usage.capacity_bytes
    talk.close()
    node.sessions.clear()
    usage = node.store.usage()
    assert (usage.held_bytes, usage.receiving_bytes) == (0, 0), "something is still held"
    assert node._receiving == 0, "something is still reserved"
    return reference.kinds(bytes(out.data))


def sessions(data: bytes) -> None:
    """Every request has one well-formed reply, independent of how the input is split; a closed
    session holds nothing.
    """
    _shrink()
    _stop_clocks()
    logging.disable(logging.CRITICAL)
    steer, wire = data[:4], data[4:]
    slow = steer[0] if steer else 0
    outcomes = [
        _converse(parts, slow, scatter)
        for parts in splits(wire, steer)
        for scatter in (False, True)
    ]
    for other in outcomes[1:]:
        assert other == outcomes[0], f"{other} is not {outcomes[0]}"


def globs(data: bytes) -> None:
    """A pattern matches what Redis' algorithm matches."""
    from cachetier.engine.commands.scan import compile_glob

    pattern, _, text = data[:200].partition(b"\n")
    found = compile_glob(pattern).fullmatch(text) is not None
    assert found == reference.glob(pattern, text), (pattern, text)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "resp": requests,
    "sessions": sessions,
    "globs": globs,
}
