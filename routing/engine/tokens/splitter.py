"""Where a text may be cut so that its parts, tokenized alone, are the whole text tokenized.

Promises that joining the ids of the parts gives the ids of the whole, for the tokenizers it says
yes to, and no cuts for all others. Must not know a cache or what the parts are for.

Theory. A tokenizer first finds its added tokens in the text (those which are not `normalized`:
leftmost, then longest), and everything after that (normalizing, splitting into words, merging)
happens to each stretch between them by itself. So a text can be cut before an added token, as
long as the token's rules do not look across the cut: it must not strip white space beside it, and
neither it nor a neighbour may see a letter on one side of the cut and nothing on the other. Such
tokens are called safe here: every chat template's turn marks are.

A document of 60,000 tokens has no such token inside. But the usual byte-level tokenizers split
words by a known pattern in which a space between a word and a following word always begins a new
one and nothing looks behind it: there a text may be cut too. That is decided by the pattern's
exact text, never by trying.

Cuts are found from the beginning, so texts which begin alike are cut alike.
"""

from __future__ import annotations

import re
from typing import Any

from routing.engine.tokens.tokenizer import AddedToken, Json, LocalTokenizer

SMALL = 256  # characters: shorter stretches are kept together, one look-up for several messages
LARGE = 1024  # characters: from here on a text is cut at a space, too
_TRIES = 64  # spaces looked at before a text counts as one which is not words

_LEFT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;:!?)")
_RIGHT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

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
# Patterns in which a space after a word and before a word always begins a match.
_WORD_PATTERNS = frozenset(
    (
        # Llama 3 and others after cl100k, then Qwen's
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
        # GPT-2, also what ByteLevel's use_regex means
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    )
)


def _steps(part: Any, inner: str) -> list[Json]:
    """A normalizer or pre-tokenizer as the list of what it does."""
    if part is None:
        return []
    if part.get("type") == "Sequence":
        return [step for item in part[inner] for step in _steps(item, inner)]
    return [part]


def _can_cut(definition: Json) -> bool:
    """Is every step one which is known to treat each stretch by itself?"""
    model = definition.get("model") or {}
    normalizers = _steps(definition.get("normalizer"), "normalizers")
    splitters = _steps(definition.get("pre_tokenizer"), "pretokenizers")
    return (
        model.get("type") in _MODELS
        and not model.get("dropout")  # chance
        and all(step.get("type") in _NORMALIZERS for step in normalizers)
        and all(step.get("type") in _SPLITTERS for step in splitters)
    )


def _is_safe(token: AddedToken) -> bool:
    """May the text be cut before it?"""
    edges = (token.content[:1], token.content[-1:])
    return (
        bool(token.content)
        and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        and not any(edge.isspace() or edge.isalnum() or edge == "_" for edge in edges)
    )


def _can_cut_at_spaces(definition: Json, added: list[AddedToken]) -> bool:
    normalizers = _steps(definition.get("normalizer"), "normalizers")
    if any(step.get("type") != "NFC" for step in normalizers):
        return False
    for token in added:
        if any(character.isspace() for character in token.content):
            return False
        if token.rstrip and token.content[-1:] in _LEFT:
            return False
        if token.lstrip and token.content[:1] in _RIGHT:
            return False
    return _are_words(_steps(definition.get("pre_tokenizer"), "pretokenizers"))


def _are_words(splitters: list[Json]) -> bool:
    found = False
    for step in splitters:
        kind = step.get("type")
        if kind == "ByteLevel":
            if step.get("add_prefix_space"):
                return False
            found = found or step.get("use_regex", True)
        elif kind == "Split":
            pattern = (step.get("pattern") or {}).get("Regex")
            if pattern not in _WORD_PATTERNS or step.get("behavior") != "Isolated":
                return False
            if step.get("invert"):
                return False
            found = True
        elif kind != "Digits":
            return False
    return found


class Splitter:
    """Cuts texts for one tokenizer, or not at all without one."""

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
        # The longest first: an alternation takes the first which fits, the library the longest.
        contents = sorted({token.content for token in raw}, key=len, reverse=True)
        if self._safe:
            self._marks = re.compile("|".join(map(re.escape, contents)))

    def split(self, text: str) -> list[str]:
        """The parts, in order; together they are the text."""
        if not self._cuts_at_all:
            return [text] if text else []
        parts: list[str] = []
        start = 0
        for mark in self._cuts(text):
            # What lies between two marks may itself be long.
            start = self._words(text, start, mark, parts)
            if mark - start >= SMALL:
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
        return [found.start() for found in self._marks.finditer(text) if found[0] in safe]

    def _words(self, text: str, start: int, end: int, parts: list[str]) -> int:
        """Cut at spaces while there is much left before `end`; where the next part starts."""
        while self._at_spaces and end - start > LARGE:
            cut = _next_word(text, start + LARGE, end)
            if cut < 0:
                break
            parts.append(text[start:cut])
            start = cut
        return start


def _next_word(text: str, at: int, end: int) -> int:
    for _ in range(_TRIES):
        at = text.find(" ", at, end)
        if at < 0:
            return -1
        if text[at - 1] in _LEFT and text[at + 1 : at + 2] in _RIGHT:
            return at
        at += 1
    return -1
