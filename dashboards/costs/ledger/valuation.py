"""Value stored days with the prices of their day and measured token times.

Idempotent and level-triggered. A price or calibration entered later applies to the days it is for
and no others. Unknown values stay unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from functools import partial

from console.catalogue import selectors as catalogue
from console.catalogue.core.builtin import Instance
from dashboards.costs.formulas.price_terms import Needs
from dashboards.costs.formulas.savings import worker_share
from dashboards.costs.ledger.endpoint_states import stored_needs
from dashboards.costs.models import CostDay, CostPlace
from dashboards.costs.prices import tiers
from dashboards.costs.prices.factors import by_settings
from dashboards.costs.prices.tiers import Terms

REACH = timedelta(days=400)
"""How far back a new price counts: as far as use of keys is kept."""


def machine_part(
    needs: Needs, machines: Mapping[str, Instance]
) -> tuple[float | None, float | None]:
    """Return a worker's share of its machine, and the part of it due to L1."""
    instance = machines.get(needs.machine)
    if instance is None:
        return None, None
    held = worker_share(needs, instance)
    return held.part, held.l1_part


def revalue(today: date) -> None:
    since = today - REACH
    _parts(since)
    _prices(since)
    _tiers(since)
    _slopes(since)


def _parts(since: date) -> None:
    """Fill in machines that were missing in the catalogue."""
    machines = catalogue.instances_by_name()
    lacking = CostDay.objects.filter(day__gte=since, part=None, machine__in=machines)
    for row in lacking:
        row.part, row.l1_part = machine_part(stored_needs(row), machines)
        row.save(update_fields=["part", "l1_part"])


def _prices(since: date) -> None:
    prices = catalogue.load_prices()
    kept = CostDay.objects.filter(day__gte=since).exclude(machine="").order_by()
    for machine, day, price in kept.values_list("machine", "day", "price").distinct():
        now = prices.on(machine, day)
        if now != price:
            CostDay.objects.filter(machine=machine, day=day).update(price=now)


_TIER_PRICES = ("tier_price", "tier_memory_price", "tier_disk_price")


def tier_prices(terms: Terms) -> dict[str, float | None]:
    """Return the prices by column."""
    return dict(zip(_TIER_PRICES, (terms.whole, terms.memory, terms.disk), strict=True))


def _tiers(since: date) -> None:
    machines, prices, said = (
        catalogue.instances_by_name(),
        catalogue.load_prices(),
        tiers.stated_prices(),
    )
    rows = CostDay.objects.filter(day__gte=since).exclude(tier="").order_by()
    kept = rows.exclude(tier_place=CostPlace.KEPT)
    for tier, place, day, *then in kept.values_list(
        "tier", "tier_place", "day", *_TIER_PRICES
    ).distinct():
        price = partial(prices.on, day=day)
        found = tiers.terms(tier, place, said.on(tier, day), machines, price)
        if found.machine and found.machine not in machines:
            continue  # tier removed since: its stored size stays
        now = tier_prices(found)
        if list(now.values()) != then:
            kept.filter(tier=tier, tier_place=place, day=day).update(**now)


def _slopes(since: date) -> None:
    """Fill missing slopes only: a later calibration does not apply to earlier days."""
    lacking = CostDay.objects.filter(day__gte=since, slope=None).exclude(settings="").order_by()
    wanted = set(lacking.values_list("settings", flat=True).distinct())
    for settings, slope in by_settings().items():
        if settings in wanted:
            lacking.filter(settings=settings).update(slope=slope)
