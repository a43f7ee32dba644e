"""Drift: applied fields that changed, and who changed them.

Only applied fields count; additions by others and server defaults do not, nor does a field set by
another manager to our value. Values of Secrets are not shown. Pure.

Server-side apply removes our ownership when another manager changes a field. So a field drifted
if we applied it, no longer own it, and its value differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.provisioners.base import Drift
from console.provisioners.kubernetes.rendering.names import MANAGER
from console.provisioners.kubernetes.workload import fields
from console.provisioners.kubernetes.workload.fields import Fields, Json, Manager

_LEFT_OUT = ("apiVersion", "kind", "status")
_NAMES = ("name", "namespace", "resourceVersion", "managedFields")
_OF_SECRETS = "(secret)"
_LONG = 512
"""Characters of a file kept for display."""
MISSING = "there"


def find_drift(applied: Json, found: Json | None) -> tuple[Drift, ...]:
    """Return drifted fields. `applied` has no values if it is a Secret; `found` None: deleted."""
    name = object_name(applied)
    if found is None:
        return (Drift(name, "", wanted=MISSING, found=None),)
    walk = _Walk(name, found, secret=applied.get("kind") == "Secret")
    return tuple(walk.compare(_comparable(applied), walk.mine, walk.known, found, ""))


def object_name(body: Mapping[str, Any]) -> str:
    return f"{body['kind']}/{body['metadata']['name']}"


def without_released(body: Json, found: Json | None, left: frozenset[str]) -> Json:
    """Return the object without released fields (`left`: drift keys)."""
    name = object_name(body)
    mine = {key.removeprefix(name) for key in left if key.startswith((f"{name}.", f"{name}["))}
    if not mine:
        return body
    owned = fields.union([manager.fields for manager in fields.managers(found or {})])
    stripped: Json = _strip(body, owned, "", mine)
    return stripped


def storable(body: Json) -> Json:
    """Return the object for storage in the anchor: no secrets, no long files."""
    if body.get("kind") == "Secret":
        return {**body, "data": dict.fromkeys(body.get("data") or {}, _OF_SECRETS)}
    if body.get("kind") == "ConfigMap":
        data = body.get("data") or {}
        return {**body, "data": {key: _shortened(text) for key, text in data.items()}}
    return body


class _Walk:
    def __init__(self, name: str, found: Json, *, secret: bool) -> None:
        self.name = name
        self.secret = secret
        self.others = [m for m in fields.managers(found) if m.name != MANAGER]
        self.mine = fields.fields_applied_by(found, MANAGER)
        self.known = fields.union([m.fields for m in fields.managers(found)])

    def compare(
        self, wanted: Any, mine: Fields, known: Fields, found: Any, path: str
    ) -> Iterator[Drift]:
        for part in fields.child_parts(wanted, known):
            here = path + part.step
            have = fields.below(found, part)
            if part.key in mine and not mine[part.key]:
                continue  # we own the whole value
            deeper = isinstance(part.value, Mapping | list) and part.value
            is_container = isinstance(have, Mapping | list) and have
            under = known.get(part.key) or {}
            if deeper and is_container and (under or isinstance(part.value, Mapping)):
                yield from self.compare(part.value, mine.get(part.key) or {}, under, have, here)
            elif part.key not in mine and _differs(part.value, have):
                yield self._found(here, part.value, have)

    def _found(self, path: str, wanted: Any, have: Any) -> Drift:
        by, since = "", 0.0
        if have is not None:
            owner = next((m for m in self.others if _owns(m, path)), None)
            by, since = (owner.name, owner.at) if owner else ("", 0.0)
        if self.secret and path.startswith(".data"):
            have = _OF_SECRETS if have is not None else None
        return Drift(self.name, path, wanted, have, by, since)


def _differs(wanted: Any, found: Any) -> bool:
    """Compare, treating empty and absent values as equal: the server omits empty ones."""
    return wanted not in ({}, []) and found != wanted and bool(wanted or found)


def _owns(manager: Manager, path: str) -> bool:
    return any(
        owned == path or path.startswith(f"{owned}.") or owned.startswith((f"{path}.", f"{path}["))
        for owned in _paths(manager.fields, "")
    )


def _paths(owned: Fields, path: str) -> Iterator[str]:
    for key, under in owned.items():
        if key == ".":
            continue
        here = path + fields.step(key)
        if under and set(under) != {"."}:
            yield from _paths(under, here)
        else:
            yield here


def _strip(value: Any, known: Fields, path: str, left: set[str]) -> Any:
    copy: dict[str | int, Any] = dict(value if isinstance(value, Mapping) else enumerate(value))
    for part in fields.child_parts(value, known):
        here = path + part.step
        if here in left:
            del copy[part.at]
        elif any(path.startswith((f"{here}.", f"{here}[")) for path in left):
            copy[part.at] = _strip(part.value, known.get(part.key) or {}, here, left)
    return copy if isinstance(value, Mapping) else list(copy.values())


def _comparable(applied: Json) -> Json:
    """Remove identifying fields, which have no owner."""
    metadata = {k: v for k, v in applied["metadata"].items() if k not in _NAMES}
    body = {key: value for key, value in applied.items() if key not in _LEFT_OUT}
    return {**body, "metadata": metadata}


def _shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text)} characters)"
