"""A text tokenized in parts equals the text tokenized whole."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.engine.tokens import splitter as tokens_splitter
from routing.engine.tokens.splitter import Splitter
from routing.engine.tokens.tokenizer import LocalTokenizer, load_model_files
from tests.routing.engine.tokens import tokenizers_zoo as zoo
from tests.support.vllm.installation import model_path

KINDS = [*zoo.MAKERS, pytest.param("real", marks=pytest.mark.vllm)]


@cache
def tokenizer(name: str) -> LocalTokenizer:
    return load_model_files(model_path()).tokenizer if name == "real" else zoo.tokenizer(name)


@cache
def splitter(name: str) -> Splitter:
    return Splitter(tokenizer(name))


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short texts are cut in all the ways long ones are."""
    monkeypatch.setattr("routing.engine.tokens.splitter.MIN_PART_CHARS", 3)
    monkeypatch.setattr("routing.engine.tokens.splitter.LONG_TEXT_CHARS", 8)


CONTENTS = [
    *zoo.MARKS,
    *(token.content for token in zoo.AWKWARD),
    *("<|im_", "<|", "|>", "im_start", "<", ">", "</", "think>", "<|im_start", "start|>"),
    *("<filename>", "<repo_name>", "<file_sep>", "file"),
]
WORDS = [
    *(
        " the",
        " a",
        "it's",
        "don't",
        " 'll",
        " I'D",
        "fox",
        "dog",
        " 1234",
        "5",
        "a1b",
        "!?",
        " ...",
        ".",
    ),
    *("\n", "\n\n", " \n ", "\t", "  ", "   ", "\r\n", "\u00a0", "\u3000", "\u200b", "\x00", " x"),
    *(
        "é",
        "e\u0301",
        " \u0301",
        "ﬁ",
        "你好",
        " 世界",
        "👩‍👩‍👧",
        "ǅ",
        " Ω",
        "\u1e9b\u0323",
        "\u0345",
    ),
    *("{", '"', " {}", "_", " _a", "-", " -", "(", " (b", ") c", "] d", "? e", "; f", "▁", " ▁g"),
]
TEXTS = st.lists(
    st.one_of(st.sampled_from(CONTENTS), st.sampled_from(WORDS), st.text(max_size=4)), max_size=24
).map("".join)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=120, deadline=None)
@given(text=TEXTS)
def test_parts_tokenized_separately_equal_the_whole(name: str, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()  # no lone surrogates: JSON bodies have none
    parts = splitter(name).split(text)
    assert "".join(parts) == text
    joined = [number for ids in tokenizer(name).encode_all(parts) for number in ids]
    assert joined == tokenizer(name).encode(text).tolist()


@pytest.mark.parametrize("name", KINDS)
def test_long_texts_are_split_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert tokens_splitter.LONG_TEXT_CHARS > 100
    chance = random.Random(5)
    for words in (WORDS, ["one ", "two, ", "three. "], [*WORDS, *CONTENTS], ["x", "y"]):
        text = "".join(chance.choices(words, k=5000))
        joined = [ids for part in tokenizer(name).encode_all(parts(name, text)) for ids in part]
        assert joined == tokenizer(name).encode(text).tolist()


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=50, deadline=None)
@given(text=TEXTS)
def test_surrounding_tokens_are_constant(name: str, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    used = tokenizer(name)
    if "post_processor" not in used.doubts:
        assert used.encode_whole(text) == used.prefix + used.encode(text) + used.suffix


@pytest.mark.parametrize("name", ["gpt2", "llama3 nfc", "first"])
@settings(max_examples=50, deadline=None)
@given(text=TEXTS, more=TEXTS)
def test_equal_beginnings_are_split_alike(name: str, text: str, more: str) -> None:
    """All parts but the last, and those which a mark across the border may change."""
    short, long = splitter(name).split(text), splitter(name).split(text + more)
    longest = max(map(len, CONTENTS))
    kept = 0
    for first, second in zip(short, long, strict=False):
        if first != second:
            break
        kept += len(first)
    last_two = sum(map(len, short[-2:]))
    assert kept >= len(text) - last_two - longest


def parts(name: str, text: str) -> list[str]:
    return splitter(name).split(text)


CHAT = "<|im_start|>user\nHello there<|im_end|>\n<|im_start|>assistant\nHi"


def test_chat_is_split_at_its_special_tokens() -> None:
    assert parts("first", CHAT) == [
        "<|im_start|>user\nHello there",
        "<|im_end|>\n",
        "<|im_start|>assistant\nHi",
    ]


def test_words_are_split_where_the_pattern_is_known() -> None:
    words = "one two three four five six seven"
    assert len(parts("gpt2", words)) > 1
    assert len(parts("llama3", words)) > 1
    assert len(parts("llama3 nfc", words)) > 1
    assert len(parts("gpt2 digits", words)) > 1
    assert len(parts("gpt2 half", words)) > 1
    for name in ("gpt2 prefix", "gpt2 strip", "gpt2 awkward", "gpt2 after", "gpt2 before"):
        assert parts(name, words) == [words]
    for name in ("llama3 nfkc", "first", "prepend", "unigram", "bert"):
        assert parts(name, words) == [words]


def test_no_split_between_non_words() -> None:
    for text in (
        "one - two - three - four",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "あ い う え お か き く",
    ):
        assert parts("gpt2", text) == [text]


@pytest.mark.parametrize(
    "content", ["<mask>", "<gap>", "<both>", "<word>", "tool", " <lead>", "<trail> "]
)
def test_no_split_at_a_token_with_lookaround(content: str) -> None:
    assert parts("first awkward", f"aaaaaa{content}bbbbbb") == [f"aaaaaa{content}bbbbbb"]


def test_longest_of_two_tokens_is_used() -> None:
    assert parts("first awkward", "aaaa<|im_end|>xbbbb") == [
        "aaaa<|im_end|>xbbbb"
    ]  # ends in a letter
    assert parts("first awkward", "aaaa<|im_end|>bbbb") == ["aaaa", "<|im_end|>bbbb"]


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
        {"pre_tokenizer": {"type": "UnicodeScripts"}},
        {"model": {"type": "Novel"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
    ],
)
def test_unknown_tokenizers_are_not_split(change: dict[str, object]) -> None:
    class Odd:
        added = tokenizer("gpt2").added
        definition = {**tokenizer("gpt2").definition, **change}

    assert Splitter(Odd).split(CHAT) == [CHAT]  # type: ignore[arg-type]
