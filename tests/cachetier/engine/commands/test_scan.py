"""Patterns, scans and long commands: bounded cost, yields to other clients, correct replies."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import redis

from cachetier.engine.commands.scan import MAX_PATTERN_BYTES, compile_glob
from cachetier.engine.config import parse
from cachetier.engine.net import session as sessions
from cachetier.engine.net.session import ClientSession
from cachetier.engine.node import Node
from cachetier.engine.server import HANDLERS
from cachetier.engine.store import Condition, DiskValue, Hold
from cachetier.wire.commands import TABLE
from tests.cachetier.engine.conftest import Start
from tests.support.resp import RawClient, encode


@pytest.mark.parametrize("pattern", [b"*a" * 40 + b"b", b"*" * 1000 + b"b", b"*?" * 60 + b"b"])
def test_pattern_matching_has_no_backtracking(pattern: bytes) -> None:
    """With backtracking this would take longer than the universe has."""
    assert compile_glob(pattern).fullmatch(b"a" * 4000) is None


def test_expired_scan_does_not_look_finished(start: Start) -> None:
    """Else a client would take half the keys for all of them."""
    db = redis.Redis(port=start().port)
    for number in range(50):
        db.set(f"k{number}", "")
    first, _ = db.scan(0, count=10)
    for _ in range(20):
        db.scan(0, count=10)
    for cursor in (first, 12345 << 32 | 10, 7):
        with pytest.raises(redis.ResponseError, match="restart with cursor 0"):
            db.scan(cursor)


def test_scan_continues_over_another_connection(start: Start) -> None:
    node = start()
    db, other = redis.Redis(port=node.port), redis.Redis(port=node.port)
    for number in range(50):
        db.set(f"k{number}", "")
    cursor, keys = db.scan(0, count=30)
    cursor, rest = other.scan(cursor, count=30)
    assert (cursor, len({*keys, *rest})) == (0, 50)


def test_expired_keys_are_not_listed(start: Start) -> None:
    db = redis.Redis(port=start().port)
    db.set("stays", "")
    db.execute_command("SET", "ended", "", "PXAT", 1)
    assert list(db.scan_iter()) == [b"stays"]
    assert db.keys() == [b"stays"]


# -- long commands -----------------------------------------------------------------------------
MANY = 3000
KEYS = [f"k{number}".encode() for number in range(MANY)]


class _Out:
    """A client which takes every reply, and counts the turns which others had meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = Node(parse(("--memory", "64MiB")))
        self.data = bytearray()
        self.turns = 0
        self._is_resting = False
        self._soon: list[Callable[[], None]] = []
        monkeypatch.setattr(self.node, "soon", self._soon.append)
        ticks = itertools.count()
        # Each reading of the clock takes a millisecond.
        monkeypatch.setattr(sessions, "monotonic", lambda: next(ticks) / 1000)
        self.session = ClientSession(self.node, self, HANDLERS)

    def ask(self, *words: bytes) -> bytes:
        """The reply to a command, with `turns` counted from 0."""
        self.data.clear()
        self.turns = 0
        rest = encode(*words)
        while rest:
            place = self.session.parser.get_buffer()
            count = min(len(place), len(rest))
            place[:count] = rest[:count]
            self.session.parser.received(count)
            rest = rest[count:]
            self.session.feed()
        while self._soon:
            self.turns += 1
            self._soon.pop()()
        return bytes(self.data)

    def write(self, data: bytes) -> None:
        self.data += data

    def send(self, value: Hold | DiskValue) -> None:
        assert isinstance(value, Hold)
        self.data += value.tobytes() + b"\r\n"
        value.release()

    def pending(self) -> int:
        return 0

    def is_behind(self) -> bool:
        return self._is_resting

    def pause(self) -> None:
        self._is_resting = True

    def resume(self) -> None:
        self._is_resting = False
        self.session.feed()


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> _Out:
    one = _Out(monkeypatch)
    for key in KEYS:
        one.node.store.put(key, b"v", now=0.0, ttl_s=None, condition=Condition.ALWAYS)
    return one


@pytest.mark.parametrize(
    ("words", "head"),
    [
        ((b"KEYS", b"*"), b"*%d\r\n" % MANY),
        ((b"KEYS", b"*9"), b"*%d\r\n" % (MANY // 10)),
        ((b"SCAN", b"0", b"COUNT", b"10000", b"MATCH", b"*k*"), b"*2\r\n$1\r\n0\r\n*3000\r\n"),
        ((b"COMMAND", b"INFO", *[b"get"] * MANY), b"*%d\r\n" % MANY),
        *(
            ((name.upper().encode(), *KEYS), b"*3000\r\n" if name == "mget" else b":3000\r\n")
            for name, command in TABLE.items()
            if command.last_key == -1 and command.group != "emberline"
        ),
    ],
)
def test_long_command_yields_to_other_clients(
    out: _Out, words: tuple[bytes, ...], head: bytes
) -> None:
    """Whatever names many keys, or goes over all of them."""
    assert out.ask(*words).startswith(head)
    assert out.turns > MANY / 20
    assert out.ask(b"PING") == b"+PONG\r\n"


def test_long_value_range_is_sent_in_slices(out: _Out) -> None:
    value = bytes(range(256)) * 40_000
    out.node.store.put(b"long", value, now=0.0, ttl_s=None, condition=Condition.ALWAYS)
    assert out.ask(b"GETRANGE", b"long", b"5", b"-7") == b"$%d\r\n%b\r\n" % (
        len(value) - 11,
        value[5:-6],
    )
    assert out.turns
    assert out.node.store.usage().held_bytes == 0


def test_value_range_of_a_disconnected_client_is_released(out: _Out) -> None:
    value = bytes(8 << 20)
    out.node.store.put(b"long", value, now=0.0, ttl_s=None, condition=Condition.ALWAYS)
    out.is_behind = lambda: len(out.data) > 1000  # type: ignore[method-assign]
    out.ask(b"GETRANGE", b"long", b"0", b"-1")
    assert len(out.data) < len(value)
    out.node.store.drop(b"long", 1.0)
    held = out.node.store.usage().held_bytes
    out.session.close()
    assert out.node.store.usage().held_bytes < held


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ((b"KEYS", b"a" * 1025), b"ERR a pattern of 1025 bytes is longer than 1024"),
        ((b"SCAN", b"0", b"MATCH", b"?" * 1025), b"ERR a pattern of 1025 bytes"),
        ((b"CONFIG", b"GET", b"*" * 2000), b"ERR a pattern of 2000 bytes"),
        ((b"CONFIG", b"GET", *[b"*"] * 65), b"ERR 65 patterns are more than 64"),
        ((b"GET", b"k" * (5 << 20)), b"ERR request arguments other than the value exceed"),
        ((b"MGET", *[b"k" * (1 << 20)] * 5), b"ERR request arguments other than the value exceed"),
        ((b"ECHO", b"k" * (5 << 20)), b"ERR request arguments other than the value exceed"),
    ],
)
def test_expensive_command_is_rejected_with_its_limit(
    start: Start, words: tuple[bytes, ...], refusal: bytes
) -> None:
    assert MAX_PATTERN_BYTES == 1024
    with RawClient(start().port) as raw:
        assert raw.ask(*words)[1].startswith(refusal)
        assert raw.call("PING") == ("+", b"PONG")


def test_lease_has_a_bounded_number_of_keys(start: Start) -> None:
    node = start("--shm", "emberline-test-walking")
    with RawClient(node.port) as raw:
        refused = raw.ask("LEASE", "1000", *["k"] * 4097)[1]
        assert refused == b"ERR a lease of 4097 keys is more than 4096"
        assert raw.ask("LEASE", "1000", *["k"] * 4096)[0] == "*"


def test_repeated_options_count_once(out: _Out) -> None:
    scan = [b"SCAN", b"0", *[b"MATCH", b"none"] * 5000, b"MATCH", b"k17"]
    assert b"*1\r\n$3\r\nk17" in out.ask(*scan, b"COUNT", b"10000")
    kill = out.ask(b"CLIENT", b"KILL", *[b"TYPE", b"normal"] * 5000, b"ID", b"12345")
    assert kill == b":0\r\n"
    names = [b"SETNAME", b"a"] * 5000
    assert out.ask(b"HELLO", b"2", *names, b"SETNAME", b"last").startswith(b"*14\r\n")
    assert out.session.name == "last"
    docs = out.ask(b"COMMAND", b"DOCS", *[b"get"] * 5000)
    assert docs.startswith(b"*2\r\n")


def test_empty_requests_are_bounded(start: Start) -> None:
    with RawClient(start().port) as raw:
        raw.socket.sendall(b"\r\n" * 500 + b"PING\r\n" + b"*0\r\n" * 1000)
        assert raw.read() == ("+", b"PONG")
        raw.socket.sendall(b"*0\r\n" * 1000)
        assert raw.read() == ("-", b"ERR Protocol error: too many empty requests")
        assert raw.is_closed()
