"""Decoding of vLLM payloads: captured ones, the older encoding, and invalid ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.kv import wire
from routing.engine.kv.wire import Cleared, Decoder, Removed, Stored, Tier, WireError

pack = msgspec.msgpack.encode

# As captured from vLLM 0.32 (block size 32; ids shortened to what three blocks need).
STORED: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [4703031923946730687, 18092135778167193181, 4250575609214831879],
    "parent_block_hash": None,
    "token_ids": [13433, 378, 2365, *range(93)],
    "block_size": 32,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
    "extra_keys": [None, None, None],
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
}
REMOVED = {
    "type": "BlockRemoved",
    "block_hashes": [402128934087637332],
    "medium": "GPU",
    "group_idx": 0,
}
CLEARED = {"type": "AllBlocksCleared"}


def decode(*events: Any, decoder: Decoder | None = None) -> list[Any]:
    return list((decoder or Decoder()).decode(pack([1795226535.935, list(events), 0])).events)


def fields(event: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_captured_batches_are_decoded() -> None:
    decoder = Decoder()
    batch = decoder.decode(pack([1795226535.935, [STORED], 0]))
    (stored,) = batch.events
    assert batch.ts == 1795226535.935
    assert batch.rank == 0
    assert isinstance(stored, Stored)
    assert stored.block_hashes[1] == 18092135778167193181  # more than a signed number holds
    assert stored.parent_block_hash is None
    assert len(stored.token_ids) == 96
    (removed,) = decode(REMOVED)
    assert isinstance(removed, Removed)
    assert removed.medium == "GPU"
    assert isinstance(decode(CLEARED)[0], Cleared)
    assert decoder.skipped == {}


def test_older_encoding_is_equivalent() -> None:
    def positional(event: dict[str, Any]) -> list[Any]:
        kind = wire._TYPES[event["type"]]
        return [event["type"], *(event.get(name) for name in kind.__struct_fields__)]

    decoder = Decoder()
    for event in (STORED, REMOVED, CLEARED):
        new, old = decode(event), decode(positional(event), decoder=decoder)
        assert fields(new[0]) == fields(old[0])
    # As the first versions had it: neither adapter's name nor anything after the medium.
    (short,) = decode(["BlockStored", [7], 6, [1, 2], 2, None, "GPU"], decoder=decoder)
    assert (short.block_hashes, short.parent_block_hash, short.extra_keys) == ([7], 6, None)
    assert decoder.skipped == {}


def test_both_encodings_in_one_stream_and_in_one_batch() -> None:
    decoder = Decoder()
    array = ["BlockRemoved", [3], "GPU"]
    for _ in range(3):
        assert isinstance(decode(array, decoder=decoder)[0], Removed)
        assert isinstance(decode(REMOVED, decoder=decoder)[0], Removed)
    assert [event.block_hashes for event in decode(array, REMOVED, decoder=decoder)] == [
        [3],
        [402128934087637332],
    ]
    assert decoder.skipped == {}


def test_byte_hashes() -> None:
    digest = bytes(range(32))
    (event,) = decode({**REMOVED, "block_hashes": [digest, 5]})
    assert event.block_hashes == [digest, 5]


def test_unknown_fields_are_skipped_and_counted() -> None:
    decoder = Decoder()
    (event,) = decode({**STORED, "colour": "red"}, decoder=decoder)
    assert event.block_hashes == STORED["block_hashes"]
    assert decoder.skipped == {"field:colour": 1}
    # From now on without looking: still read, no longer counted.
    (event,) = decode({**STORED, "colour": "red"}, decoder=decoder)
    assert event.block_hashes == STORED["block_hashes"]
    assert decoder.skipped == {"field:colour": 1}


def test_unknown_types_are_skipped_and_counted() -> None:
    decoder = Decoder()
    events = decode({"type": "BlockMoved", "x": 1}, STORED, ["BlockSeen", 3], decoder=decoder)
    assert [type(event) for event in events] == [Stored]
    assert decoder.skipped == {"type:BlockMoved": 1, "type:BlockSeen": 1}


def test_malformed_event_keeps_the_others_of_its_batch() -> None:
    decoder = Decoder()
    wrong = {**STORED, "token_ids": "many"}
    events = decode(wrong, REMOVED, 7, [], {}, decoder=decoder)
    assert [type(event) for event in events] == [Removed]
    assert decoder.skipped == {"event": 3, "type:None": 1}


def test_counted_names_are_bounded() -> None:
    decoder = Decoder()
    for number in range(500):
        decode({"type": f"T{number}"}, decoder=decoder)
    assert len(decoder.skipped) <= 65
    assert sum(decoder.skipped.values()) == 500


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_batch_or_a_wire_error(payload: bytes) -> None:
    try:
        Decoder().decode(payload)
    except WireError as error:
        assert error.reason == "malformed_batch"


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5)
    | st.binary(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(JSONISH | st.fixed_dictionaries({"type": st.just("BlockStored")}), max_size=5))
def test_arbitrary_events_are_decoded_or_skipped(events: list[Any]) -> None:
    found = decode(*events, REMOVED)
    assert isinstance(found[-1], Removed)


@pytest.mark.parametrize(
    ("medium", "expected"),
    [
        (None, Tier.GPU),
        ("GPU", Tier.GPU),
        ("gpu", Tier.GPU),
        ("CPU", Tier.L1),
        ("cpu", Tier.L1),
        ("Cpu", Tier.L1),
        ("STORAGE", Tier.L2),
        ("storage", Tier.L2),
        ("TAPE", None),
    ],
)
def test_media(medium: str | None, expected: Tier | None) -> None:
    assert wire.parse_tier(medium) is expected


def test_messages_are_decoded_from_the_end() -> None:
    seq = (5).to_bytes(8, "big")
    for frames in ([b"topic", seq, b"p"], [b"", b"topic", seq, b"p"], [b"", seq, b"p"]):
        assert wire.read_message(frames) == (5, b"p")
    end = [b"", b"", b"\xff" * 8, b""]
    assert wire.read_message(end) == (wire.END_SEQ, b"")


@pytest.mark.parametrize("frames", [[], [b"x"], [b"topic", b"short", b"p"], [b"", b""]])
def test_other_frames_are_rejected(frames: list[bytes]) -> None:
    with pytest.raises(WireError) as caught:
        wire.read_message(frames)
    assert caught.value.reason == "malformed_frames"
