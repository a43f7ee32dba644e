"""Queries on the catalogue: built-in instance types with overrides, and prices over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from console.catalogue.core.builtin import BUILTIN, GIB, Instance
from console.catalogue.models import InstancePrice, InstanceType


def list_types() -> list[InstanceType]:
    """Return all instance types by family and size; built-in ones that nobody changed are not
    stored.
    """
    rows = {row.name: row for row in InstanceType.objects.select_related("changed_by")}
    rows = {name: make_row(spec) for name, spec in BUILTIN.items()} | rows
    return sorted(rows.values(), key=_order)


def _order(row: InstanceType) -> tuple[str, int, int, str]:
    return row.name.rsplit(".", 1)[0], row.gpus, row.vcpus, row.name


def find(name: str) -> InstanceType | None:
    row = InstanceType.objects.select_related("changed_by").filter(name=name).first()
    return row or (make_row(BUILTIN[name]) if name in BUILTIN else None)


def make_row(one: Instance) -> InstanceType:
    """Return a row that is not stored."""
    return InstanceType(
        name=one.name,
        vcpus=one.vcpus,
        memory_gib=round(one.memory_bytes / GIB, 3),
        gpu=one.gpu,
        gpus=one.gpus,
        gpu_memory_gib=round(one.gpu_bytes / GIB, 3),
        price_usd_hour=one.price_usd_hour,
        price_date=one.price_date,
        price_source=one.price_source,
    )


def instances_by_name() -> dict[str, Instance]:
    return {row.name: row.instance for row in list_types()}


@dataclass(frozen=True, slots=True)
class InstancePriceList:
    """Price history; `given` maps a name to its (since, price) rows, latest first.

    Before the first row the built-in price applies.
    """

    given: Mapping[str, Sequence[tuple[date, float | None]]]

    def on(self, name: str, day: date) -> float | None:
        for since, price in self.given.get(name, ()):
            if since <= day:
                return price
        return BUILTIN[name].price_usd_hour if name in BUILTIN else None


def load_prices() -> InstancePriceList:
    """Return the price history of all instance types, in one query."""
    prices: dict[str, list[tuple[date, float | None]]] = {}
    rows = InstancePrice.objects.order_by("name", "-since")
    for name, since, price in rows.values_list("name", "since", "price_usd_hour"):
        prices.setdefault(name, []).append((since, price))
    return InstancePriceList(prices)
