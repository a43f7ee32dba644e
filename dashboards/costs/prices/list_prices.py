"""Public on-demand list prices, offered where an instance type has no price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from console.catalogue.core.builtin import BUILTIN, GIB, Instance

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
    """The list price of an instance type, with what it holds, its source and date."""

    name: str
    usd_hour: float
    holds: str
    source: str
    day: date

    @property
    def words(self) -> str:
        """Return what is stored as the source of the price."""
        return f"List price of {self.name}: {self.source}, {self.day}"


def find_offer(name: str) -> PriceOffer | None:
    return next((_offer(one) for one in _priced() if one.name == name), None)


def list_offers(like: Instance) -> list[PriceOffer]:
    """Return the list prices of machines with the same GPUs, the closest in processors first."""
    same = [one for one in _priced() if (one.gpu, one.gpus) == (like.gpu, like.gpus)]
    same.sort(key=lambda one: (abs(one.vcpus - like.vcpus), one.name))
    return [_offer(one) for one in same[:MAX_OFFERS]]


def _priced() -> Iterator[Instance]:
    yield from (one for one in BUILTIN.values() if one.price_usd_hour is not None)
    yield from _CPU_ONLY


def _offer(one: Instance) -> PriceOffer:
    assert one.price_usd_hour is not None
    assert one.price_date is not None
    gpus = f"{one.gpus} × {one.gpu}, " if one.gpus else ""
    holds = f"{gpus}{one.vcpus} vCPUs, {one.memory_bytes / GIB:.0f} GiB"
    return PriceOffer(one.name, one.price_usd_hour, holds, one.price_source, one.price_date)
