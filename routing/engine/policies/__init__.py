"""Routing policies: one pure object per strategy, registered here."""

from __future__ import annotations

from routing.engine.config import Config
from routing.engine.policies.base import RoutingPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy


def build_policy(config: Config, secret: bytes) -> RoutingPolicy:
    """Return an empty policy for `config.strategy`; `secret` keys its hashes."""
    if config.strategy == "prefixaware":
        return PrefixAware(config.prefix_memory_blocks)
    if config.strategy == "kvaware":
        return KvAware(config.prefix_memory_blocks, secret)
    if config.strategy == "session":
        return SessionPolicy()
    return RoundRobin()
