"""What a request's prompt is, for routing: its canonical bytes, its model, its session.

Promises that two requests share hashes only up to where their prompts are the same text for the
same model, cache salt and tools, whatever the order or spacing of their JSON. Prompt tokens are
estimated as one for four bytes, until the response's usage tells. Must not know workers, and
never gives prompt text to a log: hashes leave this module, text does not.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from typing import Any

import orjson

from routing.engine.chains import Chains
from routing.engine.config import SessionKey
from routing.engine.errors import Refusal
from routing.engine.policies.base import Facts

BYTES_PER_TOKEN = 4  # English text on the usual tokenizers; an estimate and shown as one
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_NO_CHAIN: list[int] = []

# Path to the field which holds the prompt.
_PROMPT_FIELDS: dict[bytes, str] = {
    b"/v1/chat/completions": "messages",
    b"/v1/completions": "prompt",
    b"/v1/responses": "input",
    b"/v1/messages": "messages",
    b"/v1/embeddings": "input",
}


def _message(message: Any) -> bytes:
    if type(message) is dict and len(message) == 2:
        content = message.get("content")
        role = message.get("role")
        if type(content) is str and type(role) is str:
            return f"\x1e{role}\x1f{content}".encode("utf-8", "surrogatepass")
    return b"\x1e" + orjson.dumps(message, option=orjson.OPT_SORT_KEYS)


def _prompt(value: Any) -> bytes:
    """The canonical bytes of a prompt field: text, token ids, messages, or a list of prompts."""
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is list and value:
        if type(value[0]) is int and all(type(item) is int and 0 <= item < 2**32 for item in value):
            return array("I", value).tobytes()  # four bytes for each token id
        return b"".join([_message(item) for item in value])
    return b""


def canonical(path: bytes, body: dict[str, Any]) -> bytes:
    """Everything the engine's prompt begins with, in the order chat templates use."""
    field = _PROMPT_FIELDS.get(path)
    if field is None:
        return b""
    parts: list[bytes] = []
    for name in ("tools", "system", "instructions"):
        value = body.get(name)
        if value:
            parts.append(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))
    parts.append(_prompt(body.get(field)))
    return b"".join(parts)


class Identity:
    """One request's facts for the policy, and its model for the labels."""

    __slots__ = ("facts", "model")

    def __init__(self, facts: Facts, model: str) -> None:
        self.facts = facts
        self.model = model


class Identifier:
    """Reads requests; `secret` keys every hash, so that they mean nothing outside."""

    def __init__(self, secret: bytes, block_bytes: int, session_key: SessionKey | None) -> None:
        self._secret = secret
        self._chains = Chains(block_bytes)
        self._block_tokens = block_bytes // BYTES_PER_TOKEN
        self._body_session = (
            session_key.name if session_key is not None and session_key.source == "body" else ""
        )
        self._seeds: dict[tuple[bytes, str, str], int] = {}

    def digest(self, data: bytes) -> str:
        """A keyed hash fit to be shown."""
        return hashlib.blake2b(data, digest_size=8, key=self._secret[:64]).hexdigest()

    def _seed(self, path: bytes, model: str, salt: str) -> int:
        """Where a chain starts: other models, salts and APIs never share a block."""
        key = (path, model, salt)
        seed = self._seeds.get(key)
        if seed is None:
            if len(self._seeds) >= 1024:  # callers choose model and salt: bounded
                self._seeds.clear()
            named = b"\x00".join((path, model.encode(), salt.encode("utf-8", "surrogatepass")))
            digest = hashlib.blake2b(named, digest_size=8, key=self._secret[:64]).digest()
            seed = self._seeds[key] = int.from_bytes(digest, "big")
        return seed

    @staticmethod
    def guess_path(body: bytes) -> bytes:
        """Which API a bare body is meant for."""
        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError:
            data = None
        if type(data) is not dict:
            raise Refusal("bad_request", "The body must be a request's JSON object.")
        for path in (b"/v1/chat/completions", b"/v1/completions", b"/v1/responses"):
            if _PROMPT_FIELDS[path] in data:
                return path
        raise Refusal("bad_request", "The body has neither messages nor prompt nor input.")

    def scan(self, body: bytes, session: bytes) -> Identity:
        """Without reading the JSON: for strategies which need nothing but a length."""
        found = _MODEL.search(body)
        model = found[1].decode("utf-8", "replace") if found is not None else ""
        facts = Facts(_NO_CHAIN, len(body) // BYTES_PER_TOKEN, self._block_tokens, session)
        return Identity(facts, model)

    def read(self, path: bytes, body: bytes, session: bytes, needs_chain: bool) -> Identity:
        """From the parsed body; one that is not JSON is forwarded all the same, unmatched."""
        if not needs_chain and not self._body_session:
            return self.scan(body, session)
        try:
            data = orjson.loads(body) if body else None
        except orjson.JSONDecodeError:
            data = None
        if type(data) is not dict:
            return self.scan(body, session)
        model = data.get("model")
        model = model if type(model) is str else ""
        if self._body_session:
            session = _session_text(data.get(self._body_session))
        if not needs_chain:
            facts = Facts(_NO_CHAIN, len(body) // BYTES_PER_TOKEN, self._block_tokens, session)
            return Identity(facts, model)
        try:
            prompt = canonical(path, data)
            salt = data.get("cache_salt")
            seed = self._seed(path, model, salt if type(salt) is str else "")
        except (UnicodeEncodeError, TypeError):  # orjson refuses what the engine will refuse too
            return Identity(Facts(_NO_CHAIN, 0, self._block_tokens, session), "")
        hashes = self._chains.of(prompt, seed)
        tokens = len(prompt) // BYTES_PER_TOKEN
        return Identity(Facts(hashes, tokens, self._block_tokens, session), model)


def _session_text(value: Any) -> bytes:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is int:
        return str(value).encode()
    return b""
