"""Routing policies: one pure object per strategy, registered here."""

from __future__ import annotations

from collections.abc import Sequence

from routing.engine.config import Config
from routing.engine.policies.base import RoutingPolicy
from routing.engine.policies.canary import CanaryPolicy, prefix_memory
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy

# Strategies without settings or state of others.
PLAIN: dict[str, type[RoutingPolicy]] = {"session": SessionPolicy, "roundrobin": RoundRobin}


def build_policy(
    config: Config, secret: bytes, known: Sequence[RoutingPolicy] = ()
) -> RoutingPolicy:
    """Return the policy of `config`; `secret` keys its hashes.

    It is empty, except for `known` policies, which are used again where their settings agree: a
    canary starts and ends without a loss of memory.
    """
    blocks = config.prefix_memory_blocks
    control = build_strategy(config.strategy, blocks, secret, known)
    canary = config.canary
    if canary is None:
        return control
    blocks = canary.prefix_memory_blocks or blocks
    return CanaryPolicy(control, build_strategy(canary.strategy, blocks, secret, (control, *known)))


def build_strategy(
    strategy: str, blocks: int, secret: bytes, known: Sequence[RoutingPolicy]
) -> RoutingPolicy:
    """Return one strategy; `known` as in `build_policy`."""
    memories: dict[int, PrefixAware] = {}
    for policy in known:
        memory = prefix_memory(policy)
        if policy.name == strategy and (memory is None or memory.limit == blocks):
            return policy
        if memory is not None:
            memories.setdefault(memory.limit, memory)
    if strategy == "prefixaware":
        return memories.get(blocks) or PrefixAware(blocks)
    if strategy == "kvaware":
        return KvAware(blocks, secret, memories.get(blocks))
    return PLAIN[strategy]()
