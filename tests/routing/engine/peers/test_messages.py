"""Messages between routers: strict, bounded, authentic."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.peers import messages
from routing.engine.peers.messages import (
    Batch,
    MessageError,
    Placement,
    TtftSample,
    WorkerLoad,
    WorkerPrompts,
)

KEY = b"k" * 32
BATCH = Batch(
    messages.VERSION,
    "0123456789abcdef",
    7,
    3,
    True,
    [WorkerLoad("w0", 2, 900, 1)],
    [Placement(1, "w0", 0, 64.0, messages.pack_names([1, 2**64 - 1]))],
)


def signed(body: bytes) -> bytes:
    return messages._digest(body, KEY) + body


def reason(message: bytes, key: bytes = KEY) -> str:
    with pytest.raises(MessageError) as found:
        messages.decode(message, key)
    return found.value.reason


def test_message_round_trip():
    assert messages.decode(messages.encode(BATCH, KEY), KEY) == BATCH
    assert list(messages.unpack_names(BATCH.placed[0].names)) == [1, 2**64 - 1]


def test_message_of_another_key_or_changed_on_the_way_is_rejected():
    message = messages.encode(BATCH, KEY)
    assert reason(message, b"other") == "not_authentic"
    assert reason(message[:-1] + bytes([message[-1] ^ 1])) == "not_authentic"
    assert reason(b"") == "not_authentic"


def test_message_beyond_the_bounds_is_rejected():
    assert reason(b"x" * (messages.MAX_BYTES + 1)) == "too_large"
    for change in (
        {"router": "../etc"},
        {"sequence": -1},
        {"loads": [WorkerLoad("w0", -1, 0, 0)]},
        {"loads": [WorkerLoad("w" * 129, 1, 0, 0)]},
        {"loads": [WorkerLoad("w0", 1, 0, 0)] * (messages.MAX_WORKERS + 1)},
        {"placed": [Placement(1, "w0", 0, 0.0, b"")]},
        {"placed": [Placement(1, "w0", 0, 1.0, b"", 1.01)]},
        {"placed": [Placement(1, "w0", 0, 1.0, b"", known=messages.MAX_NAMES + 1)]},
        {"prompts": [WorkerPrompts("w0", b"", [-1])]},
        {"times": [TtftSample("w0", 1, -0.1)]},
        {"times": [TtftSample("w0", 1, 0.1)] * (messages.MAX_TIMES + 1)},
        {"prompts": [WorkerPrompts("w0", b"", [1] * (messages.MAX_PROMPTS + 1))]},
    ):
        batch = msgspec.structs.replace(BATCH, **change)
        assert reason(messages.encode(batch, KEY)) == "invalid", change


def test_truncated_name_is_rejected():
    with pytest.raises(MessageError):
        messages.unpack_names(b"1234567")


@given(st.binary(max_size=200))
def test_any_signed_bytes_are_a_batch_or_rejected(body: bytes):
    try:
        messages.decode(signed(body), KEY)
    except MessageError as error:
        assert error.reason in ("invalid", "other_version")


def test_batch_of_another_version_is_named():
    newer = [messages.VERSION + 1, {"router": "of a rollout"}, "more", *range(20)]
    assert reason(signed(msgspec.msgpack.encode(newer))) == "other_version"
    assert reason(signed(msgspec.msgpack.encode([messages.VERSION, "too", "short"]))) == "invalid"
    assert reason(signed(msgspec.msgpack.encode({"version": 2}))) == "invalid"


def test_sender_is_found_without_decoding():
    message = messages.encode(BATCH, KEY)
    assert messages.is_from(message, messages.sender_mark(BATCH.router))
    assert not messages.is_from(message, messages.sender_mark("f" * 16))
    assert not messages.is_from(b"", messages.sender_mark(BATCH.router))
