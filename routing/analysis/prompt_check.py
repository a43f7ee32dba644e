"""Check prompts of one template for early changes that keep their common part from the cache.

Compares each prompt with the one before it by the code of the miss ledger. Pure; for texts that the
user gives, so that findings show what changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from routing.engine.misses import sketch
from routing.engine.misses.remedies import REMEDIES
from routing.engine.prompt import canonical

MAX_PROMPTS = 10_000
LEAST_TOKENS = 16  # a block of vLLM on GPUs
TOKEN_BYTES = 4  # English text with common tokenizers
_EXCERPT = 60
_WORDS = re.compile(rb"[\w.+-]+")


class PromptError(ValueError):
    """A prompt that cannot be read; the text names it and the remedy."""


@dataclass(frozen=True, slots=True)
class CheckedPrompt:
    """Prompt as the router reads it. `tools`: as sent, since templates render their keys in this
    order.
    """

    data: bytes
    sketch: sketch.PromptSketch
    pieces: list[bytes]
    tools: bytes


@dataclass(frozen=True, slots=True)
class PromptFinding:
    """An early change between two prompts, numbered from 1. `offset`: its first byte; `character`:
    its first character within `part`; `stable_tokens`: estimate of the repeated part behind it;
    `count`: pairs with the same cause and part.
    """

    pair: tuple[int, int]
    cause: str
    offset: int
    part: str
    character: int
    stable_tokens: int
    before: str = ""
    after: str = ""
    count: int = 1

    @property
    def remedy(self) -> str:
        return REMEDIES[self.cause]


def read_prompts(text: str) -> list[CheckedPrompt]:
    """Return the prompts of a JSON array or of JSON lines: texts, or bodies of requests. Raise
    PromptError.
    """
    entries = _entries(text)
    if len(entries) < 2:
        raise PromptError(f"{len(entries)} prompt found: give two or more of the same template.")
    if len(entries) > MAX_PROMPTS:
        raise PromptError(f"{len(entries)} prompts found: at most {MAX_PROMPTS} are compared.")
    return [read_prompt(entry, number) for number, entry in enumerate(entries, 1)]


def read_text(text: str, number: int = 1) -> CheckedPrompt:
    """Return the prompt of a request body, or of any other text. Raise PromptError."""
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        entry = text
    return read_prompt(entry if isinstance(entry, dict) else text, number)


def _entries(text: str) -> list[Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        lines = [
            (number, line_text)
            for number, line_text in enumerate(text.splitlines(), 1)
            if line_text.strip()
        ]
        out = []
        for number, line in lines:
            try:
                out.append(orjson.loads(line))
            except orjson.JSONDecodeError as error:
                raise PromptError(
                    f"Line {number} is not JSON: {error}. Give a JSON array, or one prompt or "
                    "request body per line."
                ) from None
        return out
    return document if isinstance(document, list) else [document]


def read_prompt(entry: Any, number: int = 1) -> CheckedPrompt:
    """Return the prompt of a text, a request body or a line of a batch file. Raise PromptError."""
    if isinstance(entry, str):
        entry = {"prompt": entry}
    if isinstance(entry, dict) and isinstance(entry.get("body"), dict):
        entry = entry["body"]  # a line of a batch file
    path = canonical.infer_path(entry) if isinstance(entry, dict) else None
    if path is None:
        raise PromptError(
            f"Prompt {number} is neither a text nor an object with messages, prompt or input."
        )
    model = entry.get("model")
    model = model if isinstance(model, str) else ""
    try:
        data, name, ids, _ = canonical.read(path, entry, model)
        tools = orjson.dumps(entry.get("tools"))
    except (TypeError, ValueError) as error:
        raise PromptError(f"Prompt {number} cannot be read: {error}.") from None
    if ids:
        raise PromptError(f"Prompt {number} has token IDs. Give its text.")
    layout, pieces = sketch.make_sketch(data, sketch.make_seed(model, name[2]))
    return CheckedPrompt(data, layout, pieces, tools)


def check_prompts(
    prompts: Sequence[CheckedPrompt], least_tokens: int = LEAST_TOKENS
) -> list[PromptFinding]:
    """Return the findings, those with the largest stable part first."""
    merged: dict[tuple[str, str], PromptFinding] = {}
    for number in range(1, len(prompts)):
        comparison = compare(prompts[number - 1], prompts[number], number)
        if comparison is None or comparison.stable_tokens < least_tokens:
            continue
        grouped = merged.get((comparison.cause, comparison.part))
        count = 1 + (grouped.count if grouped is not None else 0)
        best = (
            comparison
            if grouped is None or grouped.stable_tokens < comparison.stable_tokens
            else grouped
        )
        merged[comparison.cause, comparison.part] = PromptFinding(
            *(best.pair, best.cause, best.offset, best.part, best.character),
            *(best.stable_tokens, best.before, best.after, count),
        )
    return sorted(merged.values(), key=lambda one: -one.stable_tokens)


def common_tokens(old: CheckedPrompt, new: CheckedPrompt) -> int:
    """Return an estimate of the tokens that both begin with."""
    if sketch.seed_change(new.sketch.seed, old.sketch.seed) or new.tools != old.tools:
        return 0
    return _common(old.data, new.data) // TOKEN_BYTES


def compare(old: CheckedPrompt, new: CheckedPrompt, number: int = 1) -> PromptFinding | None:
    """Return the early change of a prompt against the one before it, which has this number."""
    pair = (number, number + 1)
    first = sketch.first_difference(new.sketch, old.sketch)
    seeds = sketch.seed_change(new.sketch.seed, old.sketch.seed)
    if not seeds and new.tools != old.tools and _sorted(new.tools) == _sorted(old.tools):
        order = sketch.CAUSES[sketch.ORDER]
        common = _common(old.tools, new.tools)
        tokens = len(new.data) // TOKEN_BYTES
        excerpts = (_excerpt(old.tools[common:]), _excerpt(new.tools[common:]))
        return PromptFinding(pair, order, common, "tools", common, tokens, *excerpts)
    change = sketch.find_change(new.sketch, old.sketch, new.pieces, new.data, 0, evidence=1)
    if change is None:
        return None
    tokens = change.stable // TOKEN_BYTES
    if seeds:
        return PromptFinding(pair, sketch.CAUSES[seeds], 0, "", 0, tokens)
    places = sketch.find_places(old.sketch)
    resumed, there = sketch.find_resumption(new.sketch, old.sketch, places, first)
    while min(resumed, there) > first and new.sketch.raw[resumed - 1] == old.sketch.raw[there - 1]:
        resumed, there = resumed - 1, there - 1
    mine, theirs = sketch.piece_starts(new.pieces), sketch.piece_starts(old.pieces)
    before = old.data[theirs[first] : theirs[there]]
    after = new.data[mine[first] : mine[resumed]]
    kind = change.kind
    if kind == sketch.TEXT and _reordered(before, after):
        kind = sketch.ORDER
    offset = mine[first] + _common(before, after)
    part = sketch.find_part(new.data, mine[first])
    character = len(new.data[_part_start(new.data, offset) : offset].decode("utf-8", "replace"))
    excerpts = (_excerpt(before), _excerpt(after))
    return PromptFinding(pair, sketch.CAUSES[kind], offset, part, character, tokens, *excerpts)


def _sorted(tools: bytes) -> list[bytes]:
    """Return each tool with its keys in order."""
    document = orjson.loads(tools)
    listed = document if isinstance(document, list) else [document]
    return sorted(orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in listed)


def _reordered(before: bytes, after: bytes) -> bool:
    """Return True for the same words in another order, such as the keys of an object."""
    mine, theirs = _WORDS.findall(after), _WORDS.findall(before)
    return len(mine) > 1 and mine != theirs and sorted(mine) == sorted(theirs)


def _common(one: bytes, other: bytes) -> int:
    least = min(len(one), len(other))
    return next((index for index in range(least) if one[index] != other[index]), least)


def _part_start(data: bytes, offset: int) -> int:
    begin = data.rfind(b"\x1e", 0, offset + 1)
    return 0 if begin < 0 else data.find(b"\x1f", begin) + 1


def _excerpt(text: bytes) -> str:
    text_shown = " ".join(
        re.sub(r"[\x00-\x1f\x7f]", " ", text.decode("utf-8", "replace")).split(" ")
    )
    return text_shown[:_EXCERPT].strip() + ("…" if len(text_shown) > _EXCERPT else "")


def as_document(prompts: int, findings: Sequence[PromptFinding]) -> Mapping[str, Any]:
    """Return the result as JSON data."""
    return {
        "verdict": "advice" if findings else "ok",
        "prompts": prompts,
        "findings": [
            {
                "prompts": list(finding.pair),
                "pairs": finding.count,
                "cause": finding.cause,
                "part": finding.part,
                "character": finding.character,
                "offset": finding.offset,
                "stable_tokens": finding.stable_tokens,
                "before": finding.before,
                "after": finding.after,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }
