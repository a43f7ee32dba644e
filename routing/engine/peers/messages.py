"""Messages between the routers of an endpoint: msgpack with a keyed digest, strict and bounded.

A batch states absolute loads, so a lost one is corrected by the next. Prompts appear as keyed
hashes only.
"""

from __future__ import annotations

import hashlib
import hmac
from array import array
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

VERSION: Literal[4] = 4  # to be raised with every change of the fields below
MAX_BYTES = 1024 * 1024  # of a message
MAX_PLACEMENTS = 256  # in a batch
MAX_NAMES = 8192  # hashes of a placement; longer chains are cut
MAX_WORKERS = 4096
MAX_NUMBERS = 8192
MAX_PROMPTS = 8192  # in flight, of a batch
MAX_CALLERS = 1024
MAX_BUDGETS = 256
MAX_TIMES = 1024
_DIGEST_BYTES = 16
_NAME_BYTES = 8

Count = Annotated[int, Meta(ge=0, le=10**12)]
Tokens = Annotated[int, Meta(ge=-(10**15), le=10**15)]
Number = Annotated[int, Meta(ge=0, le=2**62)]
RouterId = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8,32}\Z")]
RouterIdOrEmpty = Annotated[str, Meta(pattern=r"\A([0-9a-f]{8,32})?\Z")]
WorkerId = Annotated[str, Meta(min_length=1, max_length=128)]


class MessageError(Exception):
    """Message to drop; `reason` is its metric label."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class WorkerLoad(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Load a router has placed on a worker; all zero: none."""

    worker: WorkerId
    in_flight: Count
    backlog: Count
    decoding: Count


class Placement(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Prompt sent to a worker. `block_size` 0: prefix blocks, else KV blocks of that many tokens,
    which are expected until `number` is listed as answered or failed. `share`: usable part of the
    worker's cache, learned from the answer; 0: none. `known`: names that the sender knew on another
    worker.
    """

    number: Number
    worker: WorkerId
    block_size: Annotated[int, Meta(ge=0, le=65_536)]
    block_tokens: Annotated[float, Meta(gt=0, le=1e6)]
    names: Annotated[bytes, Meta(max_length=MAX_NAMES * _NAME_BYTES)]
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    known: Annotated[int, Meta(ge=0, le=MAX_NAMES)] = 0


class WorkerPrompts(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Prompts in flight on a worker by hash (load.hash_parts), with their tokens; 0: no longer."""

    worker: WorkerId
    names: Annotated[bytes, Meta(max_length=MAX_PROMPTS * _NAME_BYTES)]
    tokens: Annotated[list[Count], Meta(max_length=MAX_PROMPTS)]


class CallerLoad(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """In-flight and queued requests of a key; "": of all keys."""

    key: Annotated[str, Meta(max_length=128)]
    in_flight: Count
    waiting: Count


class BudgetUse(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Tokens of a key's budget: used since the router's start, reserved by its requests in flight,
    and left to all routers in its view.
    """

    key: Annotated[str, Meta(min_length=1, max_length=128)]
    used: Annotated[int, Meta(ge=0, le=10**15)]
    reserved: Annotated[int, Meta(ge=0, le=10**15)]
    left: Tokens


class TtftSample(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Time to first token of a request, with the tokens to compute when it joined (fleet.pace)."""

    worker: WorkerId
    work: Count
    ttft_s: Annotated[float, Meta(ge=0, le=1e6)]


class CircuitChange(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    worker: WorkerId
    opened: bool


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """Changes at one router. `complete`: `loads`, `prompts` and `callers` list everything that is
    not zero.
    `dialect`: digest of what its hashes depend on; placements of others are ignored. `asks`: the
    router whose memory is requested.
    """

    version: Literal[4]
    router: RouterId
    sequence: Number
    dialect: Number
    complete: bool
    loads: Annotated[list[WorkerLoad], Meta(max_length=MAX_WORKERS)] = []
    placed: Annotated[list[Placement], Meta(max_length=MAX_PLACEMENTS)] = []
    answered: Annotated[list[Number], Meta(max_length=MAX_NUMBERS)] = []
    failed: Annotated[list[Number], Meta(max_length=MAX_NUMBERS)] = []
    circuits: Annotated[list[CircuitChange], Meta(max_length=MAX_WORKERS)] = []
    callers: Annotated[list[CallerLoad], Meta(max_length=MAX_CALLERS)] = []
    asks: RouterIdOrEmpty = ""
    age_s: Count = 0
    leaving: bool = False
    budgets: Annotated[list[BudgetUse], Meta(max_length=MAX_BUDGETS)] = []
    prompts: Annotated[list[WorkerPrompts], Meta(max_length=MAX_WORKERS)] = []
    times: Annotated[list[TtftSample], Meta(max_length=MAX_TIMES)] = []


class _Start(msgspec.Struct, array_like=True, frozen=True):
    """Beginning of a batch of any version."""

    version: int


_decoder = msgspec.msgpack.Decoder(Batch)
_start = msgspec.msgpack.Decoder(_Start)
_encoder = msgspec.msgpack.Encoder()


def _digest(body: bytes | memoryview, key: bytes) -> bytes:
    return hashlib.blake2b(
        body, digest_size=_DIGEST_BYTES, key=key[:64], person=b"router batch"
    ).digest()


def encode(batch: Batch, key: bytes) -> bytes:
    body = _encoder.encode(batch)
    return _digest(body, key) + body


def decode(message: bytes, key: bytes) -> Batch:
    """Raise MessageError for a message that is too large, not from a router with this key, of
    another version, or invalid.
    """
    if len(message) > MAX_BYTES:
        raise MessageError("too_large")
    body = memoryview(message)[_DIGEST_BYTES:]
    if not hmac.compare_digest(_digest(body, key), message[:_DIGEST_BYTES]):
        raise MessageError("not_authentic")
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, ValueError):
        raise MessageError(_unreadable(body)) from None


def _unreadable(body: memoryview) -> str:
    try:
        return "invalid" if _start.decode(body).version == VERSION else "other_version"
    except (msgspec.DecodeError, ValueError):
        return "invalid"


_SENDER_AT = _DIGEST_BYTES + 3  # behind the length of the batch: more than 15 fields


def sender_mark(router_id: str) -> bytes:
    """Return what `is_from` compares."""
    return _encoder.encode(VERSION) + _encoder.encode(router_id)


def is_from(message: bytes, mark: bytes) -> bool:
    """Return True if the message states that router as its sender; its digest is not checked."""
    return message.startswith(mark, _SENDER_AT)


def pack_names(names: Sequence[int]) -> bytes:
    return array("Q", names[:MAX_NAMES]).tobytes()


def unpack_names(data: bytes) -> array[int]:
    """Raise MessageError for a truncated name."""
    if len(data) % _NAME_BYTES:
        raise MessageError("invalid")
    return array("Q", data)


def dialect(*parts: object) -> int:
    """Return a digest of what a router's hashes depend on, besides the key."""
    text = "\0".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")
