"""The anchor: the object that owns all others of a workload and lists them.

It records the last desired state without a database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.names import make_object
from console.provisioners.kubernetes.rendering.target import RenderingTarget


@dataclass(frozen=True, slots=True, order=True)
class OwnedItem:
    api_version: str
    kind: str
    name: str


def item_of(rendered: Mapping[str, Any]) -> OwnedItem:
    return OwnedItem(rendered["apiVersion"], rendered["kind"], rendered["metadata"]["name"])


def anchor(
    spec: WorkloadSpec, target: RenderingTarget, rendered: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    inventory = [[i.api_version, i.kind, i.name] for i in sorted(map(item_of, rendered))]
    data = {
        "owner": spec.owner,
        "role": spec.role,
        "hash": spec.spec_hash,
        "inventory": json.dumps(inventory, separators=(",", ":")),
    }
    return make_object(spec, target.namespace, kinds.CONFIG_MAP, {"data": data})


def inventory(found: Mapping[str, Any]) -> frozenset[OwnedItem]:
    """Return the objects listed in an existing anchor; empty if it is unreadable."""
    try:
        listed = json.loads((found.get("data") or {}).get("inventory", "[]"))
        return frozenset(OwnedItem(*map(str, entry)) for entry in listed)
    except (TypeError, ValueError):
        return frozenset()


def set_owner(rendered: Mapping[str, Any], anchor_name: str, anchor_uid: str) -> dict[str, Any]:
    """Return the object owned by the anchor. A cluster-wide object cannot have a namespaced owner
    and is deleted by means of the inventory.
    """
    out = {**rendered, "metadata": dict(rendered["metadata"])}
    if kinds.kind_of(rendered).namespaced:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": anchor_name}
        out["metadata"]["ownerReferences"] = [
            {**reference, "uid": anchor_uid, "controller": True, "blockOwnerDeletion": True}
        ]
    return out
