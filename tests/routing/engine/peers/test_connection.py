"""RESP2 as the routers read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.peers.connection import Push, StoreError, pack_command, parse_reply

REPLIES = [
    (b"+OK\r\n", b"OK"),
    (b":12\r\n", 12),
    (b"$3\r\na\r\n\r\n", b"a\r\n"),
    (b"$-1\r\n", None),
    (b"_\r\n", None),
    (b"*3\r\n$1\r\nx\r\n:1\r\n*0\r\n", [b"x", 1, []]),
    (b"%1\r\n+proto\r\n:3\r\n", [b"proto", 3]),
    (b">2\r\n$1\r\na\r\n:1\r\n", Push([b"a", 1])),
]


@pytest.mark.parametrize(("data", "value"), REPLIES)
def test_reply_is_read_once_it_is_complete(data, value):
    for end in range(len(data)):
        assert parse_reply(data[:end], 0) is None
    assert parse_reply(b"--" + data + b"+more", 2) == (value, len(data) + 2)


def test_error_reply_is_an_error():
    found = parse_reply(b"-NOPERM no\r\n", 0)
    assert found is not None
    assert str(found[0]) == "NOPERM no"


@pytest.mark.parametrize(
    "data", [b"?\r\n", b"$x\r\n", b"$999999999999\r\n", b"*-2\r\n", b"*1\r\n" * 6 + b":1\r\n"]
)
def test_invalid_reply_is_rejected(data):
    with pytest.raises(StoreError):
        parse_reply(data, 0)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_command_is_read_back(parts):
    data = pack_command(*parts)
    assert parse_reply(data, 0) == (parts, len(data))
