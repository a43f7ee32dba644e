"""Deterministic tokenizer, chat template and answer generator.

Tokenizing an answer as part of the next prompt gives the same tokens, so that a conversation's
second turn hits the blocks of the first.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

VOCABULARY = 49152
MARK = "[simulated]"
_OPENING = f"{MARK} No model runs here:"
_PIECE = re.compile(r"\s?\w{1,6}|\s+|[^\w\s]")
_WORDS = [
    "ember", "glow", "warm", "hearth", "spark", "cinder", "flame", "kindle", "ash", "coal", "fire",
    "light", "heat", "smoke", "oven", "stone", "river", "cloud", "field", "harbor", "lantern",
    "meadow", "north", "orchard", "pebble", "quiet", "ridge", "silver", "timber", "under", "valley",
    "winter", "yellow", "amber", "bridge", "copper", "dawn", "evening", "forest", "garden",
    "hollow", "island", "juniper", "kettle", "linen", "maple", "needle", "ocean", "paper", "quarry",
    "ribbon", "summit", "thread",
]  # fmt: skip
_SHORTEST, _LONGEST = 32, 96


def pieces(text: str) -> list[str]:
    """Split the text; the joined pieces equal it."""
    return _PIECE.findall(text)


def encode(text: str) -> list[int]:
    return [number(piece) for piece in pieces(text)]


def number(piece: str) -> int:
    return zlib.crc32(piece.encode()) % VOCABULARY


def chat_prompt(messages: Sequence[Any], tools: object = None) -> str:
    """Return a ChatML prompt with the assistant's turn opened."""
    turns = [("tools", json.dumps(tools, sort_keys=True))] if tools else []
    turns += [(message["role"], _content(message)) for message in messages]
    prompt = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return prompt + "<|im_start|>assistant\n"


def _content(message: Any) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return json.dumps(message.get("tool_calls") or "", sort_keys=True)
    return "".join(
        part.get("text", "") if part.get("type") == "text" else f"<{part.get('type')}>"
        for part in content
    )


def answer(prompt: Sequence[int], seed: int, least: int, most: int) -> tuple[list[str], bool]:
    """Return between `least` and `most` pieces, and whether the text ended by itself."""
    digest = hashlib.sha256(repr((seed, tuple(prompt))).encode()).digest()
    source = random.Random(digest)
    length = max(least, source.randint(_SHORTEST, _LONGEST))
    words = pieces(_OPENING)
    while len(words) < min(length, most):
        words += pieces(" " + source.choice(_WORDS))
    if length < most:  # whole words, then a final stop
        return [*words[: most - 1], "."], True
    return words[:most], False


def chain_hashes(tokens: Sequence[int], block_size: int, salt: str = "") -> list[bytes]:
    """Return one hash per full block, each over all tokens up to its end."""
    hashes: list[bytes] = []
    parent = hashlib.sha256(salt.encode()).digest()
    for start in range(0, len(tokens) - block_size + 1, block_size):
        part = array("q", tokens[start : start + block_size]).tobytes()
        parent = hashlib.sha256(parent + part).digest()[:16]
        hashes.append(parent)
    return hashes
