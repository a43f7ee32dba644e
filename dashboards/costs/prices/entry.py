"""Missing prices of instance types, and their entry in place: one amount in USD/h.

The size of a machine missing in the catalogue is taken from this machine or from the
inventory of the cluster. Public on-demand list prices are offered beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date
from typing import Any

from django.utils import timezone

from console.accounts.permissions import require
from console.catalogue import selectors
from console.catalogue.core.builtin import BUILTIN, GIB, Instance
from console.catalogue.instance_types import INSTANCE_TYPES
from console.clusters import selectors as clusters
from console.core.errors import Problem, Refused
from dashboards.costs.formulas.price_terms import THIS_MACHINE, Needs, label
from endpoints.placement import installation

OWN_HARDWARE = "Own price"
FIELD = "usd_hour"
REMEDY = "Enter USD per hour of the whole machine, such as 1.20."


@dataclass(frozen=True, slots=True)
class MissingPrice:
    """Machine without a price. `size`: resources of the machine, None if unknown (set them under
    Instance types).
    """

    machine: str
    endpoints: tuple[str, ...]
    size: Instance | None
    offers: tuple[PriceOffer, ...] = ()

    @property
    def label(self) -> str:
        return label(self.machine)

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
    row = selectors.find(machine)
    size = row.instance if row else _measure(machine) or _measure_pools().get(machine)
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
    row = selectors.find(machine)
    size = row.instance if row else _measure(machine) or _measure_pools().get(machine)
    if size is None:
        text = f"The size of {machine} is unknown, so its price cannot be split among workers."
        remedy = "Add it under Instance types with vCPUs, memory and GPUs."
        raise Refused(Problem("machine", machine, text, remedy, "unknown"))
    had = row is not None and row.price_usd_hour is not None
    today = timezone.now().astimezone(UTC).date()
    since: date = today if had else today.replace(day=1)
    fields = {} if row else INSTANCE_TYPES.fields.values(selectors.make_row(size))
    fields |= {
        "price_usd_hour": amount,
        "price_date": since,
        "price_source": listed.words if listed else OWN_HARDWARE,
    }
    return INSTANCE_TYPES.save(actor, machine, fields).instance


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
    instances = {}
    for cluster in clusters.clusters():
        for pool in cluster.inventory.pools if cluster.status.seen_at else ():
            gpus = pool.gpus_per_node if pool.gpu_memory_bytes else 0
            if pool.instance_type and pool.cpus and pool.memory_bytes:
                instances[pool.instance_type] = Instance(
                    pool.instance_type,
                    max(1, int(pool.cpus)),
                    pool.memory_bytes,
                    pool.gpu if gpus else "",
                    gpus,
                    pool.gpu_memory_bytes if gpus else 0,
                )
    return instances


MAX_OFFERS = 3
_SOURCE, _DATE = "EC2, us-east-1, on demand", date(2026, 11, 23)
# Machines without GPUs, which the catalogue of worker machines leaves out.
_CPU_ONLY = tuple(
    Instance(
        f"m7i.{size}",
        vcpus,
        4 * vcpus * GIB,
        price_usd_hour=price,
        price_date=_DATE,
        price_source=_SOURCE,
    )
    for size, vcpus, price in (
        ("large", 2, 0.1008),
        ("xlarge", 4, 0.2016),
        ("2xlarge", 8, 0.4032),
        ("4xlarge", 16, 0.8064),
        ("8xlarge", 32, 1.6128),
        ("16xlarge", 64, 3.2256),
        ("24xlarge", 96, 4.8384),
        ("48xlarge", 192, 9.6768),
    )
)


@dataclass(frozen=True, slots=True)
class PriceOffer:
    """List price of an instance type, with its resources, source and date."""

    name: str
    usd_hour: float
    holds: str
    source: str
    day: date

    @property
    def words(self) -> str:
        """Return the stored source of the price."""
        return f"List price of {self.name}: {self.source}, {self.day}"


def find_offer(name: str) -> PriceOffer | None:
    return next((_offer(instance) for instance in _priced() if instance.name == name), None)


def list_offers(like: Instance) -> list[PriceOffer]:
    """Return the list prices of machines with the same GPUs, the closest in processors first."""
    same = [
        instance for instance in _priced() if (instance.gpu, instance.gpus) == (like.gpu, like.gpus)
    ]
    same.sort(key=lambda one: (abs(one.vcpus - like.vcpus), one.name))
    return [_offer(size_offer) for size_offer in same[:MAX_OFFERS]]


def _priced() -> Iterator[Instance]:
    yield from (
        instance_type
        for instance_type in BUILTIN.values()
        if instance_type.price_usd_hour is not None
    )
    yield from _CPU_ONLY


def _offer(one: Instance) -> PriceOffer:
    assert one.price_usd_hour is not None
    assert one.price_date is not None
    gpus = f"{one.gpus} × {one.gpu}, " if one.gpus else ""
    holds = f"{gpus}{one.vcpus} vCPUs, {one.memory_bytes / GIB:.0f} GiB"
    return PriceOffer(one.name, one.price_usd_hour, holds, one.price_source, one.price_date)
