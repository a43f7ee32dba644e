"""Recorded pieces: what a router encodes is read again, across pieces, streams and routers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from dashboards.insight.traces.records import read_streams
from dashboards.insight.traces.trace import Trace, TraceError
from routing.engine.config import RecordingConfig
from routing.engine.observe.decisions import Decision, MissSplit
from routing.engine.observe.traffic import CacheScopes, PieceBuffer, TrafficEncoder
from tests.support.waiting import until

SHARED = CacheScopes()
HOUR = 4_000_000_000 - 4_000_000_000 % 3600  # in 2096: too old for storage once it has passed


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8, key=b"key").hexdigest()


def chain(text: bytes, blocks: int) -> list[int]:
    return [
        int.from_bytes(hashlib.blake2b(text[: n + 1], digest_size=8).digest(), "big")
        for n in range(blocks)
    ]


class RecordedRouter:
    """Encodes requests as a router does."""

    def __init__(self, scopes: CacheScopes = SHARED, **limits: Any) -> None:
        self.pieces = PieceBuffer()
        config = RecordingConfig(True, **limits)
        self.encoder = TrafficEncoder(self.pieces, config, 256, digest, scopes)

    def add(self, at: float, blocks: list[int], tokens: int, **values: Any) -> None:
        decision = Decision("d", HOUR + at, "prefixaware")
        decision.status, decision.duration_s = 200, 0.5
        decision.prompt_tokens = tokens
        for name, value in values.items():
            setattr(decision, name, value)
        self.encoder.work([(decision, blocks)])

    def close(self) -> list[bytes]:
        self.encoder.work([(None, ())])
        self.encoder.stop()
        until(lambda: self.encoder.ended, what="the recording thread ends")
        return [base64.b64decode(piece.data) for piece in self.pieces.after(0)]


def read(*routers: list[bytes]) -> Trace:
    return read_streams(routers, HOUR, HOUR + 3600)


def test_facts_of_a_request_are_read_again() -> None:
    router = RecordedRouter()
    misses = MissSplit({"first_seen": 3, "evicted_l1": 40})
    router.add(
        2.25, chain(b"abcd", 4), 290, session=b"me", chosen="w1", ttft_s=0.2, duration_s=1.5,
        cached_tokens=64, completion_tokens=9, status=499, misses=misses, strategy="kvaware",
    )  # fmt: skip
    trace = read(router.close())
    (request,) = trace.requests
    assert trace.block_tokens == 16
    assert trace.began_at == HOUR
    assert request.session == digest(b"session:me")
    assert (request.arrived_s, request.prompt_tokens, request.output_tokens) == (2.25, 290, 9)
    assert (request.ttft_s, request.duration_s, request.cached_tokens) == (0.2, 1.5, 64)
    assert (request.status, request.worker, request.cause) == (499, "w1", "evicted_l1")
    assert request.strategy == "kvaware"
    assert len(request.blocks) == 19


def test_keys_and_groups_are_read_as_hashes() -> None:
    router = RecordedRouter(CacheScopes("group", {"k1": "g1"}))
    router.add(0, [], 10, key_id="k1")
    router.add(1, [], 10, key_id="k2")
    router.add(2, [], 10)
    pieces = router.close()
    trace = read(pieces)
    found = [(one.key, one.key_group) for one in trace.requests]
    k1, g1 = digest(b"key:k1"), digest(b"group:g1")
    assert found == [(k1, g1), (digest(b"key:k2"), ""), ("", "")]
    assert trace.isolation == "group"
    text = b"".join(gzip.decompress(piece) for piece in pieces)
    assert b"k1" not in text and b"g1" not in text


def test_the_strictest_isolation_of_a_period_counts() -> None:
    routers = [RecordedRouter(CacheScopes(one)) for one in ("shared", "key", "group")]
    for at, router in enumerate(routers):
        router.add(at, [], 10)
    assert read(*(router.close() for router in routers)).isolation == "key"
    assert read().isolation == ""


def test_pieces_without_strategies_are_read() -> None:
    router = RecordedRouter(CacheScopes("group", {"k1": "g1"}))
    router.add(0, [], 10, key_id="k1")
    head, row = map(orjson.loads, gzip.decompress(router.close()[0]).splitlines())
    old = [orjson.dumps({**head, "version": 2}), orjson.dumps(row[:15])]
    (request,) = read([gzip.compress(b"\n".join(old))]).requests
    assert (request.key_group, request.strategy) == (digest(b"group:g1"), "")


def test_pieces_of_the_earlier_version_are_read_without_keys() -> None:
    router = RecordedRouter(CacheScopes("shared"))
    router.add(0, chain(b"abcd", 4), 290, key_id="k1")
    (piece,) = router.close()
    head, row = map(orjson.loads, gzip.decompress(piece).splitlines())
    del head["isolation"]
    old = [orjson.dumps({**head, "version": 1}), orjson.dumps(row[:13])]
    trace = read([gzip.compress(b"\n".join(old))])
    (request,) = trace.requests
    assert (request.prompt_tokens, request.key, trace.isolation) == (290, "", "")
    assert read([piece], [gzip.compress(b"\n".join(old))]).isolation == ""
    mixed = [orjson.dumps(head | {"version": 1}), orjson.dumps(row)]
    with pytest.raises(TraceError, match="damaged"):
        read([gzip.compress(b"\n".join(mixed))])


def test_prompts_share_blocks_as_far_as_their_prefix() -> None:
    one, other = RecordedRouter(), RecordedRouter()
    one.add(0, chain(b"x" * 20, 20), 20 * 16 + 8)
    one.add(1, chain(b"x" * 10 + b"y" * 10, 20), 20 * 16 + 8)
    other.add(2, chain(b"x" * 20 + b"z" * 20, 40), 40 * 16 + 8)  # another router, grown
    other.add(3, chain(b"x" * 10 + b"y" * 10, 20), 20 * 16 + 8)
    a, b, c, d = (request.blocks for request in read(one.close(), other.close()).requests)
    assert [len(blocks) for blocks in (a, b, c, d)] == [21, 21, 41, 21]
    assert b[:10] == a[:10]
    assert not set(b[10:]) & set(a)
    assert c[:20] == a[:20]
    assert c[20] != a[20]  # the last block of the first is partial
    assert d[:20] == b[:20]


@pytest.mark.parametrize(("cached", "shared"), [(None, 3), (0, 3), (64, 4), (96, 6), (256, 3)])
def test_prompts_share_what_the_engine_reused_of_a_hashed_block(
    cached: int | None, shared: int
) -> None:
    """The common prefix ends within the second hashed block of about 52 tokens."""
    one = RecordedRouter()
    one.add(0, chain(b"sabcd", 5), 290)
    one.add(1, chain(b"sxyzv", 5), 290, cached_tokens=cached)
    a, b = (request.blocks for request in read(one.close()).requests)
    assert b[:shared] == a[:shared]
    assert not set(b[shared:]) & set(a), "256 tokens cannot be of the block that differs"


def test_a_turn_shares_the_answer_before_it_as_far_as_the_engine_reused_it() -> None:
    """290 tokens and an answer of 64 in whole blocks of 32: up to 352 can be cached."""
    router = RecordedRouter()
    router.add(0, chain(b"sabcd", 5), 290, completion_tokens=64)
    router.add(1, chain(b"sabcdefg", 8), 460, cached_tokens=352)
    router.add(2, chain(b"sabcdxyz", 8), 460, cached_tokens=1000)  # more than there was
    first, turn, other = read(router.close()).requests
    there = first.blocks + first.answer_blocks
    assert (len(first.blocks), len(there)) == (19, 23)
    assert turn.blocks[:22] == there[:22]
    assert turn.blocks[22] not in there
    assert other.blocks[:22] == there[:22]
    assert not set(other.blocks[23:]) & {*there, *turn.blocks}


def test_what_a_miss_would_have_reused_is_the_mean_of_earlier_requests() -> None:
    """Hashed blocks of 64 tokens; 24 or 56 more are reused where a prompt goes on, 8 elsewhere."""
    router = RecordedRouter()
    router.add(0, chain(b"sa", 2), 160)
    router.add(1, chain(b"sabc", 4), 288, cached_tokens=128 + 24)
    router.add(2, chain(b"sabcde", 6), 416, cached_tokens=256 + 56)
    router.add(3, chain(b"sx", 2), 160, cached_tokens=64 + 8)
    router.add(4, chain(b"sxyz", 4), 288, cached_tokens=0)  # goes on after 128
    router.add(5, chain(b"sw", 2), 160, cached_tokens=0)
    found = [request.blocks for request in read(router.close()).requests]
    assert shared(found[4], found[3]) == (128 + 40) // 16
    assert shared(found[5], found[0]) == (64 + 8) // 16


def test_long_prompts_have_large_blocks() -> None:
    router = RecordedRouter()
    router.add(0, chain(b"x" * 60, 60), 60 * 64 + 32)
    router.add(1, chain(b"x" * 30 + b"y" * 30, 60), 60 * 64 + 32)
    router.add(2, chain(b"x" * 30 + b"y" * 10, 40), 40 * 64 + 32, cached_tokens=40 * 64 + 16)
    trace = read(router.close())
    one, other, third = (request.blocks for request in trace.requests)
    assert trace.block_tokens == 64
    assert [len(one), len(other), len(third)] == [61, 61, 41]
    assert (shared(one, other), shared(other, third)) == (30, 40)
    assert not set(other[30:]) & set(one)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))


def test_sharing_follows_the_prefixes_of_any_tree_of_prompts() -> None:
    chance = random.Random(3)
    texts = [b""]
    routers = [RecordedRouter(hour_bytes=2**20) for _ in range(3)]
    expected = []
    for at in range(120):
        text = chance.choice(texts)
        text = text[: chance.randint(0, len(text))] + chance.randbytes(chance.randint(1, 30))
        texts.append(text)
        tokens = len(text) * 16 + 8
        chance.choice(routers).add(at, chain(text, len(text)), tokens)
        expected.append(text)
        if not at % 7:
            routers[0].encoder.work([(None, ())])
    found = [request.blocks for request in read(*(r.close() for r in routers)).requests]
    assert [len(blocks) for blocks in found] == [len(text) + 1 for text in expected]
    for one, blocks in zip(expected, found, strict=True):
        for other, others in zip(expected, found, strict=True):
            if one is other:
                continue
            same = shared(one, other)
            assert blocks[:same] == others[:same]
            assert not set(blocks[same:]) & set(others)


def test_growing_sessions_stay_small() -> None:
    router = RecordedRouter()
    text = random.Random(1).randbytes(2000)
    for turn in range(100):
        count = 1600 + 4 * turn
        router.add(turn, chain(text[:count], count), 64 * count)
    assert sum(map(len, router.close())) < 25_000  # 13 KB of hashes once, 100 bytes a turn


def test_what_follows_a_missing_piece_is_left_out() -> None:
    router = RecordedRouter()
    for at in range(3):
        router.add(at, chain(bytes([at]) * 5, 5), 330)
        router.encoder.work([(None, ())])
    pieces = router.close()
    assert len(pieces) == 3
    assert len(read(pieces).requests) == 3
    assert len(read([pieces[0], pieces[2]]).requests) == 1
    assert len(read(pieces[1:]).requests) == 0


def test_requests_of_other_hours_are_left_out() -> None:
    router = RecordedRouter()
    router.add(-1, [], 10)
    router.add(3599, [], 10)
    router.add(3600, [], 10)
    (request,) = read(router.close()).requests
    assert request.arrived_s == 3599
    assert len(request.blocks) == 1


@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x1f\x8b\x08"])
def test_damaged_data_is_reported(data: bytes) -> None:
    with pytest.raises(TraceError, match="Delete its hour"):
        read([data])


def test_a_prompt_shorter_than_its_known_prefix_keeps_its_length() -> None:
    router = RecordedRouter()
    text = b"q" * 30
    router.add(0, chain(text, 30), 30 * 64)
    router.add(1, chain(text + b"r" * 9, 39), 10 * 64)  # an estimate
    router.add(2, chain(text + b"r" * 9 + b"s", 40), 50 * 64)
    counts = [len(request.blocks) for request in read(router.close()).requests]
    assert counts == [120, 40, 200]


def test_limits_count_lost_requests() -> None:
    router = RecordedRouter(hour_bytes=65_536)
    chance = random.Random(5)
    for at in range(40):
        router.add(at, [chance.getrandbits(64) for _ in range(2000)], 128_000)
        router.encoder.work([(None, ())])
    recorded = len(read(router.close()).requests)
    assert 2 < recorded < 12
    assert router.encoder.uncounted() == 40 - recorded
    router = RecordedRouter(buffer_bytes=65_536)
    for at in range(40):
        router.add(at, [chance.getrandbits(64) for _ in range(2000)], 128_000)
        router.encoder.work([(None, ())])
    held = router.pieces.after(0)
    assert len(held) < 12
    router.pieces.after(held[-1].number)  # collected
    router.add(50, [], 10)
    router.close()
    (last,) = router.pieces.after(0)
    assert last.lost == 40 - len(held)
