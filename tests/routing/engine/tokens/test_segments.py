"""Cached ids and hashes equal computed ones, within the byte limit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.kv import chain
from routing.engine.tokens.segments import SegmentCache, TokenSequence
from routing.engine.tokens.splitter import Splitter
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.routing.engine.tokens.test_splitter import TEXTS

ROOM = 64 * 1024 * 1024


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routing.engine.tokens.splitter.MIN_PART_CHARS", 3)
    monkeypatch.setattr("routing.engine.tokens.splitter.LONG_TEXT_CHARS", 8)


class Reader:
    """The cache and the tokenizer, used as the service uses them."""

    def __init__(self, limit: int = ROOM) -> None:
        self.tokenizer = zoo.tokenizer("gpt2")
        self.cache = SegmentCache(Splitter(self.tokenizer), limit)
        self.encoded: list[str] = []

    def read(self, text: str) -> TokenSequence:
        found = self.cache.look_up(text)
        self.encoded = found.missing
        return self.cache.put_together(found, self.tokenizer.encode_all(found.missing))

    def check(self, text: str, keys: list[tuple[int, int]]) -> None:
        tokens = self.read(text)
        ids = self.tokenizer.encode(text).tolist()
        assert tokens.ids == ids
        assert tokens.count == len(ids)
        for root, block in keys:
            assert tokens.chain(root, block) == chain.extend_chain(
                root, chain.pack_tokens(ids), block
            )


KEYS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=6)


@settings(max_examples=80, deadline=None)
@given(
    turns=st.lists(st.tuples(TEXTS, KEYS, st.booleans()), max_size=8),
    limit=st.sampled_from([0, 1000, 3000, 20_000, ROOM]),
)
def test_turns_of_chats_in_any_order(
    turns: list[tuple[str, list[tuple[int, int]], bool]], limit: int
) -> None:
    reader = Reader(limit)
    so_far = ""
    for text, keys, goes_on in turns:
        text = text.encode("utf-8", "ignore").decode()
        so_far = so_far + text if goes_on else text
        reader.check(so_far, keys)
        assert 0 <= reader.cache.bytes <= limit
        assert bool(reader.cache.bytes) == bool(len(reader.cache))


TURN = "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\n"
NEXT = "Good day<|im_end|>\n<|im_start|>user\nWell?<|im_end|>\n<|im_start|>assistant\n"


def test_second_turn_tokenizes_only_new_text() -> None:
    reader = Reader()
    reader.read(TURN)
    assert "".join(reader.encoded) == TURN
    reader.read(TURN)
    assert reader.encoded == []
    reader.read(TURN + NEXT)
    assert "".join(reader.encoded) == "<|im_start|>assistant\n" + NEXT


def test_second_turn_hashes_only_new_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    hashed: list[int] = []
    real = chain.extend_chain

    def spy(parent: int, data: bytes | memoryview, block_tokens: int) -> list[int]:
        hashed.append(len(data) // 4)
        return real(parent, data, block_tokens)

    monkeypatch.setattr("routing.engine.kv.chain.extend_chain", spy)
    first = reader.read(TURN)
    first.chain(7, 4)
    reader.read(TURN).chain(7, 4)
    assert hashed == [first.count]
    second = reader.read(TURN + NEXT)
    second.chain(7, 4)
    new = len(reader.tokenizer.encode("<|im_start|>assistant\n" + NEXT))
    assert hashed[1] <= new + 4
    assert second.chain(7, 4) == real(7, second.data, 4)
    assert second.chain(8, 4) == real(8, second.data, 4)


def test_oldest_entries_are_evicted_first_and_chats_lose_their_end() -> None:
    reader = Reader()
    one, two = TURN + "one" + NEXT, TURN + "two" + NEXT
    reader.read(one)
    reader.read(two)
    reader.read(one)
    small = SegmentCache(Splitter(reader.tokenizer), reader.cache.bytes - 1)
    reader.cache = small
    reader.read(one)
    reader.read(two)
    reader.read(one)  # two is older now, and its last part goes
    reader.read(two)
    assert len(reader.encoded) == 1


def test_eviction_during_tokenizing_is_harmless() -> None:
    reader = Reader()
    reader.read(TURN)
    found = reader.cache.look_up(TURN + NEXT)
    tokens = reader.read(TURN)
    reader.cache._limit = 0
    reader.cache._shrink()
    reader.cache._limit = ROOM
    assert tokens.chain(1, 4) == chain.extend_chain(1, tokens.data, 4)
    together = reader.cache.put_together(found, reader.tokenizer.encode_all(found.missing))
    assert together.ids == reader.tokenizer.encode(TURN + NEXT).tolist()
    assert reader.read(TURN + NEXT).ids == together.ids


def test_concurrent_tokenizing_of_one_prompt() -> None:
    reader = Reader()
    found = [reader.cache.look_up(TURN) for _ in range(2)]
    ids = reader.tokenizer.encode_all(found[0].missing)
    first = reader.cache.put_together(found[0], ids)
    size = reader.cache.bytes
    assert reader.cache.put_together(found[1], ids).ids == first.ids
    assert reader.cache.bytes == size


def test_many_salts_do_not_fill_the_cache() -> None:
    reader = Reader()
    tokens = reader.read(TURN)
    for root in range(1000):
        tokens.chain(root, 1)
    assert reader.cache.bytes < 20_000
    reader.cache._limit = 0
    reader.cache._shrink()
    assert reader.cache.bytes == 0


def test_tokenizing_without_a_cache() -> None:
    tokens = TokenSequence(chain.pack_tokens([1, 2, 3, 4, 5]))
    assert (tokens.ids, tokens.count) == ([1, 2, 3, 4, 5], 5)
    assert tokens.chain(9, 2) == chain.extend_chain(9, tokens.data, 2)
