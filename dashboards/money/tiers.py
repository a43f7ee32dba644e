"""What a cache tier costs an hour, and how its users share that.

Promises that a price nobody said is not known, with a sentence on what would make it known: what a
node on a cluster runs on is not looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cachetier import selectors as cachetier
from cachetier.tier_spec import GIB, TierSpec
from console.catalogue.builtin import Instance
from dashboards.cost.formulas import HOUR_S, Counts, L2Cost, shares
from dashboards.cost.needs import THIS_MACHINE
from dashboards.money.models import TierPrice

HOURS_A_MONTH = 730.0
"""Disks are priced by the month: 365 days of 24 hours over 12."""

Price = Callable[[str], float | None]
"""Of the machine of that name, an hour."""
Uses = Mapping[str, tuple[str, Counts]]
"""By endpoint: its tier, "" for none, and what it used."""


@dataclass(frozen=True, slots=True)
class TierRate:
    """Of all nodes together. `usd_hour` None: `why` says what would make it known. `since`: when it
    was made, None for one which is not ours."""

    name: str
    usd_hour: float | None
    words: str = ""
    why: str = ""
    since: datetime | None = None

    def hours_within(self, begin: float, end: float) -> float:
        """How long it was there between two moments (epoch seconds)."""
        made = self.since.timestamp() if self.since else begin
        return max(0.0, end - max(begin, made)) / HOUR_S


def rates(machines: Mapping[str, Instance], price: Price) -> dict[str, TierRate]:
    """Every tier of ours, and what was said of others, in three queries."""
    said = {row.name: row for row in TierPrice.objects.all()}
    found = {name: _of_somebody(row) for name, row in said.items()}
    for tier in cachetier.tiers():
        one = _ours(tier.name, tier.spec, said.get(tier.name), machines, price)
        found[tier.name] = TierRate(one.name, one.usd_hour, one.words, one.why, tier.created_at)
    return found


def split(known: Mapping[str, TierRate], uses: Uses, begin: float, end: float) -> dict[str, L2Cost]:
    """What each user of a tier pays of it for the time between two moments (epoch seconds)."""
    found = {}
    for tier in {tier for tier, _ in uses.values() if tier}:
        rate = known.get(tier) or unknown(tier)
        parts = shares({name: counts for name, (one, counts) in uses.items() if one == tier})
        for name, part in parts.items():
            if rate.usd_hour is None:
                found[name] = L2Cost(None, rate.why)
            else:
                hours = rate.hours_within(begin, end)
                words = f"{part:.0%} of {tier}: {rate.words}"
                found[name] = L2Cost(rate.usd_hour * hours * part, words=words)
    return found


def hour_of(moment: datetime) -> tuple[float, float]:
    begin = moment.astimezone(UTC).timestamp()
    return begin, begin + HOUR_S


def unknown(tier: str) -> TierRate:
    return TierRate(tier, None, why=f"What {tier} costs is not known: say it under Cache tiers.")


def _of_somebody(row: TierPrice) -> TierRate:
    if row.usd_hour is None:
        return unknown(row.name)
    return TierRate(row.name, row.usd_hour, f"{row.usd_hour:g} USD an hour")


def _ours(
    name: str,
    spec: TierSpec,
    said: TierPrice | None,
    machines: Mapping[str, Instance],
    price: Price,
) -> TierRate:
    if said is not None and said.usd_hour is not None:
        return _of_somebody(said)
    machine = said.machine if said and said.machine else "" if spec.cluster else THIS_MACHINE
    instance, usd = machines.get(machine), price(machine) if machine else None
    if not machine:
        return unknown(name)
    if instance is None or usd is None:
        why = f"The price of {machine}, which the nodes of {name} run on, is not known."
        return TierRate(name, None, why=f"{why} Give it under Instance types.")
    part = spec.memory_bytes / instance.memory_bytes
    words = f"{spec.node_count} x {part:.1%} of the memory of {machine} at {usd:g} USD an hour"
    total = spec.node_count * part * usd
    if spec.disk_bytes and machine != THIS_MACHINE:
        each = said.disk_usd_gib_month if said else None
        if each is None:
            why = f"What the disks of {name} cost is not known: say it under Cache tiers."
            return TierRate(name, None, why=why)
        total += spec.node_count * spec.disk_bytes / GIB * each / HOURS_A_MONTH
        words += f", {spec.disk_bytes / GIB:g} GiB of disk each at {each:g} USD a GiB and month"
    return TierRate(name, total, words)
