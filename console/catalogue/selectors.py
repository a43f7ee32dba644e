"""The catalogue as everybody reads it: what is built in, with what was added over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.db.models import QuerySet

from console.catalogue.core.builtin import BUILTIN, Instance
from console.catalogue.models import InstancePrice, InstanceType


@dataclass(frozen=True, slots=True)
class Entry:
    """`origin`: built-in, changed (a built-in one with other facts) or added."""

    instance: Instance
    origin: str
    changed_by: str = ""


def entries() -> list[Entry]:
    """All, by name, in one query."""
    own = {row.name: row for row in InstanceType.objects.select_related("changed_by")}
    found = [Entry(one, "built-in") for name, one in BUILTIN.items() if name not in own]
    found += [
        Entry(
            row.instance,
            "changed" if name in BUILTIN else "added",
            row.changed_by.get_username() if row.changed_by else "",
        )
        for name, row in own.items()
    ]
    return sorted(found, key=_order)


def _order(entry: Entry) -> tuple[str, int, int, str]:
    one = entry.instance
    return one.name.rsplit(".", 1)[0], one.gpus, one.vcpus, one.name


def get(name: str) -> Entry | None:
    return next((entry for entry in entries() if entry.instance.name == name), None)


def instances() -> dict[str, Instance]:
    """By name."""
    return {entry.instance.name: entry.instance for entry in entries()}


@dataclass(frozen=True, slots=True)
class InstancePriceList:
    """`said`: by name, (since, price) of what people said, the latest first. Before the first of
    them a built-in price counts."""

    said: Mapping[str, Sequence[tuple[date, float | None]]]

    def on(self, name: str, day: date) -> float | None:
        for since, price in self.said.get(name, ()):
            if since <= day:
                return price
        return BUILTIN[name].price_usd_hour if name in BUILTIN else None


def prices() -> InstancePriceList:
    """What instance types cost on any day, in one query."""
    found: dict[str, list[tuple[date, float | None]]] = {}
    rows = InstancePrice.objects.order_by("name", "-since")
    for name, since, price in rows.values_list("name", "since", "price_usd_hour"):
        found.setdefault(name, []).append((since, price))
    return InstancePriceList(found)


def price_history(name: str) -> QuerySet[InstancePrice]:
    """What people said of it, the latest first."""
    rows = InstancePrice.objects.filter(name=name).select_related("changed_by")
    return rows.order_by("-since")
