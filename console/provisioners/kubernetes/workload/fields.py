"""Field paths and owners from `metadata.managedFields`.

Paths use the server's notation (`.spec.containers[name="worker"].image`), as in conflict messages.
No schema is needed: list keys are taken from owned fields. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]
Fields = Mapping[str, Any]
_OPERATION = "Apply"


@dataclass(frozen=True, slots=True)
class Manager:
    """A field manager and the time of its last change."""

    name: str
    at: float
    fields: Fields


def managers(found: Mapping[str, Any]) -> list[Manager]:
    entries = (found.get("metadata") or {}).get("managedFields") or []
    all_of_them = [
        Manager(str(entry.get("manager", "")), parse_time(entry.get("time")), entry["fieldsV1"])
        for entry in entries
        if isinstance(entry.get("fieldsV1"), Mapping)
    ]
    return sorted(all_of_them, key=lambda manager: -manager.at)


def fields_applied_by(found: Mapping[str, Any], name: str) -> Fields:
    """Return fields owned by that manager through server-side apply."""
    for entry in (found.get("metadata") or {}).get("managedFields") or []:
        if entry.get("manager") == name and entry.get("operation") == _OPERATION:
            return dict(entry.get("fieldsV1") or {})
    return {}


def union(fields: Iterator[Fields] | list[Fields]) -> Json:
    out: Json = {}
    for field in fields:
        for key, below in field.items():
            out[key] = union([out.get(key, {}), below])
    return out


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A child value: its path step and its key in managedFields."""

    step: str
    key: str
    value: Any
    at: str | int


def child_parts(value: Any, known: Fields) -> list[FieldPart]:
    """Return the children of a value; none for an atomic value."""
    if isinstance(value, Mapping):
        return [FieldPart(f".{key}", f"f:{key}", below, key) for key, below in value.items()]
    if not isinstance(value, list):
        return []
    keyed = [key for key in known if key.startswith("k:")]
    valued = {key for key in known if key.startswith("v:")}
    out = []
    for index, entry in enumerate(value):
        if keyed and isinstance(entry, Mapping):
            fitting = (key for key in keyed if _matches(entry, key))
            key = next(fitting, None) or _unowned_key(entry, keyed[0])
            out.append(FieldPart(step(key), key, entry, index))
        elif valued:
            key = f"v:{_compact(entry)}"
            out.append(FieldPart(step(key), key, entry, index))
    return out


def below(found: Any, part: FieldPart) -> Any:
    """Return the same child in another version of the value, None if absent."""
    if part.key.startswith("f:"):
        return found.get(part.at) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        return None
    if part.key.startswith("v:"):
        return part.value if part.value in found else None
    fitting = (entry for entry in found if isinstance(entry, Mapping) and _matches(entry, part.key))
    return next(fitting, None)


def parse_time(stamp: Any) -> float:
    """Parse a Kubernetes timestamp to epoch seconds; 0 if absent."""
    if not isinstance(stamp, str) or not stamp:
        return 0.0
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _matches(entry: Mapping[str, Any], key: str) -> bool:
    """Return whether the key matches the entry; absent fields are server defaults."""
    document = json.loads(key[2:])
    return any(name in entry for name in document) and all(
        entry.get(name, value) == value for name, value in document.items()
    )


def step(key: str) -> str:
    """Return the path step for a managedFields key."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        named = json.loads(rest)
        return "[" + ",".join(f"{name}={_compact(value)}" for name, value in named.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def _unowned_key(entry: Mapping[str, Any], key: str) -> str:
    """Build the key of an unowned entry in the form of a sibling's key."""
    names = [name for name in json.loads(key[2:]) if name in entry]
    return "k:" + _compact({name: entry[name] for name in names})


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
