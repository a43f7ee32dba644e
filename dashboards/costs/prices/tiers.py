"""Cost of cache tiers and its split among their users.

Every user pays by use, including users not visible to the viewer. A tier costs nothing before its
creation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from cachetier import selectors as cachetier
from cachetier.tier.spec import GIB, TierSpec
from console.catalogue.core.builtin import Instance
from console.core.money import format_usd, format_usd_hour
from dashboards.costs.formulas.price_terms import FOREIGN, THIS_MACHINE, label
from dashboards.costs.formulas.savings import HOUR_S, Counts, L2Cost, split_shares
from dashboards.costs.models import CostPlace, TierPrice

HOURS_A_MONTH = 730.0
"""Hours of a month (365 days / 12), since disk prices are per month."""

Price = Callable[[str], float | None]
"""Price of a machine by name (USD/h)."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Prices in USD/h: the whole tier, a GiB of memory, a GiB of disk. None if unknown; `why`
    states what is missing. `machine`: instance type of the nodes, empty if irrelevant.
    """

    whole: float | None = 0.0
    memory: float | None = 0.0
    disk: float | None = 0.0
    machine: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class StatedTierPrice:
    """User-entered prices by tier name, latest first."""

    rows: Mapping[str, Sequence[TierPrice]]

    def on(self, name: str, day: date) -> TierPrice | None:
        price = next((row for row in self.rows.get(name, ()) if row.since <= day), None)
        return price if price is not None and price.is_set else None


def stated_prices() -> StatedTierPrice:
    """Return all entered prices with one query."""
    prices: dict[str, list[TierPrice]] = {}
    for row in TierPrice.objects.order_by("name", "-since"):
        prices.setdefault(row.name, []).append(row)
    return StatedTierPrice(prices)


def terms(
    name: str,
    place: str,
    tier_price: TierPrice | None,
    machines: Mapping[str, Instance],
    price: Price,
) -> Terms:
    if tier_price is not None and tier_price.usd_hour is not None:
        return Terms(whole=tier_price.usd_hour)
    machine = tier_price.machine if tier_price and tier_price.machine else ""
    if place == CostPlace.HERE:
        machine = machine or THIS_MACHINE
    if place not in (CostPlace.HERE, CostPlace.CLUSTER) or not machine:
        return _unknown(f"{name} has no price. Set it under Costs, Cache tiers.")
    instance, usd = machines.get(machine), price(machine)
    if instance is None or usd is None:
        text = f"{label(machine)}, the instance type of {name}, has no price."
        return _unknown(f"{text} Set it under Costs.", machine)
    disk = None if tier_price is None else tier_price.disk_usd_gib_month
    each = None if disk is None else disk / HOURS_A_MONTH
    return Terms(
        memory=usd / (instance.memory_bytes / GIB),
        disk=0.0 if machine == THIS_MACHINE else each,
        machine=machine,
        why=f"The disks of {name} have no price. Set it under Costs, Cache tiers.",
    )


def _unknown(why: str, machine: str = "") -> Terms:
    return Terms(None, None, None, machine, why)


Uses = Mapping[str, tuple[str, Counts]]
"""By endpoint: its tier ("" for none) and its usage."""


@dataclass(frozen=True, slots=True)
class TierRate:
    """Sum over all nodes. `usd_hour` None: `why` states what is missing. `since`: creation time,
    None for external tiers. `memory_gib` and `disk_gib` are totals.
    """

    name: str
    usd_hour: float | None
    words: str = ""
    why: str = ""
    since: datetime | None = None
    place: str = CostPlace.GONE
    terms: Terms = field(default_factory=Terms)
    memory_gib: float = 0.0
    disk_gib: float = 0.0

    def hours_within(self, begin: float, end: float) -> float:
        """Return the hours of existence between two times (epoch seconds)."""
        made = self.since.timestamp() if self.since else begin
        return max(0.0, end - max(begin, made)) / HOUR_S


@dataclass(frozen=True, slots=True)
class TierCostShare:
    """An endpoint's `share` of the use of a tier that existed for `hours`."""

    rate: TierRate
    share: float
    hours: float

    @property
    def cost(self) -> L2Cost:
        if self.rate.usd_hour is None:
            return L2Cost(None, self.rate.why)
        words = f"{self.share:.0%} of {self.rate.name}: {self.rate.words}"
        return L2Cost(self.rate.usd_hour * self.hours * self.share, words=words)


def rates(machines: Mapping[str, Instance], price: Price, day: date) -> dict[str, TierRate]:
    """Return the rates of our tiers and of priced external ones on that day, in three queries."""
    stated = stated_prices()
    ours = {tier.name: tier for tier in cachetier.tiers()}
    tier_rates = {}
    for name in {*stated.rows, *ours}:
        tier, tier_price = ours.get(name), stated.on(name, day)
        if tier is not None:
            place = CostPlace.CLUSTER if tier.spec.cluster else CostPlace.HERE
            rate = _ours(name, tier.spec, terms(name, place, tier_price, machines, price), machines)
            tier_rates[name] = replace(rate, place=place, since=tier.created_at)
        elif tier_price is not None:
            tier_rates[name] = _theirs(name, tier_price, machines, price)
    return tier_rates


def tier_cost_shares(
    known: Mapping[str, TierRate], uses: Uses, begin: float, end: float
) -> dict[str, TierCostShare]:
    """Return each user's part of its tier between two times (epoch seconds)."""
    shares = {}
    for tier in {tier for tier, _ in uses.values() if tier}:
        rate = known.get(tier) or unknown_rate(tier)
        users = split_shares(
            {name: counts for name, (tier_name, counts) in uses.items() if tier_name == tier}
        )
        for name, share in users.items():
            shares[name] = TierCostShare(rate, share, rate.hours_within(begin, end))
    return shares


def unknown_rate(tier: str) -> TierRate:
    """Return the rate of a deleted or external tier without a price."""
    place = _place(tier)
    priced = terms(tier, place, None, {}, lambda _machine: None)
    return TierRate(tier, None, why=priced.why, place=place, terms=priced)


def _place(tier: str) -> CostPlace:
    return CostPlace.FOREIGN if tier.startswith(FOREIGN) else CostPlace.GONE


def _theirs(
    name: str, tier_price: TierPrice, machines: Mapping[str, Instance], price: Price
) -> TierRate:
    place = _place(name)
    priced = terms(name, place, tier_price, machines, price)
    words = "" if priced.whole is None else format_usd_hour(priced.whole)
    return TierRate(name, priced.whole, words, priced.why, place=place, terms=priced)


def _ours(name: str, spec: TierSpec, terms: Terms, machines: Mapping[str, Instance]) -> TierRate:
    memory, disk = (spec.node_count * size / GIB for size in (spec.memory_bytes, spec.disk_bytes))
    usd: float | None = None
    if terms.whole is not None and terms.memory is not None:
        by_disk = terms.disk if disk else 0.0
        usd = None if by_disk is None else terms.whole + memory * terms.memory + disk * by_disk
    words = "" if usd is None else _words(spec, terms, machines)
    why = terms.why if usd is None else ""
    return TierRate(name, usd, words, why, terms=terms, memory_gib=memory, disk_gib=disk)


def _words(spec: TierSpec, terms: Terms, machines: Mapping[str, Instance]) -> str:
    if not terms.machine or terms.memory is None:
        return format_usd_hour(terms.whole)
    name, held = terms.machine, machines[terms.machine].memory_bytes
    part, usd = spec.memory_bytes / held, terms.memory * held / GIB
    machine = "this machine" if name == THIS_MACHINE else name
    words = f"{spec.node_count} × {part:.1%} of the memory of {machine} at {format_usd_hour(usd)}"
    if spec.disk_bytes and terms.disk:
        each = terms.disk * HOURS_A_MONTH
        words += f", {spec.disk_bytes / GIB:g} GiB of disk each at {format_usd(each)}/GiB/month"
    return words
