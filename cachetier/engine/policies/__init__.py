"""Which value goes next: lru, s3fifo or arc, chosen by name. See docs/cache-tier.md for why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cachetier.engine.policies.arc import Arc
from cachetier.engine.policies.base import EvictionPolicy
from cachetier.engine.policies.lru import Lru
from cachetier.engine.policies.s3fifo import S3Fifo

POLICIES: Final[dict[str, Callable[[int], EvictionPolicy]]] = {
    "lru": Lru,
    "s3fifo": S3Fifo,
    "arc": Arc,
}
DEFAULT_POLICY: Final = "arc"


def make(name: str, capacity: int) -> EvictionPolicy:
    """The policy of that name, empty, for a capacity in bytes. KeyError for any other name."""
    return POLICIES[name](capacity)


__all__ = ["DEFAULT_POLICY", "POLICIES", "Arc", "EvictionPolicy", "Lru", "S3Fifo", "make"]
