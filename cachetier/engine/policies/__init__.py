"""Eviction policies by name: lru, s3fifo, arc. docs/cache-tier.md compares them."""

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


def make_policy(name: str, capacity: int) -> EvictionPolicy:
    """Create the named policy for a capacity in bytes; raise KeyError for an unknown name."""
    return POLICIES[name](capacity)


__all__ = ["DEFAULT_POLICY", "POLICIES", "Arc", "EvictionPolicy", "Lru", "S3Fifo", "make_policy"]
