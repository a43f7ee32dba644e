"""Preconditions of checks: the reason a check cannot run, "" if it can. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from routing.doctor.facts import FleetFacts, Statement, WorkerFacts
from routing.doctor.findings import KVAWARE


def always_runs(_facts: FleetFacts) -> str:
    return ""


def require_router(facts: FleetFacts) -> str:
    return "The router did not answer." if facts.router.error else ""


def require_kvaware(facts: FleetFacts) -> str:
    """Require that the router uses the KV index."""
    if facts.router.error:
        return require_router(facts)
    if facts.router.strategy != KVAWARE:
        return f"The strategy is {facts.router.strategy}: the router follows no cache."
    if facts.router.kv is None:
        return f"The router shows no KV index. {facts.router.kv_error}".rstrip()
    return ""


def require_workers(facts: FleetFacts) -> str:
    if not facts.workers:
        return "There is no worker."
    return "" if any(worker.answers for worker in facts.workers) else "No worker answered."


def require_two(part: Callable[[WorkerFacts], Statement[Any]]) -> Callable[[FleetFacts], str]:
    def skip(facts: FleetFacts) -> str:
        if why := require_workers(facts):
            return why
        require_one = sum(part(worker).found is not None for worker in facts.workers)
        return "" if require_one > 1 else "There are no two workers to compare."

    return skip


def require_one(
    part: Callable[[WorkerFacts], Statement[Any]], what: str
) -> Callable[[FleetFacts], str]:
    def skip(facts: FleetFacts) -> str:
        if why := require_workers(facts):
            return why
        known = any(part(worker).found is not None for worker in facts.workers)
        return "" if known else f"No worker told {what}."

    return skip
