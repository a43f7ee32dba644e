"""Key placement by weighted rendezvous hashing (highest random weight). Pure.

Each (node, key) pair has a score; a key is stored on the node with the highest, its second copy on
the next. All clients place alike without shared state, keys spread by weight, a departing node
moves only its own keys (to their second place), and a joining node takes its share of the keys and
moves no other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

_HASHES = 2.0**64


class Rendezvous:
    """Immutable placement by node names, or names and weights; their order does not matter."""

    def __init__(self, names: Iterable[str] | Mapping[str, float]) -> None:
        weights = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, 1.0)
        self.names: tuple[str, ...] = tuple(sorted(weights))
        self.weights: tuple[float, ...] = tuple(weights[name] for name in self.names)
        self._is_even = len(set(self.weights)) <= 1
        self._salted = [
            (name, hashlib.blake2b(name.encode(), digest_size=32).digest()) for name in self.names
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rendezvous):
            return NotImplemented
        return (self.names, self.weights) == (other.names, other.weights)

    def __hash__(self) -> int:
        return hash((self.names, self.weights))

    def place(self, key: bytes, copies: int = 1) -> tuple[str, ...]:
        """Return up to `copies` nodes for `key`, highest score first."""
        if len(self.names) <= 1:
            return self.names
        scored: list[tuple[Any, str]] = [
            (hashlib.blake2b(key, digest_size=8, key=salt).digest(), name)
            for name, salt in self._salted
        ]
        if not self._is_even:
            pairs = zip(scored, self.weights, strict=True)
            scored = [(_weigh(digest, weight), name) for (digest, name), weight in pairs]
        if copies == 1:
            return (max(scored)[1],)
        scored.sort(reverse=True)
        return tuple(name for _, name in scored[:copies])


def _weigh(digest: bytes, weight: float) -> float:
    """Return a score by which a node is chosen in proportion to its weight.

    -weight / ln(u) orders nodes of equal weights like the hash u itself.
    """
    share = (int.from_bytes(digest) + 0.5) / _HASHES
    return -weight / math.log(share) if share < 1.0 else math.inf
