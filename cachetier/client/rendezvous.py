"""Which node a key belongs to: rendezvous hashing (highest random weight). Pure.

Every (node, key) pair has a weight nobody chose; a key lives on the node whose weight is highest,
its second copy on the next. Hence, without any table to agree on: every client places alike, keys
spread evenly, a node which leaves takes only its own keys along (each goes to its second place),
and one which joins takes 1/n of the keys and moves no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


class Rendezvous:
    """Immutable. Places by the nodes' names alone, in whatever order they come."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names: tuple[str, ...] = tuple(sorted(set(names)))
        self._salted = [
            (name, hashlib.blake2b(name.encode(), digest_size=32).digest()) for name in self.names
        ]

    def place(self, key: bytes, copies: int = 1) -> tuple[str, ...]:
        """The `copies` nodes of `key`, the one to ask first before the next; fewer if there are
        fewer nodes."""
        if len(self.names) <= 1:
            return self.names
        weighed = [
            (hashlib.blake2b(key, digest_size=8, key=salt).digest(), name)
            for name, salt in self._salted
        ]
        if copies == 1:
            return (max(weighed)[1],)
        weighed.sort(reverse=True)
        return tuple(name for _, name in weighed[:copies])
