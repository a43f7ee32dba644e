"""Key placement by rendezvous hashing (highest random weight). Pure.

Each (node, key) pair has a hash weight; a key lives on the node with the highest, its second copy
on the next. All clients place alike without shared state, keys spread evenly, a departing node
moves only its own keys (to their second place), and a joining node takes 1/n of the keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


class Rendezvous:
    """Immutable placement by node names; their order does not matter."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names: tuple[str, ...] = tuple(sorted(set(names)))
        self._salted = [
            (name, hashlib.blake2b(name.encode(), digest_size=32).digest()) for name in self.names
        ]

    def place(self, key: bytes, copies: int = 1) -> tuple[str, ...]:
        """Return up to `copies` nodes for `key`, highest weight first."""
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
