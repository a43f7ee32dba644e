"""Text to tokens, a chat to its prompt, a prompt to its made-up answer: all of it deterministic.

Promises that an answer's text, put back into the next prompt, gives the tokens it was counted
as, so that a conversation's second turn finds the first one's blocks. Must not know of caches.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import zlib
from collections.abc import Sequence
from typing import Any

VOCABULARY = 49152
MARK = "[simulated]"
_OPENING = f"{MARK} No model runs here:"
_PIECE = re.compile(r"\s?\w{1,6}|\s+|[^\w\s]")
_WORDS = [
    "ember",
    "glow",
    "warm",
    "hearth",
    "spark",
    "cinder",
    "flame",
    "kindle",
    "ash",
    "coal",
    "fire",
    "light",
    "heat",
    "smoke",
    "oven",
    "stone",
    "river",
    "cloud",
    "field",
    "harbor",
    "lantern",
    "meadow",
    "north",
    "orchard",
    "pebble",
    "quiet",
    "ridge",
    "silver",
    "timber",
    "under",
    "valley",
    "winter",
    "yellow",
    "amber",
    "bridge",
    "copper",
    "dawn",
    "evening",
    "forest",
    "garden",
    "hollow",
    "island",
    "juniper",
    "kettle",
    "linen",
    "maple",
    "needle",
    "ocean",
    "paper",
    "quarry",
    "ribbon",
    "summit",
    "thread",
]
_SHORTEST, _LONGEST = 32, 96


def pieces(text: str) -> list[str]:
    """What the text is cut into; joined they are the text again."""
    return _PIECE.findall(text)


def encode(text: str) -> list[int]:
    return [number(piece) for piece in pieces(text)]


def number(piece: str) -> int:
    return zlib.crc32(piece.encode()) % VOCABULARY


def chat_prompt(messages: Sequence[Any], tools: object = None) -> str:
    """ChatML, as the small models use it, with the assistant's turn opened."""
    turns = [("tools", json.dumps(tools, sort_keys=True))] if tools else []
    turns += [(message["role"], _content(message)) for message in messages]
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return said + "<|im_start|>assistant\n"


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
    """Between `least` and `most` pieces for this prompt, and whether the text came to its end."""
    digest = hashlib.sha256(repr((seed, tuple(prompt))).encode()).digest()
    source = random.Random(digest)
    wanted = max(least, source.randint(_SHORTEST, _LONGEST))
    found = pieces(_OPENING)
    while len(found) < min(wanted, most):
        found += pieces(" " + source.choice(_WORDS))
    if wanted < most:  # whole words, then an end
        return [*found[: most - 1], "."], True
    return found[:most], False
