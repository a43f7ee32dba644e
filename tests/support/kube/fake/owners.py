"""managedFields: ownership after apply and other writes.

As in Kubernetes: an apply takes the fields it names, releases those it no longer names (removed if
nobody else owns them), and conflicts with other owners' values; other writes take the fields they
change.
"""

from __future__ import annotations

from typing import Any

from tests.support.kube.behaviours import stamp
from tests.support.kube.fake.fields import (
    Path,
    from_fields,
    leaves,
    merge,
    remove,
    to_fields,
    words,
)
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.store import copied

Owner = tuple[str, str, str]  # manager, operation, subresource
Owners = dict[Owner, set[Path]]


def read(data: dict[str, Any]) -> Owners:
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): from_fields(
            entry.get("fieldsV1", {})
        )
        for entry in data["metadata"].get("managedFields", ())
    }


def write(data: dict[str, Any], owners: Owners, before: Owners, now: float) -> None:
    times = {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["time"]
        for entry in data["metadata"].get("managedFields", ())
    }
    entries = []
    for owner, paths in owners.items():
        if not paths:
            continue
        manager, operation, subresource = owner
        entry = {
            "manager": manager,
            "operation": operation,
            "apiVersion": data["apiVersion"],
            "time": times[owner] if before.get(owner) == paths and owner in times else stamp(now),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields(paths),
        }
        entries.append({**entry, "subresource": subresource} if subresource else entry)
    data["metadata"]["managedFields"] = entries


def apply(
    live: dict[str, Any] | None,
    wanted: dict[str, Any],
    manager: str,
    force: bool,
    now: float,
    subresource: str = "",
) -> dict[str, Any]:
    """Return the object after the apply."""
    owners = read(live) if live is not None else {}
    before = {owner: set(paths) for owner, paths in owners.items()}
    me = (manager, "Apply", subresource)
    requested = leaves(wanted)
    present = leaves(live) if live is not None else {}
    _conflicts(owners, me, requested, present, force, wanted["apiVersion"])
    result: dict[str, Any] = copied(live) if live is not None else {}
    # Whole items before their fields: keys identify an item.
    for path in sorted(owners.get(me, set()) - set(requested), key=len):
        if not _wanted_by_others(owners, me, path):
            remove(result, path)
    result = merge(result, wanted)
    result["metadata"].pop("managedFields", None)
    if live is not None and "managedFields" in live["metadata"]:
        result["metadata"]["managedFields"] = live["metadata"]["managedFields"]
    owners[me] = set(requested)
    write(result, owners, before, now)
    return result


def _wanted_by_others(owners: Owners, me: Owner, path: Path) -> bool:
    """Return whether another owner has the field; an item also while any of its fields are
    owned."""
    item = path[-1].startswith("k:")
    return any(
        path in paths or (item and any(other[: len(path)] == path for other in paths))
        for owner, paths in owners.items()
        if owner != me
    )


def _conflicts(
    owners: Owners,
    me: Owner,
    requested: dict[Path, Any],
    present: dict[Path, Any],
    force: bool,
    version: str,
) -> None:
    causes = []
    for path, value in requested.items():
        holders = [owner for owner, paths in owners.items() if owner != me and path in paths]
        if not holders or present.get(path, ...) == value:
            continue
        for owner in holders:
            if force:
                owners[owner] = {p for p in owners[owner] if not _within(p, path)}
            else:
                message = f'conflict with "{owner[0]}"{_manner(owner, version)}'
                cause = {"reason": "FieldManagerConflict", "message": message}
                causes.append({**cause, "field": words(path)})
    if causes:
        number = len(causes)
        head = f"Apply failed with {number} conflict{'s' * (number > 1)}: "
        raise ApiError(409, head + _spelled(causes), causes=causes)


def _manner(owner: Owner, version: str) -> str:
    sub = f' with subresource "{owner[2]}"' if owner[2] else ""
    return sub + (f" using {version}" if owner[1] == "Update" else "")


def _spelled(causes: list[dict[str, str]]) -> str:
    by_message: dict[str, list[str]] = {}
    for cause in causes:
        by_message.setdefault(cause["message"], []).append(cause["field"])
    return "\n".join(
        f"{message}: {fields[0]}"
        if len(fields) == 1
        else message.replace("conflict", "conflicts", 1) + ":\n- " + "\n- ".join(fields)
        for message, fields in by_message.items()
    )


def _within(path: Path, outer: Path) -> bool:
    return path[: len(outer)] == outer


def update(
    live: dict[str, Any] | None,
    data: dict[str, Any],
    manager: str,
    now: float,
    subresource: str = "",
) -> None:
    """Record ownership in `data` after a write other than apply."""
    owners = read(live) if live is not None else {}
    before = {owner: set(paths) for owner, paths in owners.items()}
    old = leaves(live) if live is not None else {}
    new = leaves(data)
    changed = {path for path, value in new.items() if path not in old or old[path] != value}
    gone = set(old) - set(new)
    for owner in owners:
        owners[owner] -= changed | gone
    me = (manager, "Update", subresource)
    if changed:
        owners[me] = owners.get(me, set()) | changed
    if live is not None:
        data["metadata"]["managedFields"] = live["metadata"].get("managedFields", [])
    write(data, owners, before, now)
