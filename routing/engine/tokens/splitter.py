"""Cut points at which a text's parts tokenize independently; no cuts if that is uncertain.

Text may be cut before an added token whose rules do not look across the cut (no whitespace
stripping, no single-word matching), such as chat turn marks. Long texts are cut at a space between
words, where known byte-level patterns always start a new match. Cuts are found from the start, so
that common prefixes are cut alike.
"""

from __future__ import annotations

import re
from typing import Any

from routing.engine.tokens.tokenizer import AddedToken, Json, LocalTokenizer

MIN_PART_CHARS = 256  # chars: merge shorter stretches into one lookup
LONG_TEXT_CHARS = 1024  # chars: cut longer texts at spaces
_MAX_SPACES_TRIED = 64  # spaces tried before giving up

_BEFORE_SPACE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?)")
_AFTER_SPACE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

_NORMALIZERS = frozenset(
    ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Replace", "Prepend")
)
_SPLITTERS = frozenset(
    (
        *("ByteLevel", "Split", "Metaspace", "Digits", "Punctuation", "Whitespace"),
        *("WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit"),
    )
)
_MODELS = frozenset(("BPE", "WordPiece", "Unigram", "WordLevel"))
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Patterns with a match boundary at a space between words.
_WORD_PATTERNS = frozenset(
    (
        # Llama 3 and others after cl100k; Qwen
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BREAKS}",
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BREAKS}",
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BREAKS}",
        # o200k
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BREAKS}",
        # GPT-2; ByteLevel's use_regex
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    )
)


def _list_steps(part: Any, inner: str) -> list[Json]:
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for item in part[inner] for step in _list_steps(item, inner)]
    return [part]


def _can_cut(definition: Json) -> bool:
    """Return True if every step treats stretches independently."""
    model = definition.get("model") or {}
    normalizers = _list_steps(definition.get("normalizer"), "normalizers")
    splitters = _list_steps(definition.get("pre_tokenizer"), "pretokenizers")
    return (
        model.get("type") in _MODELS
        and not model.get("dropout")  # random
        and all(step.get("type") in _NORMALIZERS for step in normalizers)
        and all(step.get("type") in _SPLITTERS for step in splitters)
    )


def _is_safe(token: AddedToken) -> bool:
    """Return True if the text may be cut before the token."""
    edges = (token.content[:1], token.content[-1:])
    return (
        bool(token.content)
        and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        and not any(edge.isspace() or edge.isalnum() or edge == "_" for edge in edges)
    )


def _can_cut_at_spaces(definition: Json, added: list[AddedToken]) -> bool:
    normalizers = _list_steps(definition.get("normalizer"), "normalizers")
    if any(step.get("type") != "NFC" for step in normalizers):
        return False
    for token in added:
        if any(character.isspace() for character in token.content):
            return False
        if token.rstrip and token.content[-1:] in _BEFORE_SPACE:
            return False
        if token.lstrip and token.content[:1] in _AFTER_SPACE:
            return False
    return _are_words(_list_steps(definition.get("pre_tokenizer"), "pretokenizers"))


def _are_words(splitters: list[Json]) -> bool:
    uses_regex = False
    for step in splitters:
        kind = step.get("type")
        if kind == "ByteLevel":
            if step.get("add_prefix_space"):
                return False
            uses_regex = uses_regex or step.get("use_regex", True)
        elif kind == "Split":
            pattern = (step.get("pattern") or {}).get("Regex")
            if pattern not in _WORD_PATTERNS or step.get("behavior") != "Isolated":
                return False
            if step.get("invert"):
                return False
            uses_regex = True
        elif kind != "Digits":
            return False
    return uses_regex


class Splitter:
    """Text splitter of one tokenizer; no cuts without one."""

    def __init__(self, tokenizer: LocalTokenizer | None) -> None:
        self._safe: frozenset[str] = frozenset()
        self._at_spaces = False
        self._marks: re.Pattern[str] | None = None
        if tokenizer is not None:
            self._learn(tokenizer)
        self._cuts_at_all = self._at_spaces or self._marks is not None

    def _learn(self, tokenizer: LocalTokenizer) -> None:
        definition = tokenizer.definition
        if not _can_cut(definition):
            return
        raw = [token for token in tokenizer.added if not token.normalized and token.content]
        self._safe = frozenset(token.content for token in raw if _is_safe(token))
        self._at_spaces = _can_cut_at_spaces(definition, tokenizer.added)
        # Longest first: a regex alternation takes the first match, the library the longest.
        contents = sorted({token.content for token in raw}, key=len, reverse=True)
        if self._safe:
            self._marks = re.compile("|".join(map(re.escape, contents)))

    def split(self, text: str) -> list[str]:
        """Return the parts; joined they are the text."""
        if not self._cuts_at_all:
            return [text] if text else []
        parts: list[str] = []
        start = 0
        for mark in self._cuts(text):
            # The text between two marks may itself be long.
            start = self._words(text, start, mark, parts)
            if mark - start >= MIN_PART_CHARS:
                parts.append(text[start:mark])
                start = mark
        start = self._words(text, start, len(text), parts)
        if start < len(text):
            parts.append(text[start:])
        return parts

    def _cuts(self, text: str) -> list[int]:
        if self._marks is None:
            return []
        safe = self._safe
        return [mark.start() for mark in self._marks.finditer(text) if mark[0] in safe]

    def _words(self, text: str, start: int, end: int, parts: list[str]) -> int:
        """Cut at spaces; return where the next part starts."""
        while self._at_spaces and end - start > LONG_TEXT_CHARS:
            cut = _next_word(text, start + LONG_TEXT_CHARS, end)
            if cut < 0:
                break
            parts.append(text[start:cut])
            start = cut
        return start


def _next_word(text: str, at: int, end: int) -> int:
    for _ in range(_MAX_SPACES_TRIED):
        at = text.find(" ", at, end)
        if at < 0:
            return -1
        if text[at - 1] in _BEFORE_SPACE and text[at + 1 : at + 2] in _AFTER_SPACE:
            return at
        at += 1
    return -1
