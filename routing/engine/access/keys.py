"""API key authentication by SHA-256, compared in constant time.

Accepted Authorization values are cached, so that SHA-256 runs once per value. Guesses are never
cached and evict nothing; dict lookups use SipHash with a per-process secret, so timing reveals
nothing. A new key file starts an empty cache, and expiry is checked on every request.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from datetime import UTC, datetime
from typing import Any, Final

from routing.engine.config import Key
from routing.engine.errors import Refusal

OPEN_ACCESS_KEY: Final = Key("", "", pin=True)  # no keys configured: every caller may pin a worker
CACHED_HEADERS: Final = 1024
_CACHED_HEADER_BYTES: Final = 512  # a longer header cannot be a valid key


def check_model(allowed: frozenset[str], body: bytes | None, data: dict[str, Any] | None) -> None:
    """Raise Refusal unless the body names an allowed model. `data` is the parsed body.

    The whole body is parsed, since a text search could match a nested object. Unreadable bodies are
    rejected; a request without a body passes.
    """
    if body == b"":
        return
    model = data.get("model") if data is not None else None
    if type(model) is not str:
        message = "This key is limited to certain models, and the request has no model."
        raise Refusal("model_not_named", message, "model")
    if model not in allowed:
        message = f"The model {model[:100]!r} does not exist, or this key may not use it."
        raise Refusal("model_not_found", message, "model")


def check_budget(key: Key) -> None:
    wait_s = math.ceil(key.spent_until - time.time())
    if wait_s > 0:
        until = datetime.fromtimestamp(key.spent_until, UTC).strftime("%Y-%m-%d %H:%M UTC")
        message = f"The token budget of this API key is exhausted. It resets at {until}."
        raise Refusal("insufficient_quota", message, retry_after_s=wait_s)


class KeyRing:
    def __init__(self, keys: tuple[Key, ...] | None) -> None:
        self.open = keys is None
        self._keys = {key.sha256: key for key in keys or ()}
        self._seen: dict[bytes, Key] = {}

    def check(self, authorization: bytes) -> Key:
        """Return the key for an Authorization header value. Raise Refusal."""
        if self.open:
            return OPEN_ACCESS_KEY
        key = self._seen.get(authorization)
        if key is None:
            key = self._find(authorization)
        if key.expires and time.time() >= key.expires:
            raise Refusal("invalid_api_key", "This API key has expired.")
        if key.spent_until:
            check_budget(key)
        return key

    def holds(self, key: Key) -> bool:
        return self.open or key.sha256 in self._keys

    def _find(self, authorization: bytes) -> Key:
        scheme, _, token = authorization.partition(b" ")
        key = None
        if scheme.lower() == b"bearer":
            digest = hashlib.sha256(token.strip(b" ")).hexdigest()
            # A caller cannot steer a SHA-256, so the dict lookup leaks nothing about other keys;
            # the comparison is constant-time.
            key = self._keys.get(digest)
            if key is not None and not hmac.compare_digest(digest, key.sha256):
                key = None
        if key is None:
            raise Refusal("invalid_api_key", "A valid API key is required.")
        if len(authorization) <= _CACHED_HEADER_BYTES:
            if len(self._seen) >= CACHED_HEADERS:
                self._seen.clear()
            self._seen[authorization] = key
        return key
