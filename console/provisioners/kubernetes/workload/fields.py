"""Paths and owners of fields, as Kubernetes keeps them in `metadata.managedFields`.

Promises the server's own notation of paths (`.spec.containers[name="worker"].image`), so that what
is shown here is what a conflict says. No schema is needed: what identifies an entry of a list is
read from the fields that somebody owns. Pure.
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
    """Somebody who set fields, and when last."""

    name: str
    at: float
    fields: Fields


def managers(found: Mapping[str, Any]) -> list[Manager]:
    """Everybody who owns a field, those who came last first."""
    entries = (found.get("metadata") or {}).get("managedFields") or []
    all_of_them = [
        Manager(str(entry.get("manager", "")), epoch(entry.get("time")), entry["fieldsV1"])
        for entry in entries
        if isinstance(entry.get("fieldsV1"), Mapping)
    ]
    return sorted(all_of_them, key=lambda manager: -manager.at)


def applied_by(found: Mapping[str, Any], name: str) -> Fields:
    """What that manager owns by server-side apply."""
    for entry in (found.get("metadata") or {}).get("managedFields") or []:
        if entry.get("manager") == name and entry.get("operation") == _OPERATION:
            return dict(entry.get("fieldsV1") or {})
    return {}


def union(fields: Iterator[Fields] | list[Fields]) -> Json:
    """All fields that anybody owns."""
    out: Json = {}
    for one in fields:
        for key, below in one.items():
            out[key] = union([out.get(key, {}), below])
    return out


@dataclass(frozen=True, slots=True)
class FieldPart:
    """One value below another: its step of the path, and the key under which it is owned."""

    step: str
    key: str
    value: Any
    at: str | int


def parts(value: Any, known: Fields) -> list[FieldPart]:
    """What is below a value; nothing below what is set as a whole."""
    if isinstance(value, Mapping):
        return [FieldPart(f".{key}", f"f:{key}", below, key) for key, below in value.items()]
    if not isinstance(value, list):
        return []
    keyed = [key for key in known if key.startswith("k:")]
    valued = {key for key in known if key.startswith("v:")}
    out = []
    for at, entry in enumerate(value):
        if keyed and isinstance(entry, Mapping):
            fitting = (key for key in keyed if _fits(entry, key))
            key = next(fitting, None) or _absent(entry, keyed[0])
            out.append(FieldPart(step(key), key, entry, at))
        elif valued:
            key = f"v:{_compact(entry)}"
            out.append(FieldPart(step(key), key, entry, at))
    return out


def below(found: Any, part: FieldPart) -> Any:
    """The same part in another version of the value; None where it has none."""
    if part.key.startswith("f:"):
        return found.get(part.at) if isinstance(found, Mapping) else None
    if not isinstance(found, list):
        return None
    if part.key.startswith("v:"):
        return part.value if part.value in found else None
    fitting = (entry for entry in found if isinstance(entry, Mapping) and _fits(entry, part.key))
    return next(fitting, None)


def epoch(stamp: Any) -> float:
    """Seconds of a timestamp of Kubernetes; 0 where there is none."""
    if not isinstance(stamp, str) or not stamp:
        return 0.0
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _fits(entry: Mapping[str, Any], key: str) -> bool:
    """Whether the key names this entry. What the entry leaves out was filled in by the server."""
    wanted = json.loads(key[2:])
    return any(name in entry for name in wanted) and all(
        entry.get(name, value) == value for name, value in wanted.items()
    )


def step(key: str) -> str:
    """Of a path, from the key under which a field is owned."""
    kind, _, rest = key.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        named = json.loads(rest)
        return "[" + ",".join(f"{name}={_compact(value)}" for name, value in named.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def _absent(entry: Mapping[str, Any], key: str) -> str:
    """The key of an entry which nobody owns, made like that of another."""
    names = [name for name in json.loads(key[2:]) if name in entry]
    return "k:" + _compact({name: entry[name] for name in names})


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
