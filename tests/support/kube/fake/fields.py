"""Fields of objects: paths, ownership keys, merging.

A field is a path of elements as in managedFields: `f:NAME` of a map, `k:{KEYS}` of a keyed list,
`v:VALUE` of a set. An object is its leaves. Lists outside KEYS and SETS are a single leaf (atomic).
A list item is a leaf too (`.` in managedFields), so that items can be owned and removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str, ...]

# By list name, with the parent's name where names clash.
KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "hostAliases": ("ip",),
    "secrets": ("name",),
}
PORT_KEYS = (("containerPort", "protocol"), ("port", "protocol"))
SETS = ("finalizers",)
DEFAULTS = {"protocol": "TCP"}
# Never owned.
SYSTEM = {
    *(("f:metadata", f"f:{name}") for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
        "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink",
    )),
    ("f:apiVersion",),
    ("f:kind",),
}  # fmt: skip


def keys_of(name: str, items: list[Any]) -> tuple[str, ...] | None:
    """Return None for atomic lists."""
    if not all(isinstance(item, dict) for item in items):
        return None
    if name == "ports":
        for keys in PORT_KEYS:
            if items and all(keys[0] in item for item in items):
                return keys
        return None
    keys = KEYS.get(name)
    if keys is None or not all(keys[0] in item for item in items):
        return None
    return keys


def item_key(item: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    found = {key: item.get(key, DEFAULTS.get(key)) for key in keys}
    found = {key: value for key, value in found.items() if value is not None}
    return "k:" + json.dumps(found, sort_keys=True, separators=(",", ":"))


def leaves(data: Mapping[str, Any]) -> dict[Path, Any]:
    """Return every field with its value; a trailing `()` stands for the presence of an item."""
    return {path: value for path, value in _walk(data, ()) if path[:2] not in SYSTEM}


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if (*path, f"f:{name}") not in SYSTEM:
                yield from _walk(inner, (*path, f"f:{name}"))
        return
    if isinstance(value, list) and path:
        name = path[-1][2:]
        if name in SETS:
            for item in value:
                yield (*path, "v:" + json.dumps(item)), item
            return
        keys = keys_of(name, value) if value else None
        if keys is not None:
            for item in value:
                here = (*path, item_key(item, keys))
                yield here, ()
                yield from _walk(item, here)
            return
    yield path, value


def to_fields(paths: set[Path]) -> dict[str, Any]:
    """Return managedFields.fieldsV1."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        at = tree
        for element in path:
            at = at.setdefault(element, {})
        if path[-1].startswith("k:"):
            at["."] = {}
    return tree


def from_fields(tree: Mapping[str, Any], at: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for element, inner in tree.items():
        if element == ".":
            found.add(at)
        elif inner:
            found |= from_fields(inner, (*at, element))
        else:
            found.add((*at, element))
    return found


def words(path: Path) -> str:
    """Format as `.spec.template.spec.containers[name="main"].image`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = json.loads(rest).items()
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs) + "]"
        else:
            text += f"[={rest}]"
    return text


def merge(live: Any, wanted: Any, name: str = "") -> Any:
    """Merge `wanted` into `live`: maps and keyed lists recursively, all else replaced."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        both = dict(live)
        for key, value in wanted.items():
            both[key] = merge(live.get(key), value, key)
        return both
    if isinstance(live, list) and isinstance(wanted, list):
        if name in SETS:
            return [*live, *(item for item in wanted if item not in live)]
        keys = keys_of(name, wanted) if wanted else None
        if keys is not None and keys_of(name, live) == keys:
            return _merge_items(live, wanted, keys)
    return wanted


def _merge_items(live: list[Any], wanted: list[Any], keys: tuple[str, ...]) -> list[Any]:
    old = {item_key(item, keys): item for item in live}
    new = {item_key(item, keys): item for item in wanted}
    ours = [merge(old[key], item) if key in old else item for key, item in new.items()]
    return ours + [item for key, item in old.items() if key not in new]


def remove(data: Any, path: Path) -> None:
    """Remove a leaf and maps that become empty."""
    if not path or data is None:
        return
    element, rest = path[0], path[1:]
    kind, _, name = element.partition(":")
    if kind == "f":
        _remove_field(data, name, rest)
    elif isinstance(data, list):
        _remove_item(data, element, rest)


def _remove_field(data: Any, name: str, rest: Path) -> None:
    if not isinstance(data, dict) or name not in data:
        return
    if rest:
        remove(data[name], rest)
    if not rest or data[name] in ({}, []):
        del data[name]


def _remove_item(data: list[Any], element: str, rest: Path) -> None:
    kind, _, content = element.partition(":")
    for item in list(data):
        if kind == "v":
            matches = item == json.loads(content)
        else:
            matches = isinstance(item, dict) and all(
                item.get(key, DEFAULTS.get(key)) == value
                for key, value in json.loads(content).items()
            )
        if matches and rest:
            remove(item, rest)
        elif matches:
            data.remove(item)
