"""Two strategies on one fleet: the configured one and the canary's candidate.

Both observe the same loads and remember every prompt sent, so that a session finds the same caches
whichever arm routes it. Strategies that remember prompts share one memory where their settings
agree, so that observing twice costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.engine.policies.base import MAX_CANDIDATES, Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.load_order import RoutingTarget
from routing.engine.policies.prefixaware import PrefixAware

CONTROL, CANDIDATE = 0, 1


class CanaryPolicy(RoutingPolicy):
    """Ranks by the arm in `facts.arm`; named after the control."""

    needs_session = True  # sessions are assigned to arms

    def __init__(self, control: RoutingPolicy, candidate: RoutingPolicy) -> None:
        self.arms = (control, candidate)
        self.name = control.name
        self.by_turn = control.by_turn
        self.needs_chain = control.needs_chain or candidate.needs_chain
        self.reasons = tuple(dict.fromkeys((*control.reasons, *candidate.reasons)))
        self._observers = _observers(control, candidate)

    def rank(self, facts: RequestFacts, fleet: Fleet, shown: int = MAX_CANDIDATES) -> Pick:
        arm = self.arms[facts.arm]
        if fleet.order is not None and arm.by_turn != self.by_turn:
            # The load order belongs to the control: scan all workers instead.
            plain = Fleet(fleet.eligible, fleet.others)
            plain.tried = fleet.tried
            return arm.rank(facts, plain, shown)
        return arm.rank(facts, fleet, shown)

    def sent(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        for policy in self._observers:
            policy.sent(facts, worker)

    def ended(
        self, facts: RequestFacts, worker: RoutingTarget, prompt: int, cached: int | None
    ) -> None:
        for policy in self._observers:
            policy.ended(facts, worker, prompt, cached)

    def refused(self, facts: RequestFacts, worker: RoutingTarget) -> None:
        for policy in self._observers:
            policy.refused(facts, worker)

    def share(self, worker_id: str) -> float:
        return max(policy.share(worker_id) for policy in self._observers)

    def set_share(self, worker_id: str, share: float) -> None:
        for policy in self._observers:
            policy.set_share(worker_id, share)

    def set_capacity(self, worker_id: str, tokens: int, l1_tokens: int = 0) -> None:
        for policy in self._observers:
            policy.set_capacity(worker_id, tokens, l1_tokens)

    def forget(self, worker: RoutingTarget) -> None:
        for policy in self._observers:
            policy.forget(worker)

    def memory(self, worker_id: str, most_blocks: int) -> list[tuple[float, Sequence[int]]]:
        for policy in self._observers:
            if memory := policy.memory(worker_id, most_blocks):
                return memory
        return []

    def sizes(self) -> dict[str, int]:
        return self.arms[CONTROL].sizes() or self.arms[CANDIDATE].sizes()


def find_kvaware(policy: RoutingPolicy) -> KvAware | None:
    """Return the kvaware strategy, which may be one arm of a canary."""
    arms = policy.arms if isinstance(policy, CanaryPolicy) else (policy,)
    return next((arm for arm in arms if isinstance(arm, KvAware)), None)


def prefix_memory(policy: RoutingPolicy) -> PrefixAware | None:
    """Return the strategy's memory of prompts sent; None: it has none."""
    if isinstance(policy, KvAware):
        return policy.by_prefix
    return policy if isinstance(policy, PrefixAware) else None


def _observers(control: RoutingPolicy, candidate: RoutingPolicy) -> tuple[RoutingPolicy, ...]:
    """Return the policies to inform; a kvaware strategy informs the memory it shares."""
    first, second = prefix_memory(control), prefix_memory(candidate)
    if first is None or first is not second:
        return control, candidate
    return (candidate,) if isinstance(candidate, KvAware) else (control,)
