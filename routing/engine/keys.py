"""Who may use the data port: API keys by SHA-256, compared in constant time.

Promises that no clear key is kept and that an empty key file lets nobody in. Must not know
sockets or files.
"""

from __future__ import annotations

import hashlib
import hmac

from routing.engine.config import Key

OPEN = Key("", "", pin=True)  # no keys are configured: every caller is the operator


class KeyRing:
    def __init__(self, keys: tuple[Key, ...] | None) -> None:
        self.open = keys is None
        self._keys = {key.sha256: key for key in keys or ()}

    def check(self, authorization: bytes) -> Key | None:
        """The caller's key from an Authorization header's value; None: refused."""
        if self.open:
            return OPEN
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        digest = hashlib.sha256(token.strip(b" ")).hexdigest()
        # A caller cannot steer a SHA-256, so finding by it tells nothing about other keys; the
        # comparison itself takes the same time wherever two digests differ.
        key = self._keys.get(digest)
        if key is None or not hmac.compare_digest(digest, key.sha256):
            return None
        return key
