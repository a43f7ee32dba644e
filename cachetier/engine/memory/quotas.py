"""Memory quotas per namespace: above its quota a namespace evicts its own values.

A gate of the store. Namespaces without a quota share the rest. Disk is not counted: values evicted
by a quota may stay there.
"""

from __future__ import annotations

from collections.abc import Mapping

from cachetier.engine.policies import EvictionPolicy, make_policy
from cachetier.engine.store import Declined, DeclineReason, EvictionReason, Gate
from cachetier.wire import envelope


class _NamespaceValues:
    """Values of one namespace with their own eviction order."""

    __slots__ = ("limit", "policy", "used")

    def __init__(self, limit: int, policy: EvictionPolicy) -> None:
        self.limit = limit
        self.policy = policy
        self.used = 0


class Quotas(Gate):
    """Quota gate; `policy` is the eviction policy within a namespace."""

    def __init__(self, limits: Mapping[str, int], policy: str) -> None:
        self._shares = {
            namespace: _NamespaceValues(limit, make_policy(policy, limit))
            for namespace, limit in limits.items()
        }

    def refuses(self, key: bytes, cost: int, now: float) -> Declined | None:  # noqa: ARG002
        share = self._share(key)
        if share is None or cost <= share.limit:
            return None
        return Declined(
            DeclineReason.QUOTA,
            f"{cost} bytes are more than the quota of this namespace ({share.limit} bytes)",
        )

    def crowded(self, key: bytes, cost: int) -> bytes | None:
        share = self._share(key)
        if share is None or share.used + cost <= share.limit:
            return None
        return share.policy.victim()

    def added(self, key: bytes, cost: int) -> None:
        share = self._share(key)
        if share is not None:
            share.used += cost
            share.policy.added(key, cost)

    def used(self, key: bytes) -> None:
        share = self._share(key)
        if share is not None:
            share.policy.used(key)

    def left(self, key: bytes, cost: int, reason: EvictionReason | None) -> None:
        share = self._share(key)
        if share is None:
            return
        share.used -= cost
        if reason in (EvictionReason.CAPACITY, EvictionReason.QUOTA):
            share.policy.evicted(key)
        else:
            share.policy.removed(key)

    def _share(self, key: bytes) -> _NamespaceValues | None:
        return self._shares.get(envelope.parse_namespace(key))
