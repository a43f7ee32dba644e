"""Facts that advice needs beside the recording: prices of memory, the L2 tier, and misses."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.utils import timezone

from cachetier import selectors as cache_tiers
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs, parse_stored_needs
from dashboards.costs.formulas.savings import rate
from dashboards.costs.prices.machines import occupied_machines
from dashboards.costs.prices.tiers import GIB, Terms, rates
from dashboards.insight.advisor.formulas.candidates import CandidateOptions, Values
from dashboards.insight.advisor.formulas.layouts import measure_layout
from dashboards.insight.misses import report as misses
from endpoints.models import Endpoint
from endpoints.spec.endpoint_spec import EndpointSpec

MISSES_RANGE = "24h"
SALT_CAUSE = "other_salt"


@dataclass(frozen=True, slots=True)
class WorkerPrices:
    """Price of a worker (USD/h) by its L1 size, as on the page Costs."""

    needs: Needs
    catalogue: Mapping[str, Any]

    def __call__(self, l1_gib: float) -> float | None:
        return rate(replace(self.needs, l1_bytes=int(l1_gib * GIB)), self.catalogue).usd_hour

    @property
    def why(self) -> str:
        return rate(self.needs, self.catalogue).why


def worker_prices(endpoint: Endpoint) -> WorkerPrices:
    return WorkerPrices(parse_stored_needs(endpoint.spec), occupied_machines())


def with_prices(present: Values, prices: WorkerPrices) -> Values:
    """Return the values with the price that the costs use, if it is known."""
    price = prices(present["l1_gib"])
    return present if price is None else {**present, "price_usd_hour": price}


def candidate_options(
    spec: EndpointSpec, prices: WorkerPrices, present: Values
) -> CandidateOptions:
    """An entered price replaces the known one, and has no part for L1."""
    entered = present["price_usd_hour"] != prices(present["l1_gib"])
    return CandidateOptions(
        worker_price=(lambda _size: present["price_usd_hour"]) if entered else prices,
        replicas=not spec.scaling.enabled,
        l2=find_tier(spec) is not None,
    )


def find_tier(spec: EndpointSpec) -> str | None:
    """Return the tier that L2 uses or could use; None for a Redis, or if there is none."""
    l2 = spec.cache.l2
    if l2.enabled and l2.backend != "tieredstorage":
        return None
    tiers = cache_tiers.tier_clusters()
    if l2.tier in tiers and (l2.enabled or tiers[l2.tier] == spec.placement.cluster):
        return l2.tier
    near = sorted(name for name, cluster in tiers.items() if cluster == spec.placement.cluster)
    return near[0] if near else None


def collect_facts(endpoint: Endpoint, prices: WorkerPrices) -> dict[str, Any]:
    """Return JSON. Queries the routers for their misses."""
    spec = endpoint.parsed
    name = find_tier(spec)
    return {
        "worker_why": prices.why,
        "autoscaled": spec.scaling.enabled,
        "l2": None if name is None else _tier_facts(name, prices),
        "l2_redis": spec.cache.l2.enabled and spec.cache.l2.backend != "tieredstorage",
        "isolation": spec.routing.cache_isolation,
        "misses": _miss_facts(endpoint),
    }


def _tier_facts(name: str, prices: WorkerPrices) -> dict[str, Any]:
    catalogue = prices.catalogue

    def price(machine: str) -> float | None:
        machine_type = catalogue.get(machine)
        return machine_type.price_usd_hour if machine_type else None

    tier = cache_tiers.get_tier(name)
    rate = rates(catalogue, price, timezone.now().date()).get(name)
    if tier is not None and rate is not None:
        terms, why = rate.terms, rate.why or rate.terms.why
    else:  # made on first use, on this machine
        machine = catalogue.get(THIS_MACHINE)
        usd = price(THIS_MACHINE)
        each = None if machine is None or usd is None else usd / (machine.memory_bytes / GIB)
        terms, why = Terms(memory=each), "The machine's memory has no price. Set it under Costs."
    # A tier with a price of its own has none for each GiB.
    each = None if terms.whole else terms.memory
    if terms.whole:
        why = f"{name} has one price for the whole tier, so a GiB has none."
    users = cache_tiers.visible_users(None).get(name, [])
    return {
        "tier": name,
        "exists": tier is not None,
        "generation": tier.generation if tier else 0,
        "nodes": tier.node_count if tier else 1,
        "copies": tier.copies if tier else 1,
        "memory_gib": tier.memory_bytes / GIB if tier else 0.0,
        "users": len(users),
        "usd_gib_hour": each,
        "why": "" if each is not None else why,
    }


def _miss_facts(endpoint: Endpoint) -> dict[str, Any]:
    report = misses.report(endpoint, MISSES_RANGE)
    hours = [hour.start.timestamp() for hour in report.hours]
    span = max((time.time() - min(hours)) / 3600, 1.0) if hours else 0.0
    salted = {
        row.label: tokens
        for row in report.keys
        if (tokens := report.totals.keys[row.code][SALT_CAUSE])
    }
    return {
        "error": report.error,
        "hours": min(span, 24.0),
        "requests": report.totals.requests,
        "prompt": report.totals.prompt,
        "computed": report.totals.computed,
        "usd_token": report.price.usd,
        "seconds_token": report.price.seconds,
        "price_error": report.price.error,
        "price_why": report.price.why,
        "salted": salted,
        "salted_tokens": report.totals.causes[SALT_CAUSE],
        "templates": [
            {
                "code": row.code,
                "cause": row.cost.label,
                "decision": row.totals.decision,
                "offset": row.totals.offset,
                "part": row.totals.part,
                "requests": row.totals.requests,
                "stable": row.totals.stable,
                "computed": row.cost.tokens,
                "saved": row.saving.tokens,
                "remedy": row.cost.remedy.text if row.cost.remedy else "",
                "prefixes": sorted(row.totals.prefixes),
                "use": asdict(measure_layout(report.totals, row.code, ())),
            }
            for row in report.templates
        ],
    }
