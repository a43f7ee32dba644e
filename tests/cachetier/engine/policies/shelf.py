"""A store without values around a policy, as a real one would call it."""

from __future__ import annotations

from cachetier.engine.policies import EvictionPolicy


class Shelf:
    """Keys and what they cost, never more than the capacity."""

    def __init__(self, policy: EvictionPolicy, capacity: int) -> None:
        self.policy = policy
        self.capacity = capacity
        self.costs: dict[bytes, int] = {}
        self.evicted: list[bytes] = []

    @property
    def used(self) -> int:
        return sum(self.costs.values())

    def ask(self, key: bytes, cost: int = 1) -> bool:
        """A use of what is there; what is not is put there. Whether it was."""
        if key in self.costs:
            self.policy.used(key)
            return True
        self.put(key, cost)
        return False

    def put(self, key: bytes, cost: int) -> None:
        while self.used - self.costs.get(key, 0) + cost > self.capacity:
            self.evict()
        self.costs[key] = cost
        self.policy.added(key, cost)

    def evict(self) -> None:
        victim = self.policy.victim()
        assert victim is not None, "no victim while there are keys"
        assert victim in self.costs, "a victim nobody has"
        self.let_go(victim)

    def let_go(self, key: bytes) -> None:
        del self.costs[key]
        self.policy.evicted(key)
        self.evicted.append(key)


def names(text: str) -> list[bytes]:
    return [word.encode() for word in text.split()]
