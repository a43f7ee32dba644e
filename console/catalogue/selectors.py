"""The catalogue as everybody reads it: what is built in, with what was added over it."""

from __future__ import annotations

from dataclasses import dataclass

from console.catalogue.builtin import BUILTIN, Instance
from console.catalogue.models import InstanceType


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
