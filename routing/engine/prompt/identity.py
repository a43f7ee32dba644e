"""Routing identity of a request: block hash chain, model, session.

Requests share hashes exactly up to where their prompts agree (canonical.py), across routers with
the same hash key. Only hashes leave this module.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Sequence
from typing import Any, Final

import orjson
import xxhash

from routing.engine.config import LimitsConfig, SessionKey
from routing.engine.errors import Refusal
from routing.engine.http import bodies
from routing.engine.http.http1 import RequestHead
from routing.engine.policies.base import RequestFacts
from routing.engine.prompt import canonical
from routing.engine.prompt.engine_request import takes_json
from routing.engine.tokens.usage import BytesPerToken

_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_NO_CHAIN: Sequence[int] = ()
_ID_BYTES: Final = 4
_DEFAULT_LIMITS: Final = LimitsConfig()
_SCANNED_BYTES: Final = 262_144  # bytes at either end searched for the model
# First bytes of JSON values that are no object, which every engine refuses.
_NO_OBJECT: Final = frozenset(bytes([byte]) for byte in b'["-0123456789tfn')
_CACHED_SEEDS: Final = 1024  # bounded: callers choose models and salts
_CACHED_SALTS: Final = 1024
_ANTHROPIC: Final = b"/v1/messages"
_SALT: Final = b"cache-salt"
_TEXT_DEPTH: Final = 4  # message, parts, part, text
GROUP_BLOCKS: Final = 32
_GROUP_SLICE: Final = 8
CACHED_GROUPS = 16_384  # groups, about 450 bytes each


class BlockHasher:
    """Chained hashes of a prompt's blocks, with a cache for shared prefixes.

    Groups of 32 blocks are found by one hash, at a tenth of the cost of hashing each block. A full
    cache drops its older half.
    """

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._new: dict[int, array[int]] = {}
        self._old: dict[int, array[int]] = {}

    def of(self, data: bytes, seed: int) -> array[int]:
        size = self._block_bytes * GROUP_BLOCKS
        grouped = len(data) - len(data) % size
        if not grouped:
            return array("Q", self._each(data, 0, len(data), seed))
        out = array("Q")
        view = memoryview(data)
        digest = xxhash.xxh3_64_intdigest
        new = self._new
        for start in range(0, grouped, size):
            name = digest(view[start : start + size], seed)
            hashes = new.get(name)
            if hashes is None:
                hashes = self._group(data, start, seed, name)
            out.extend(hashes)
            seed = hashes[-1]
        out.fromlist(self._each(data, grouped, len(data), seed))
        return out

    async def of_large(self, data: bytes, seed: int, pace: bodies.ReadPace) -> array[int]:
        """Like `of`, in slices."""
        size = self._block_bytes * GROUP_BLOCKS * _GROUP_SLICE
        out = array("Q")
        for start in range(0, len(data), size):
            hashes = self.of(data[start : start + size], seed)
            if hashes:
                out.extend(hashes)
                seed = hashes[-1]
            await pace.pause()
        return out

    def _each(self, data: bytes, start: int, end: int, seed: int) -> list[int]:
        block_bytes = self._block_bytes
        digest = xxhash.xxh3_64_intdigest
        starts = range(start, end - block_bytes + 1, block_bytes)
        return [seed := digest(data[start : start + block_bytes], seed) for start in starts]

    def _group(self, data: bytes, start: int, seed: int, name: int) -> array[int]:
        """Return a group's hashes, cached."""
        hashes = self._old.get(name)
        if hashes is None:
            end = start + self._block_bytes * GROUP_BLOCKS
            hashes = array("Q", self._each(data, start, end, seed))
        if len(self._new) >= CACHED_GROUPS // 2:
            self._old = self._new.copy()
            self._new.clear()  # cleared in place: `of` holds a reference
        self._new[name] = hashes
        return hashes


class Identity:
    """Policy facts and model of one request.

    `data`: parsed body, None if unread or not an object; it takes many times the body's memory and
    must not be kept. `parsed`: it was read. `fields`: to be set in the body before sending.
    """

    __slots__ = ("data", "facts", "fields", "model", "parsed")

    def __init__(self, facts: RequestFacts, model: str, data: dict[str, Any] | None = None) -> None:
        self.facts = facts
        self.model = model
        self.data = data
        self.parsed = data is not None
        self.fields: dict[str, Any] = {}

    @property
    def sent(self) -> dict[str, Any] | None:
        return {**self.data, **self.fields} if self.data and self.fields else self.data


class Identifier:
    """Identifier of prompts by block hashes. `hash_key` keys block hashes: empty, or equal for
    routers that should agree. `show_key` keys the hashes on display.
    """

    def __init__(
        self,
        hash_key: bytes,
        block_bytes: int,
        session_key: SessionKey | None,
        show_key: bytes,
        ratios: BytesPerToken,
        limits: LimitsConfig = _DEFAULT_LIMITS,
    ) -> None:
        self._hash_key = hash_key[:64]
        self._show_key = show_key[:64]
        self._block_bytes = block_bytes
        self._chains = BlockHasher(block_bytes)
        self._ratios = ratios
        self._limits = limits
        # An entry takes at least two bytes: a shorter body is within the limits.
        self._count_from = 2 * min(limits.messages, limits.parts)
        self._body_session = (
            session_key.name if session_key is not None and session_key.source == "body" else ""
        )
        self._seeds: dict[canonical.Name, int] = {}
        self._salts: dict[str, str] = {}  # by scope, where callers set none
        self.aliases: dict[str, str] = {}  # first name of a model by its others: one KV cache

    def digest(self, data: bytes) -> str:
        return hashlib.blake2b(data, digest_size=8, key=self._show_key).hexdigest()

    def _seed(self, name: canonical.Name) -> int:
        seed = self._seeds.get(name)
        if seed is None:
            if len(self._seeds) >= _CACHED_SEEDS:
                self._seeds.clear()
            kind, model, rest = name
            whole = b"\x00".join((kind, model.encode("utf-8", "surrogatepass"), rest))
            digest = hashlib.blake2b(whole, digest_size=8, key=self._hash_key).digest()
            seed = int.from_bytes(digest, "big")
            if len(whole) <= 4096:  # larger ones (custom chat templates) are not cached
                self._seeds[name] = seed
        return seed

    def salt(self, scope: str, data: dict[str, Any]) -> str:
        """Return the `cache_salt` of a scope, unpredictable for outsiders; a caller's own salt
        subdivides it.
        """
        own = data.get("cache_salt")
        if own is not None and type(own) is not str:
            raise Refusal("bad_request", "cache_salt must be a text.", "cache_salt")
        if own is None:
            salt = self._salts.get(scope)
            if salt is not None:
                return salt
        named = scope.encode() + b"\x00" + (b"" if own is None else orjson.dumps(own))
        salt = hashlib.blake2b(named, digest_size=16, key=self._show_key, person=_SALT).hexdigest()
        if own is None:
            if len(self._salts) >= _CACHED_SALTS:
                self._salts.clear()
            self._salts[scope] = salt
        return salt

    def _fields(self, data: dict[str, Any], scope: str) -> dict[str, Any]:
        return {"cache_salt": self.salt(scope, data)} if scope else {}

    def _unread(
        self, size: int, model: str, session: bytes, data: dict[str, Any] | None = None
    ) -> Identity:
        ratio = self._ratios.of(model)
        request_facts = RequestFacts(
            _NO_CHAIN, int(size / ratio), self._block_bytes / ratio, session
        )
        return Identity(request_facts, model, data)

    def scan(self, body: bytes, session: bytes) -> Identity:
        """Identify without parsing JSON, for strategies that use the length only."""
        size = len(body)
        match = _MODEL.search(body, 0, _SCANNED_BYTES)
        if match is None and size > _SCANNED_BYTES:
            match = _MODEL.search(body, max(_SCANNED_BYTES, size - _SCANNED_BYTES))
        model = match[1].decode("utf-8", "replace") if match is not None else ""
        return self._unread(size, model, session)

    def reads(self, needs_chain: bool) -> bool:
        return needs_chain or bool(self._body_session)

    def read(
        self, path: bytes, body: bytes, session: bytes, needs_chain: bool, scope: str = ""
    ) -> Identity:
        """Identify a parsed body; non-JSON bodies are forwarded unmatched. With a `scope`, blocks
        are shared within it only.

        Raises Refusal for invalid JSON, too many messages or parts. For small bodies; see
        `read_large`.
        """
        data = bodies.parse_body(body)
        if data is None:
            unread = self.scan(body, session)
            if body and takes_json(path):
                bodies.check_json(body)
                unread.parsed = True
            return unread
        if len(body) > self._count_from:
            canonical.check_counts(path, data, self._limits.messages, self._limits.parts)
        fields = self._fields(data, scope)
        model, session = self._named(data, session)
        if needs_chain:
            sent = {**data, **fields} if fields else data
            try:
                prompt = canonical.read(path, sent, self.aliases.get(model, model))
            except (UnicodeEncodeError, TypeError):  # orjson rejects what the engine rejects too
                identity = self._unread(0, "", session, data)
            else:
                chain = self._chains.of(prompt[0], self._seed(prompt[1]))
                identity = self._matched(path, model, session, prompt, chain, data)
        else:
            identity = self._unread(len(body), model, session, data)
        identity.fields = fields
        return identity

    async def read_large(
        self, path: bytes, body: bytes, session: bytes, needs_chain: bool, scope: str = ""
    ) -> Identity:
        """Like `read`, for any size, yielding to the loop; `path` b"": inferred from the body. Also
        raises Refusal for too many JSON values.
        """
        pace = bodies.ReadPace()
        limits = self._limits
        data = await bodies.parse_large(body, limits.json_values, pace)
        path = path or guess_path(data)
        if data is None:
            unread = self.scan(body, session)
            if takes_json(path):
                if body[:_SCANNED_BYTES].lstrip()[:1] not in _NO_OBJECT:
                    await bodies.check_large_json(body, limits.json_values, pace)
                unread.parsed = True
            return unread
        canonical.check_counts(path, data, limits.messages, limits.parts)
        await pace.pause()
        fields = self._fields(data, scope)
        model, session = self._named(data, session)
        if needs_chain:
            try:
                named = self.aliases.get(model, model)
                prompt = await canonical.read_large(path, {**data, **fields}, named, pace)
            except (UnicodeEncodeError, TypeError):
                identity = self._unread(0, "", session, data)
            else:
                chain = await self._chains.of_large(prompt[0], self._seed(prompt[1]), pace)
                identity = self._matched(path, model, session, prompt, chain, data)
        else:
            identity = self._unread(len(body), model, session, data)
        identity.fields = fields
        return identity

    def _named(self, data: dict[str, Any], session: bytes) -> tuple[str, bytes]:
        model = data.get("model")
        if self._body_session:
            session = _session_in_body(data, self._body_session)
        return model if type(model) is str else "", session

    def _matched(
        self, path: bytes, model: str, session: bytes, prompt: canonical.Prompt,
        chain: Sequence[int], data: dict[str, Any],
    ) -> Identity:  # fmt: skip
        data_bytes, _, ids, exact = prompt
        size = len(data_bytes)
        ratio = _ID_BYTES if ids else self._ratios.of(model)
        # Anthropic's usage may omit cached tokens: unusable for calibration.
        learnable = size if exact and not ids and path != _ANTHROPIC else 0
        request_facts = RequestFacts(
            chain, int(size / ratio), self._block_bytes / ratio, session, learnable
        )
        return Identity(request_facts, model, data)


def find_session(head: RequestHead, key: SessionKey | None) -> bytes:
    if key is None or key.source == "body":
        return b""
    if key.source == "header":
        return head.get(key.name.encode()) or b""
    name = key.name.encode()
    for part in (head.get(b"cookie") or b"").split(b";"):
        cookie, _, value = part.strip().partition(b"=")
        if cookie == name:
            return value
    return b""


def guess_path(data: dict[str, Any] | None) -> bytes:
    if data is None:
        raise Refusal("bad_request", "The body must be the JSON object of a request.")
    path = canonical.infer_path(data)
    if path is None:
        raise Refusal("bad_request", "The body has neither messages nor prompt nor input.")
    return path


def preview(data: dict[str, Any] | None, length: int) -> str:
    """Return the first characters of a request's prompt, with single spaces; "" without a text."""
    if data is None:
        return ""
    messages = data.get("messages")
    first = messages[0] if type(messages) is list and messages else None
    starts = (data.get("system"), data.get("instructions"), first, data.get("prompt"))
    text = next(filter(None, map(_first_text, (*starts, data.get("input")))), "")
    plain = "".join(char if char.isprintable() else " " for char in text[: 4 * length])
    return " ".join(plain.split())[:length]


def _first_text(value: Any) -> str:
    """Return a text, or the first one in a list of texts, parts or messages."""
    for _ in range(_TEXT_DEPTH):
        if type(value) is list:
            value = value[0] if value else ""
        elif type(value) is dict:
            value = value.get("text") or value.get("content")
    return value if type(value) is str else ""


def _session_in_body(body: dict[str, Any], name: str) -> bytes:
    """Return the session from a body key; dots descend into objects (metadata.session_id)."""
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
