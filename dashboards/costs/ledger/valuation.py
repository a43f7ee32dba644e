"""What the days that were kept are worth: prices of their day, measured token times.

Promises that running it again changes nothing, and that a price or a measurement which comes later
reaches the days it is for, and no others. What nobody knows stays unknown. Level-triggered: it
compares what stands in the rows with what is known now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from functools import partial

from console.catalogue import selectors as catalogue
from console.catalogue.core.builtin import Instance
from dashboards.costs.formulas.price_terms import Needs
from dashboards.costs.formulas.savings import share
from dashboards.costs.ledger.endpoint_states import needs_of
from dashboards.costs.models import CostDay, CostPlace
from dashboards.costs.prices import tiers
from dashboards.costs.prices.factors import by_settings
from dashboards.costs.prices.tiers import Terms

REACH = timedelta(days=400)
"""How far back a new price counts: as far as use of keys is kept."""


def part(needs: Needs, machines: Mapping[str, Instance]) -> tuple[float | None, float | None]:
    """A worker's share of its machine, and what of it is there because of L1."""
    instance = machines.get(needs.machine)
    if instance is None:
        return None, None
    held = share(needs, instance)
    return held.part, held.l1_part


def revalue(today: date) -> None:
    since = today - REACH
    _parts(since)
    _prices(since)
    _tiers(since)
    _slopes(since)


def _parts(since: date) -> None:
    """Of machines which were in no catalogue then."""
    machines = catalogue.instances()
    lacking = CostDay.objects.filter(day__gte=since, part=None, machine__in=machines)
    for row in lacking:
        row.part, row.l1_part = part(needs_of(row), machines)
        row.save(update_fields=["part", "l1_part"])


def _prices(since: date) -> None:
    prices = catalogue.prices()
    kept = CostDay.objects.filter(day__gte=since).exclude(machine="").order_by()
    for machine, day, price in kept.values_list("machine", "day", "price").distinct():
        now = prices.on(machine, day)
        if now != price:
            CostDay.objects.filter(machine=machine, day=day).update(price=now)


_TIER_PRICES = ("tier_price", "tier_memory_price", "tier_disk_price")


def tier_prices(terms: Terms) -> dict[str, float | None]:
    """By column."""
    return dict(zip(_TIER_PRICES, (terms.whole, terms.memory, terms.disk), strict=True))


def _tiers(since: date) -> None:
    machines, prices, said = catalogue.instances(), catalogue.prices(), tiers.said()
    rows = CostDay.objects.filter(day__gte=since).exclude(tier="").order_by()
    kept = rows.exclude(tier_place=CostPlace.KEPT)
    for tier, place, day, *then in kept.values_list(
        "tier", "tier_place", "day", *_TIER_PRICES
    ).distinct():
        price = partial(prices.on, day=day)
        found = tiers.terms(tier, place, said.on(tier, day), machines, price)
        if found.machine and found.machine not in machines:
            continue  # Removed since: what was known of its size stays.
        now = tier_prices(found)
        if list(now.values()) != then:
            kept.filter(tier=tier, tier_place=place, day=day).update(**now)


def _slopes(since: date) -> None:
    """Only where there was none: another measurement later says nothing of days before it."""
    lacking = CostDay.objects.filter(day__gte=since, slope=None).exclude(settings="").order_by()
    wanted = set(lacking.values_list("settings", flat=True).distinct())
    for settings, slope in by_settings().items():
        if settings in wanted:
            lacking.filter(settings=settings).update(slope=slope)
