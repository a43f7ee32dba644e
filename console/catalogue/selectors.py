"""Queries on the catalogue: built-in instance types with overrides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.db.models import QuerySet

from console.catalogue.core.builtin import BUILTIN, Instance
from console.catalogue.models import InstancePrice, InstanceType


@dataclass(frozen=True, slots=True)
class Entry:
    """Catalogue entry; `origin` is built-in, changed (overridden) or added."""

    instance: Instance
    origin: str
    changed_by: str = ""


def list_entries() -> list[Entry]:
    own = {row.name: row for row in InstanceType.objects.select_related("changed_by")}
    entries = [Entry(one, "built-in") for name, one in BUILTIN.items() if name not in own]
    entries += [
        Entry(
            row.instance,
            "changed" if name in BUILTIN else "added",
            row.changed_by.get_username() if row.changed_by else "",
        )
        for name, row in own.items()
    ]
    return sorted(entries, key=_order)


def _order(entry: Entry) -> tuple[str, int, int, str]:
    one = entry.instance
    return one.name.rsplit(".", 1)[0], one.gpus, one.vcpus, one.name


def get(name: str) -> Entry | None:
    return next((entry for entry in list_entries() if entry.instance.name == name), None)


def instances_by_name() -> dict[str, Instance]:
    return {entry.instance.name: entry.instance for entry in list_entries()}


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
    found: dict[str, list[tuple[date, float | None]]] = {}
    rows = InstancePrice.objects.order_by("name", "-since")
    for name, since, price in rows.values_list("name", "since", "price_usd_hour"):
        found.setdefault(name, []).append((since, price))
    return InstancePriceList(found)


def price_history(name: str) -> QuerySet[InstancePrice]:
    rows = InstancePrice.objects.filter(name=name).select_related("changed_by")
    return rows.order_by("-since")
