"""Texts of our own whose tokens are compared between workers. Nothing of a caller is among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PLAIN, CHAT = "a plain text", "a chat"

_SYSTEM = {"role": "system", "content": "Be brief."}
_USER = {"role": "user", "content": "Naïve 你好, it's  1234567?"}
# By name, what is sent to /tokenize beside the model.
PROBES: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"prompt": _USER["content"]},
    CHAT: {"messages": [_SYSTEM, _USER]},
}
