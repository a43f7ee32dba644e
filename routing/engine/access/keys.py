"""Who may use the data port: API keys by SHA-256, compared in constant time.

Promises that no clear key is written anywhere, that an empty key file lets nobody in, and that an
expired key is refused from its second on, and one whose budget is used up until it begins
anew. Must not know sockets or files.

A caller sends the same Authorization header again and again, so the values which were found good
are remembered with their key and SHA-256 is computed once for each. This weakens nothing:
  - Only good values get in. Guesses are hashed every time and cannot push anything out.
  - The memory is a dict. Its lookup hashes the value with SipHash under a secret of this process
    and compares bytes only where all 64 bits agree, so time tells nothing about how much of a
    guess is right; the comparison with the configured hashes stays `compare_digest`.
  - It is bounded in entries and in the length of each, and a new key file starts an empty one: a
    revoked key is gone with the file which revoked it. Expiry is looked at on every request.
  - It is in the memory of this process only, where the headers of running requests are as well.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import time
from datetime import UTC, datetime
from typing import Any

from routing.engine.config import Key
from routing.engine.errors import Refusal

OPEN = Key("", "", pin=True)  # no keys are configured: every caller may choose a worker
SEEN_KEPT = 1024
_SEEN_BYTES = 512  # a longer header is no key of ours and not worth its memory


def check_model(allowed: frozenset[str], body: bytes | None, data: dict[str, Any] | None) -> None:
    """Does the body name one of these models? `data` is the body parsed. Raises Refusal.

    Read from the whole body, as the worker reads it: a search for the word could be led astray by
    an object inside. What cannot be read (a form, a body too large to hold) is refused. A request
    without a body asks no model for anything.
    """
    if body == b"":
        return
    model = data.get("model") if data is not None else None
    if type(model) is not str:
        message = "This key is for certain models only, and the request does not name one."
        raise Refusal("model_not_named", message, "model")
    if model not in allowed:
        message = f"The model {model[:100]!r} does not exist, or this key may not use it."
        raise Refusal("model_not_found", message, "model")


def check_budget(key: Key) -> None:
    """Raises Refusal while the key's budget of tokens is used up."""
    wait_s = math.ceil(key.spent_until - time.time())
    if wait_s > 0:
        until = datetime.fromtimestamp(key.spent_until, UTC).strftime("%Y-%m-%d %H:%M UTC")
        message = f"This API key has used its budget of tokens. It may ask again from {until}."
        raise Refusal("insufficient_quota", message, retry_after_s=wait_s)


class KeyRing:
    def __init__(self, keys: tuple[Key, ...] | None) -> None:
        self.open = keys is None
        self._keys = {key.sha256: key for key in keys or ()}
        self._seen: dict[bytes, Key] = {}

    def check(self, authorization: bytes) -> Key:
        """The caller's key from an Authorization header's value. Raises Refusal."""
        if self.open:
            return OPEN
        key = self._seen.get(authorization)
        if key is None:
            key = self._find(authorization)
        if key.expires and time.time() >= key.expires:
            raise Refusal("invalid_api_key", "This API key has expired.")
        if key.spent_until:
            check_budget(key)
        return key

    def holds(self, key: Key) -> bool:
        """Is this still one of the keys?"""
        return self.open or key.sha256 in self._keys

    def _find(self, authorization: bytes) -> Key:
        scheme, _, token = authorization.partition(b" ")
        key = None
        if scheme.lower() == b"bearer":
            digest = hashlib.sha256(token.strip(b" ")).hexdigest()
            # A caller cannot steer a SHA-256, so finding by it tells nothing about other keys;
            # the comparison itself takes the same time wherever two digests differ.
            key = self._keys.get(digest)
            if key is not None and not hmac.compare_digest(digest, key.sha256):
                key = None
        if key is None:
            raise Refusal("invalid_api_key", "This endpoint needs a valid API key.")
        if len(authorization) <= _SEEN_BYTES:
            if len(self._seen) >= SEEN_KEPT:
                self._seen.clear()
            self._seen[authorization] = key
        return key
