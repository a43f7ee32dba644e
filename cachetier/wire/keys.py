"""The key of a block in L2: `emb1:<namespace digest>:<group>:<hash>`, all printable ASCII."""

from __future__ import annotations

PREFIX = b"emb1:"
_NAMESPACE_MAX = 64


def block_key(namespace: str, group: int, block_hash: bytes) -> bytes:
    return b"%s%s:%d:%s" % (PREFIX, namespace.encode(), group, block_hash.hex().encode())


def namespace_of(key: bytes | bytearray) -> str:
    """The namespace of a block key, "" for a key of another kind (counted, never refused)."""
    if not key.startswith(PREFIX):
        return ""
    end = key.find(b":", len(PREFIX), len(PREFIX) + _NAMESPACE_MAX + 1)
    name = bytes(key[len(PREFIX) : end]) if end > 0 else b""
    return name.decode() if name.isalnum() and name.isascii() else ""
