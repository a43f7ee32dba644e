"""Checks that several routers of an endpoint agree and exchange state. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from routing.client.router_reports import disagreements, unheard
from routing.doctor.facts import FleetFacts
from routing.doctor.findings import DoctorFinding, Severity, doctor_check, require_router


def require_two_routers(facts: FleetFacts) -> str:
    """Require that two of several routers responded; a single one agrees with itself."""
    responded = sum(not router.error for router in facts.routers)
    if responded > 1 or len(facts.routers) < 2:
        return require_router(facts) if len(facts.routers) < 2 else ""
    return "Fewer than two routers responded."


@doctor_check("RoutersDisagree", "All routers report the same state", require_two_routers, kv=False)
def check_disagreement(facts: FleetFacts) -> Iterator[DoctorFinding]:
    lines = disagreements(facts.routers)
    if lines:
        yield DoctorFinding(
            Severity.WARNING,
            "Routers disagree, so the same request may be routed differently by each.",
            "Within a second of a change this is expected. If it persists, check from the router "
            "that differs that it reaches the workers, their KV events and the state store.",
            lines,
        )


@doctor_check("RoutersSeparate", "Several routers share state", require_two_routers, kv=False)
def check_separate(facts: FleetFacts) -> Iterator[DoctorFinding]:
    alone = [
        router.name for router in facts.routers if not router.error and router.exchange is None
    ]
    if alone and len(facts.routers) > 1:
        yield DoctorFinding(
            Severity.WARNING,
            "Routers share no state: each knows its own requests only, which costs cache hits, and "
            "limits are divided among them.",
            "Use one router, or set a state store: router.state_store.url of the endpoint, its "
            "redis L2 cache, or the installation's (stateStore.url of the chart, "
            "EMBERLINE_STATE_STORE_URL).",
            tuple(f"{name}: no state store" for name in alone),
        )


@doctor_check("StateStoreAway", "The state store of the routers responds", require_router, kv=False)
def check_store_away(facts: FleetFacts) -> Iterator[DoctorFinding]:
    away = [
        f"{router.name}: {router.exchange.store}: {router.exchange.error or 'not connected'}. "
        f"{router.exchange.remedy}".rstrip()
        for router in facts.routers
        if router.exchange is not None and not router.exchange.connected
    ]
    if away:
        yield DoctorFinding(
            Severity.ERROR,
            "The state store does not respond to routers: they do not see the load of the others, "
            "and limits and budgets are divided.",
            "Check what the details name. Routers reconnect by themselves.",
            tuple(away),
        )


@doctor_check("RoutersUnheard", "Connected routers hear each other", require_two_routers, kv=False)
def check_unheard(facts: FleetFacts) -> Iterator[DoctorFinding]:
    lines = unheard(facts.routers)
    if lines:
        rejected = tuple(
            f"{router.name} rejected {count} messages: {reason}"
            for router in facts.routers
            if router.exchange is not None
            for reason, count in router.exchange.rejected.items()
        )
        yield DoctorFinding(
            Severity.ERROR,
            "Routers are connected to the state store and do not hear each other.",
            "Give all routers of the endpoint the same store and database, hash_key_file, "
            "namespace, endpoint and version (messages rejected as other_version: wait for the "
            "rollout to end).",
            lines + rejected,
        )
