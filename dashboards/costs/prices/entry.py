"""Missing prices of instance types, and their entry in place: one amount in USD/h.

The size of a machine that the catalogue does not know is taken from this machine or from the
inventory of the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

from django.utils import timezone

from console.accounts.permissions import require
from console.catalogue import actions as catalogue
from console.catalogue import selectors
from console.catalogue.core import rules
from console.catalogue.core.builtin import GIB, Instance
from console.clusters import selectors as clusters
from console.core.errors import Problem, Refused
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs
from dashboards.costs.prices.list_prices import PriceOffer, find_offer, list_offers
from endpoints.placement import installation

OWN_HARDWARE = "Own price"
FIELD = "usd_hour"
REMEDY = "Enter USD per hour of the whole machine, such as 1.20."


@dataclass(frozen=True, slots=True)
class MissingPrice:
    """`size`: what the machine holds, None if unknown; then it is added under Instance types."""

    machine: str
    endpoints: tuple[str, ...]
    size: Instance | None
    offers: tuple[PriceOffer, ...] = ()

    @property
    def label(self) -> str:
        return "This machine" if self.machine == THIS_MACHINE else self.machine

    @property
    def holds(self) -> str:
        if self.size is None:
            return ""
        gpus = f"{self.size.gpus} × {self.size.gpu}, " if self.size.gpus else ""
        return f"{gpus}{self.size.vcpus} vCPUs, {self.size.memory_bytes / GIB:.0f} GiB"


def list_missing(
    wanted: Iterable[tuple[str, Needs]], known: Mapping[str, Instance]
) -> list[MissingPrice]:
    """Return the unpriced instance types of the named endpoints; one query at most."""
    users: dict[str, list[str]] = {}
    for name, needs in wanted:
        instance = known.get(needs.machine)
        if needs.machine and (instance is None or instance.price_usd_hour is None):
            users.setdefault(needs.machine, []).append(name)
    pools = _measure_pools() if users.keys() - known.keys() - {THIS_MACHINE} else {}
    sizes = {name: known.get(name) or pools.get(name) or _measure(name) for name in users}
    return [_make(machine, names, sizes[machine]) for machine, names in sorted(users.items())]


def make_missing(machine: str) -> MissingPrice | None:
    """Return the entry of an instance type, priced or not; None if its size is unknown."""
    entry = selectors.get(machine)
    size = entry.instance if entry else _measure(machine) or _measure_pools().get(machine)
    return _make(machine, (), size) if size else None


def _make(machine: str, names: Iterable[str], size: Instance | None) -> MissingPrice:
    return MissingPrice(machine, tuple(names), size, tuple(list_offers(size)) if size else ())


def save_price(actor: Any, machine: str, typed: str, offer: str = "") -> Instance:
    """Set the price of an instance type, as typed or as that of a list price.

    The first price applies from the first day of the month, so that the month's report has no
    unpriced days; a later one applies from today.
    """
    require(actor, "operator")
    listed = find_offer(offer) if offer else None
    if offer and listed is None:
        text = f"No list price for {offer}."
        raise Refused(Problem("offer", offer, text, REMEDY, "unknown"))
    amount = listed.usd_hour if listed else _parse_usd(typed)
    entry = selectors.get(machine)
    size = entry.instance if entry else _measure(machine) or _measure_pools().get(machine)
    if size is None:
        text = f"The size of {machine} is unknown, so its price cannot be split among workers."
        remedy = "Add it under Instance types with vCPUs, memory and GPUs."
        raise Refused(Problem("machine", machine, text, remedy, "unknown"))
    had = entry is not None and entry.instance.price_usd_hour is not None
    today = timezone.now().astimezone(UTC).date()
    since: date = today if had else today.replace(day=1)
    facts = {} if entry else rules.to_data(size)
    facts |= {
        "price_usd_hour": amount,
        "price_date": since.isoformat(),
        "price_source": listed.words if listed else OWN_HARDWARE,
    }
    return catalogue.save_instance_type(actor, machine, facts)


def _parse_usd(typed: str) -> float:
    text = typed.strip().removeprefix("$").strip()
    text = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 100_000:
        text = "Enter a price." if not typed.strip() else f'"{typed.strip()[:40]}" is not a price.'
        raise Refused(Problem(FIELD, typed[:40], text, REMEDY, "out_of_range"))
    return amount


def _measure(machine: str) -> Instance | None:
    if machine != THIS_MACHINE:
        return None
    return Instance(machine, os.cpu_count() or 1, installation.memory_bytes())


def _measure_pools() -> dict[str, Instance]:
    """Return the node sizes that the clusters report, by instance type."""
    found = {}
    for cluster in clusters.clusters():
        for pool in cluster.inventory.pools if cluster.status.seen_at else ():
            gpus = pool.gpus_per_node if pool.gpu_memory_bytes else 0
            if pool.instance_type and pool.cpus and pool.memory_bytes:
                found[pool.instance_type] = Instance(
                    pool.instance_type,
                    max(1, int(pool.cpus)),
                    pool.memory_bytes,
                    pool.gpu if gpus else "",
                    gpus,
                    pool.gpu_memory_bytes if gpus else 0,
                )
    return found
