"""Ranking of a request without side effects, for /explain, under any strategy.

Uses the strategies' own code on the live fleet. Rejects strategies whose state this router lacks:
prefix memory (prefixaware, kvaware) or KV events (kvaware).
"""

from __future__ import annotations

from routing.engine.errors import Refusal
from routing.engine.http.http1 import RequestHead
from routing.engine.kvaware.placement import explain_blocks
from routing.engine.policies.base import Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.policies.prefixaware import PrefixAware
from routing.engine.policies.session import RoundRobin, SessionPolicy
from routing.engine.prompt.identity import Identifier, find_session
from routing.engine.router import Router


async def explain(router: Router, head: RequestHead, body: bytes) -> tuple[Pick, RequestFacts, str]:
    """Return the pick, the facts, and why the request's blocks are unknown ("" if known or unused).
    Raise Refusal.
    """
    identity = await router.read_body(head, body, path=b"")
    facts = identity.facts
    fallback = ""
    if router.kv is not None:
        fallback = explain_blocks(router.kv, body, identity)
    if not router.table.eligible:
        raise Refusal("no_healthy_worker", "No worker can take this request now.")
    fleet = router.table.fleet
    return router.policy.rank(facts, fleet, shown=len(fleet)), facts, fallback


async def explain_as(
    router: Router, strategy: str, head: RequestHead, body: bytes
) -> tuple[Pick, RequestFacts]:
    policy = _build_policy(router.policy, strategy)
    config = router.config
    key = config.session_key if policy.needs_session else None
    identifier = Identifier(
        config.hash_key, config.prefix_block_bytes, key, b"", router.ratios, config.limits
    )
    session = find_session(head, key)
    identity = await identifier.read_large(b"", body, session, policy.needs_chain)
    if not router.table.eligible:
        raise Refusal("no_healthy_worker", "No worker can take this request now.")
    fleet = router.table.fleet
    # The load order belongs to the active strategy: scan all workers instead.
    plain = Fleet(fleet.eligible, fleet.others)
    return policy.rank(identity.facts, plain, shown=len(fleet)), identity.facts


def _build_policy(current: RoutingPolicy, strategy: str) -> RoutingPolicy:
    if strategy == RoundRobin.name:
        return RoundRobin()
    if strategy == SessionPolicy.name:
        return SessionPolicy()
    if strategy == PrefixAware.name and isinstance(current, KvAware):
        return current.by_prefix
    if strategy in (PrefixAware.name, KvAware.name):
        lacks = "follows no cache" if strategy == KvAware.name else "remembers no prefixes"
        text = f"While its strategy is {current.name} the router {lacks}, so it cannot say."
        raise Refusal("bad_request", text, "strategy")
    raise Refusal("bad_request", "There is no such strategy.", "strategy")
