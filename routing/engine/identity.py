"""What a request is, for routing: the chain of its prompt's blocks, its model, its session.

Promises that two requests share hashes only up to where their prompts are the same for the same
model, cache salt and tools (prompts.py says what that is), and that routers with the same hash key,
or without one, give the same hashes. Prompt tokens are estimated from bytes, until the response's
usage tells. Must not know workers, and never gives prompt text to a log: hashes leave this module,
text does not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import orjson

from routing.engine import bodies, prompts
from routing.engine.chains import Chains
from routing.engine.config import SessionKey
from routing.engine.errors import Refusal
from routing.engine.policies.base import Facts
from routing.engine.ratios import Ratios

_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_NO_CHAIN: Sequence[int] = ()
_ID_BYTES = 4
_SEEDS = 1024  # callers choose models and salts: bounded
_ANTHROPIC = b"/v1/messages"
_SALT = b"cache-salt"


class Identity:
    """One request's facts for the policy, and its model for the labels. `data`: its body, where
    that was read; `fields`: what is to be set in it."""

    __slots__ = ("data", "facts", "fields", "model")

    def __init__(self, facts: Facts, model: str) -> None:
        self.facts = facts
        self.model = model
        self.data: dict[str, Any] | None = None
        self.fields: dict[str, Any] = {}


class Identifier:
    """Reads requests.

    `hash_key` keys the blocks' hashes: empty, or the same for routers which should agree on where
    a new prompt goes. `show_key` keys what is shown of them, so that it means nothing outside.
    """

    def __init__(
        self,
        hash_key: bytes,
        block_bytes: int,
        session_key: SessionKey | None,
        show_key: bytes,
        ratios: Ratios,
    ) -> None:
        self._hash_key = hash_key[:64]
        self._show_key = show_key[:64]
        self._block_bytes = block_bytes
        self._chains = Chains(block_bytes)
        self._ratios = ratios
        self._body_session = (
            session_key.name if session_key is not None and session_key.source == "body" else ""
        )
        self._seeds: dict[prompts.Name, int] = {}

    def digest(self, data: bytes) -> str:
        """A keyed hash fit to be shown."""
        return hashlib.blake2b(data, digest_size=8, key=self._show_key).hexdigest()

    def _seed(self, name: prompts.Name) -> int:
        """Where a chain starts: other names never share a block."""
        seed = self._seeds.get(name)
        if seed is None:
            if len(self._seeds) >= _SEEDS:
                self._seeds.clear()
            kind, model, rest = name
            whole = b"\x00".join((kind, model.encode("utf-8", "surrogatepass"), rest))
            digest = hashlib.blake2b(whole, digest_size=8, key=self._hash_key).digest()
            seed = int.from_bytes(digest, "big")
            if len(whole) <= 4096:  # a chat template of a caller's own is hashed each time
                self._seeds[name] = seed
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
        path = prompts.api_of(data)
        if path is None:
            raise Refusal("bad_request", "The body has neither messages nor prompt nor input.")
        return path

    def salt(self, scope: str, data: dict[str, Any]) -> str:
        """The `cache_salt` of a request of this scope: nobody outside can compute or guess it. A
        caller's own divides the scope further."""
        own = data.get("cache_salt")
        named = scope.encode() + b"\x00" + (b"" if own is None else orjson.dumps(own))
        return hashlib.blake2b(named, digest_size=16, key=self._show_key, person=_SALT).hexdigest()

    def _unread(self, size: int, model: str, session: bytes) -> Identity:
        """Known by its length only."""
        ratio = self._ratios.of(model)
        facts = Facts(_NO_CHAIN, int(size / ratio), self._block_bytes / ratio, session)
        return Identity(facts, model)

    def scan(self, body: bytes, session: bytes) -> Identity:
        """Without reading the JSON: for strategies which need nothing but a length."""
        found = _MODEL.search(body)
        model = found[1].decode("utf-8", "replace") if found is not None else ""
        return self._unread(len(body), model, session)

    def read(
        self, path: bytes, body: bytes, session: bytes, needs_chain: bool, scope: str = ""
    ) -> Identity:
        """From the parsed body; one that is not JSON is forwarded all the same, unmatched. With a
        `scope`, the prompt shares blocks only with prompts of that scope."""
        if not needs_chain and not self._body_session and not scope:
            return self.scan(body, session)
        data = bodies.parse(body)
        if data is None:
            return self.scan(body, session)
        if scope:
            fields = {"cache_salt": self.salt(scope, data)}
            found = self._read(path, body, session, needs_chain, {**data, **fields})
            found.data, found.fields = data, fields
        else:
            found = self._read(path, body, session, needs_chain, data)
            found.data = data
        return found

    def _read(
        self, path: bytes, body: bytes, session: bytes, needs_chain: bool, data: dict[str, Any]
    ) -> Identity:
        model = data.get("model")
        model = model if type(model) is str else ""
        if self._body_session:
            session = _session(data, self._body_session)
        if not needs_chain:
            return self._unread(len(body), model, session)
        try:
            data_bytes, name, ids, exact = prompts.read(path, data, model)
        except (UnicodeEncodeError, TypeError):  # orjson refuses what the engine will refuse too
            return self._unread(0, "", session)
        chain = self._chains.of(data_bytes, self._seed(name))
        size = len(data_bytes)
        ratio = _ID_BYTES if ids else self._ratios.of(model)
        # Anthropic's usage may leave out what was cached: nothing can be learned from it.
        learnable = size if exact and not ids and path != _ANTHROPIC else 0
        block_tokens = self._block_bytes / ratio
        return Identity(Facts(chain, int(size / ratio), block_tokens, session, learnable), model)


def _session(body: dict[str, Any], name: str) -> bytes:
    """The session in a key of the body; with dots also a key in objects, metadata.session_id."""
    value = body.get(name)
    if value is None and "." in name:
        value = body
        for key in name.split("."):
            value = value.get(key) if type(value) is dict else None
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass")
    if type(value) is int:
        return str(value).encode()
    return b""
