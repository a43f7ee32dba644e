"""RESP frames at any split, and rejected input."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.wire.frames import (
    DIRECT_BYTES,
    SCRATCH_BYTES,
    Argument,
    Buffer,
    Landing,
    Limits,
    ProtocolError,
    RefusedFrame,
    Request,
    RequestParser,
    limits_before_login,
)


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)


class Feeder:
    def __init__(
        self,
        limits: Limits | None = None,
        budget: int = 1 << 30,
        scatter: bool = False,
        piece: int = 0,
    ) -> None:
        self.left = budget
        self.piece = piece
        self.reserved: list[int] = []
        self.scatter = scatter
        self.parser = RequestParser(limits or Limits(), self._land)

    def _land(self, before: Request, length: int) -> Landing | RefusedFrame:
        if length > self.left:
            return RefusedFrame("backpressure", length)
        self.left -= length
        self.reserved.append(length)
        return Pieces(length, self.piece) if self.piece else Buffer(length)

    def feed(self, data: bytes) -> list[list[bytes | RefusedFrame]]:
        """As a socket would: as much as the parser's buffers take, then what is complete."""
        requests = []
        while data:
            data = data[self._receive(data) :]
            while (request := self.parser.next_request()) is not None:
                requests.append([whole(argument) for argument in request])
        return requests

    def _receive(self, data: bytes) -> int:
        one = self.parser.get_buffers() if self.scatter else [self.parser.get_buffer()]
        done = 0
        for target in one:
            assert len(target) > 0, "an empty buffer stops a transport"
            count = min(len(target), len(data) - done)
            target[:count] = data[done : done + count]
            done += count
            if done == len(data):
                break
        self.parser.received(done)
        return done


class Pieces:
    """A landing in parts, as a store's may be."""

    def __init__(self, length: int, piece: int) -> None:
        self.length = length
        self.views = [
            memoryview(bytearray(min(piece, length - start))) for start in range(0, length, piece)
        ]


def whole(argument: Argument) -> bytes | RefusedFrame:
    return argument if isinstance(argument, bytes | RefusedFrame) else b"".join(argument.views)


LARGE = bytes(range(256)) * (DIRECT_BYTES // 256 + 3)
CASES = {
    "no arguments": (encode(b"PING"), [[b"PING"]]),
    "empty argument": (encode(b"SET", b"k", b""), [[b"SET", b"k", b""]]),
    "line ends inside": (encode(b"SET", b"k", b"a\r\n$9\r\nb"), [[b"SET", b"k", b"a\r\n$9\r\nb"]]),
    "two in a row": (encode(b"GET", b"a") + encode(b"GET", b"b"), [[b"GET", b"a"], [b"GET", b"b"]]),
    "empty request": (b"*0\r\n" + encode(b"PING"), [[b"PING"]]),
    "null request": (b"*-1\r\n" + encode(b"PING"), [[b"PING"]]),
    "inline": (b"  set  k v \r\nPING\r\n", [[b"set", b"k", b"v"], [b"PING"]]),
    "empty lines": (b"\r\n\r\nPING\n", [[b"PING"]]),
}


@pytest.mark.parametrize("name", CASES)
def test_frames_parse_at_any_split_and_with_a_trailer(name: str) -> None:
    data, expected = CASES[name]
    assert Feeder().feed(data) == expected
    for cut in range(len(data) + 1):
        feeder = Feeder()
        assert feeder.feed(data[:cut]) + feeder.feed(data[cut:]) == expected, cut
    one_by_one = Feeder()
    came = [request for byte in data for request in one_by_one.feed(bytes([byte]))]
    assert came == expected
    with_tail = Feeder()
    assert with_tail.feed(data + b"*2\r\n$3\r\nGE") == expected
    assert with_tail.feed(b"T\r\n$1\r\nx\r\n") == [[b"GET", b"x"]]


@pytest.mark.parametrize(
    "cut", [1, 10, 30, 40, 100, DIRECT_BYTES, len(LARGE) + 20, len(LARGE) + 33]
)
def test_long_value_is_received_once_at_any_split(cut: int) -> None:
    data = encode(b"SET", b"key", LARGE) + encode(b"PING")
    for scatter, piece in ((False, 0), (True, 0), (False, 1000), (True, 7)):
        feeder = Feeder(scatter=scatter, piece=piece)
        requests = feeder.feed(data[:cut]) + feeder.feed(data[cut:])
        assert requests == [[b"SET", b"key", LARGE], [b"PING"]]
        assert feeder.reserved == [len(LARGE)]
        assert feeder.parser.missing == 0


words = st.one_of(
    st.binary(max_size=40),
    st.integers(DIRECT_BYTES - 2, DIRECT_BYTES + 2).map(lambda n: b"\r" * n),
    st.integers(SCRATCH_BYTES - 50, SCRATCH_BYTES + 50).map(lambda n: b"$" * n),
)
commands = st.lists(st.lists(words, min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    commands,
    st.lists(st.integers(1, 70_000), min_size=1, max_size=30),
    st.booleans(),
    st.sampled_from([0, 50, 5000]),
)
def test_commands_parse_at_any_split(
    sent: list[list[bytes]], sizes: list[int], scatter: bool, piece: int
) -> None:
    data = b"".join(encode(*command) for command in sent)
    feeder, came, place, turn = Feeder(scatter=scatter, piece=piece), [], 0, 0
    while place < len(data):
        size = max(sizes[turn % len(sizes)], len(data) // 300)  # or long values take for ever
        came += feeder.feed(data[place : place + size])
        place, turn = place + size, turn + 1
    assert came == sent
    assert feeder.parser.is_idle


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_invalid_bytes_affect_only_their_connection(data: bytes, size: int) -> None:
    feeder = Feeder()
    try:
        for place in range(0, len(data), size):
            for request in feeder.feed(data[place : place + size]):
                assert request
    except ProtocolError as exc:
        assert str(exc)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"*x\r\n", "invalid length"),
        (b"*99999999999999999999999999\r\n", "invalid"),
        (b"*2000000\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$600000000\r\n", "invalid bulk length"),
        (b"*1\r\n$3\r\nabcdef", "bulk not followed"),
        (b"a" * (DIRECT_BYTES + 1), "inline"),
        (b"a" * (DIRECT_BYTES + 1) + b"\n", "inline"),
    ],
)
def test_invalid_resp_is_rejected_with_a_message(data: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words.replace("$", r"\$")):
        Feeder().feed(data)


@pytest.mark.parametrize(
    ("limits", "budget", "reason"),
    [
        (Limits(max_value_bytes=DIRECT_BYTES), 1 << 30, "too_large"),
        (Limits(), DIRECT_BYTES, "backpressure"),
    ],
)
def test_rejected_value_is_dropped_and_the_connection_continues(
    limits: Limits, budget: int, reason: str
) -> None:
    data = encode(b"SET", b"k", LARGE, b"NX") + encode(b"PING")
    for cut in (5, 25, 40, len(LARGE), len(LARGE) + 30):
        feeder = Feeder(limits, budget)
        came = feeder.feed(data[:cut]) + feeder.feed(data[cut:])
        refused = RefusedFrame(reason, len(LARGE))
        assert came == [[b"SET", b"k", refused, b"NX"], [b"PING"]]
        assert feeder.reserved == []


def test_request_size_before_login_is_small() -> None:
    with pytest.raises(ProtocolError, match="multibulk"):
        Feeder(limits_before_login()).feed(b"*11\r\n")
    with pytest.raises(ProtocolError, match="bulk length"):
        Feeder(limits_before_login()).feed(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n" % (DIRECT_BYTES + 1))
    with pytest.raises(ProtocolError, match="request too large"):
        Feeder(limits_before_login()).feed(encode(*[b"x" * (DIRECT_BYTES - 1)] * 5))


def test_memory_of_a_request_is_bounded() -> None:
    limits = Limits(max_request_bytes=3 * len(LARGE))
    with pytest.raises(ProtocolError, match="request too large"):
        Feeder(limits).feed(encode(b"MSET", *[LARGE] * 4))


def test_many_short_words_hold_no_more_than_one_long_word() -> None:
    """Each costs what an object does, so a million empty ones are not nothing."""
    limits = Limits(max_short_bytes=64 * 1000 + 500)
    assert len(Feeder(limits).feed(encode(*[b""] * 1000))[0]) == 1000
    with pytest.raises(ProtocolError, match="too many words"):
        Feeder(limits).feed(encode(*[b""] * 1008))
    with pytest.raises(ProtocolError, match="too many words"):
        Feeder().feed(encode(b"MGET", *[b"x" * (DIRECT_BYTES - 1)] * 300))
    twice = Feeder(limits)
    assert len(twice.feed(encode(*[b""] * 1000) * 2)) == 2, "each request has its own"


def test_each_request_has_its_own_allowance() -> None:
    limits = Limits(max_request_bytes=2 * len(LARGE))
    assert len(Feeder(limits).feed(encode(b"SET", b"k", LARGE) * 5)) == 5
