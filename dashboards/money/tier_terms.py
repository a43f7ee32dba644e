"""What a cache tier costs an hour on a day: for all of it, and for a GiB of its memory and disks.

Promises that a price nobody said is not known, with a sentence on what would make it known: what a
node on a cluster runs on is not looked up. What was said counts from its day on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from cachetier.tier.spec import GIB
from console.catalogue.core.builtin import Instance
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from dashboards.costs.models import Place, TierPrice

HOURS_A_MONTH = 730.0
"""Disks are priced by the month: 365 days of 24 hours over 12."""

Price = Callable[[str], float | None]
"""Of the machine of that name, an hour."""


@dataclass(frozen=True, slots=True)
class Terms:
    """US dollars an hour: of the whole tier, of a GiB of its memory, of a GiB of its disks. None:
    not known, and `why` says what would make it known. `machine`: what its nodes run on, "" where
    that does not matter."""

    whole: float | None = 0.0
    memory: float | None = 0.0
    disk: float | None = 0.0
    machine: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """By name, what people said of it, the latest first."""

    rows: Mapping[str, Sequence[TierPrice]]

    def on(self, name: str, day: date) -> TierPrice | None:
        found = next((row for row in self.rows.get(name, ()) if row.since <= day), None)
        return found if found is not None and found.says else None

    @property
    def names(self) -> Sequence[str]:
        return list(self.rows)


def said() -> Said:
    """In one query."""
    found: dict[str, list[TierPrice]] = {}
    for row in TierPrice.objects.order_by("name", "-since"):
        found.setdefault(row.name, []).append(row)
    return Said(found)


def terms(
    name: str,
    place: str,
    told: TierPrice | None,
    machines: Mapping[str, Instance],
    price: Price,
) -> Terms:
    if told is not None and told.usd_hour is not None:
        return Terms(whole=told.usd_hour)
    machine = told.machine if told and told.machine else ""
    if place == Place.HERE:
        machine = machine or THIS_MACHINE
    if place not in (Place.HERE, Place.CLUSTER) or not machine:
        return _unknown(f"What {name} costs is not known: say it under Cache tiers.")
    instance, usd = machines.get(machine), price(machine)
    if instance is None or usd is None:
        text = f"The price of {machine}, which the nodes of {name} run on, is not known."
        return _unknown(f"{text} Give it under Instance types.", machine)
    disk = None if told is None else told.disk_usd_gib_month
    each = None if disk is None else disk / HOURS_A_MONTH
    return Terms(
        memory=usd / (instance.memory_bytes / GIB),
        disk=0.0 if machine == THIS_MACHINE else each,
        machine=machine,
        why=f"What the disks of {name} cost is not known: say it under Cache tiers.",
    )


def _unknown(why: str, machine: str = "") -> Terms:
    return Terms(None, None, None, machine, why)
