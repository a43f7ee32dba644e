"""Parse vLLM's KV event payloads and replay frames, in both encodings.

Fields are found by name in maps and by position in arrays. Unknown ones are skipped and counted.
Unreadable payloads raise WireError only.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Generic, TypeVar

import msgspec

BlockHash = int | bytes
E = TypeVar("E")

END_SEQ = 2**64 - 1  # end-of-replay marker: -1 as uint64
_UNKNOWN_NAMES = 64  # bound on names counted individually
_LENIENT_BATCHES = 1000


class Tier(IntEnum):
    GPU = 0
    L1 = 1
    L2 = 2


_MEDIA = {
    "gpu": Tier.GPU,
    "device": Tier.GPU,
    "cpu": Tier.L1,
    "cpu_pinned": Tier.L1,
    "host": Tier.L1,
    "storage": Tier.L2,
    "disk": Tier.L2,
    "external": Tier.L2,
}
_MEDIA |= {name.upper(): medium for name, medium in _MEDIA.items()}


def parse_tier(medium: str | None) -> Tier | None:
    """Return None for an unknown medium. Versions without the field had only the GPU."""
    if medium is None:
        return Tier.GPU
    tier = _MEDIA.get(medium)
    return tier if tier is not None else _MEDIA.get(medium.lower())


class WireError(Exception):
    """Protocol violation; `reason` is a metric label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Stored(msgspec.Struct, tag="BlockStored", gc=False, forbid_unknown_fields=True):
    """Blocks in chain order; `parent_block_hash` precedes the first."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None = None
    token_ids: list[int] = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    is_draft: bool | None = None


class Removed(msgspec.Struct, tag="BlockRemoved", gc=False, forbid_unknown_fields=True):
    """Blocks that left a medium. `remaining_copy_counts`: copies of each that it still holds."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None
    remaining_copy_counts: list[int] | None = None


class Cleared(msgspec.Struct, tag="AllBlocksCleared", gc=False, forbid_unknown_fields=True):
    pass


Event = Stored | Removed | Cleared
_TYPES: dict[str, type[Event]] = {
    "BlockStored": Stored,
    "BlockRemoved": Removed,
    "AllBlocksCleared": Cleared,
}


class Batch(msgspec.Struct, Generic[E], array_like=True, gc=False):
    """Events of one engine step; `ts` in seconds of the worker's clock."""

    ts: float
    events: list[E]
    rank: int | None = None


_Decode = Callable[[bytes], Batch[Any]]


# The same events as arrays: [tag, field, ...]; fields beyond the known ones are ignored.
class _StoredArray(
    Stored, array_like=True, gc=False, forbid_unknown_fields=False, tag="BlockStored"
):
    pass


class _RemovedArray(
    Removed, array_like=True, gc=False, forbid_unknown_fields=False, tag="BlockRemoved"
):
    pass


class _ClearedArray(
    Cleared, array_like=True, gc=False, forbid_unknown_fields=False, tag="AllBlocksCleared"
):
    pass


_decode_maps: _Decode = msgspec.msgpack.Decoder(Batch[Stored | Removed | Cleared]).decode
_decode_arrays: _Decode = msgspec.msgpack.Decoder(
    Batch[_StoredArray | _RemovedArray | _ClearedArray]
).decode
_decode_raw: _Decode = msgspec.msgpack.Decoder(Batch[Any]).decode


class Decoder:
    """Payload decoder of one source; remembers the last encoding.

    `skipped`: counts by "type:NAME", "field:NAME", "event" (invalid shape). Unknown fields require
    a slow path; after one such batch the next thousand skip the check.
    """

    __slots__ = ("_fast", "_lenient_left", "skipped")

    def __init__(self) -> None:
        self._fast = _decode_maps
        self._lenient_left = 0
        self.skipped: dict[str, int] = {}

    def decode(self, payload: bytes) -> Batch[Event]:
        """Raise WireError."""
        if self._lenient_left:
            return self._lenient(payload)
        try:
            return self._fast(payload)
        except msgspec.DecodeError:
            pass
        other = _decode_arrays if self._fast is _decode_maps else _decode_maps
        try:
            batch = other(payload)
        except msgspec.DecodeError:
            return self._slow(payload)
        self._fast = other
        return batch

    def _lenient(self, payload: bytes) -> Batch[Event]:
        self._lenient_left -= 1
        try:
            return _decode_lenient(payload)
        except msgspec.DecodeError:
            return self._slow(payload)

    def _slow(self, payload: bytes) -> Batch[Event]:
        """Decode event by event and keep the valid ones."""
        try:
            raw = _decode_raw(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WireError("malformed_batch", f"not a batch of events: {error}") from None
        events: list[Event] = []
        for item in raw.events:
            event = self._event(item)
            if event is not None:
                events.append(event)
        return Batch(raw.ts, events, raw.rank)

    def _event(self, item: Any) -> Event | None:
        if isinstance(item, dict):
            name = item.pop("type", None)
            values = item
        elif isinstance(item, list) and item:
            name, *places = item
            values = None
        else:
            self._skip("event")
            return None
        kind = _TYPES.get(name) if isinstance(name, str) else None
        if kind is None:
            self._skip(f"type:{name}"[:64])
            return None
        fields = kind.__struct_fields__
        if values is None:
            values = dict(zip(fields, places, strict=False))
        unknown = [key for key in values if key not in fields]
        for key in unknown:
            self._skip(f"field:{key}"[:64])
            del values[key]
        if unknown:
            self._lenient_left = _LENIENT_BATCHES
        values["type"] = name
        try:
            return msgspec.convert(values, kind)
        except (msgspec.ValidationError, RecursionError):
            self._skip("event")
            return None

    def _skip(self, what: str) -> None:
        if what not in self.skipped and len(self.skipped) >= _UNKNOWN_NAMES:
            what = "other"
        self.skipped[what] = self.skipped.get(what, 0) + 1


# Without checking for unknown fields.
class _StoredLenient(Stored, tag="BlockStored", gc=False, forbid_unknown_fields=False):
    pass


class _RemovedLenient(Removed, tag="BlockRemoved", gc=False, forbid_unknown_fields=False):
    pass


class _ClearedLenient(Cleared, tag="AllBlocksCleared", gc=False, forbid_unknown_fields=False):
    pass


_decode_lenient: _Decode = msgspec.msgpack.Decoder(
    Batch[_StoredLenient | _RemovedLenient | _ClearedLenient]
).decode


def read_message(frames: list[bytes]) -> tuple[int, bytes]:
    """Return sequence number and payload of a live or replayed message.

    Frames are counted from the end: older replays have no topic, and a DEALER sees an empty first
    frame. The end of a replay has END_SEQ and no payload. Raise WireError.
    """
    if len(frames) < 2 or len(frames[-2]) != 8:
        sizes = [len(frame) for frame in frames[:8]]
        raise WireError("malformed_frames", f"frames of {sizes} bytes are not a message")
    return int.from_bytes(frames[-2], "big"), frames[-1]


def replay_request(start: int) -> list[bytes]:
    return [b"", start.to_bytes(8, "big")]
