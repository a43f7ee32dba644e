"""Start and cancel surveys of candidate changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.accounts.permissions import require
from console.audit.record import record
from dashboards.insight.advisor import selectors
from dashboards.insight.advisor.facts import (
    candidate_options,
    collect_facts,
    with_prices,
    worker_prices,
)
from dashboards.insight.advisor.formulas.candidates import list_candidates
from dashboards.insight.advisor.layout_checks import first_check
from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif import actions as whatif
from dashboards.insight.whatif import inputs
from endpoints import selectors as endpoints
from endpoints.refusals import ConflictError

ASSUMPTIONS = ("kv_kib", "device_tokens", "price_usd_hour")
"""Values of the what-if model that a user may enter where they are unknown."""


def start(actor: Any, name: str, given: Mapping[str, Any]) -> Advice:
    """Queue a survey of an endpoint. `given`: ASSUMPTIONS, empty ones as known. Raise Refused."""
    endpoint = endpoints.get(name, viewer=actor)
    require(actor, "operator", of=endpoint)
    latest = selectors.get_latest(name)
    if latest is not None and latest.run.live:
        raise ConflictError(
            "advice_running",
            f"Advice on {name} is being computed already.",
            "Wait for its end, or cancel it.",
        )
    prices = worker_prices(endpoint)
    priced = with_prices(inputs.present_values(endpoint), prices)
    entered = {name: value for name, value in given.items() if value not in (None, "")}
    present = inputs.read_values(entered, priced)
    if inputs.default_period(endpoint) is None:
        raise ConflictError(
            "nothing_recorded",
            f"No traffic of {name} is recorded, so there is no advice.",
            "Switch on its traffic recording (routing.record_traffic) for an hour of requests.",
        )
    candidates = list_candidates(present, candidate_options(endpoint.parsed, prices, present))
    collected = collect_facts(endpoint, prices)
    now = timezone.now()
    with transaction.atomic():
        run = whatif.start_survey(actor, endpoint, present, candidates)
        made = Advice.objects.create(
            endpoint=endpoint,
            run=run,
            generation=endpoint.generation,
            checked_generation=endpoint.generation,
            checked_tier_generation=(collected["l2"] or {}).get("generation", 0),
            layouts_at=first_check(now) if collected["misses"]["templates"] else None,
            created_at=now,
            facts=collected,
        )
        changes = {"run": str(run.pk), "candidates": len(candidates)}
        record(actor, "advice.start", f"endpoint/{name}", changes)
    return made


def cancel(actor: Any, name: str) -> Advice:
    """End the running survey within about a second; an ended one is unchanged."""
    endpoint = endpoints.get(name, viewer=actor)
    require(actor, "operator", of=endpoint)
    latest = selectors.get_latest(name)
    if latest is None:
        raise selectors.no_advice(name)
    whatif.cancel(actor, latest.run)
    latest.run.refresh_from_db()
    return latest
