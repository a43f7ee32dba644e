"""Delete a workload and verify that nothing is left.

`left` lists every kind that may have been created by label, independently of the inventory. The
garbage collector deletes what the anchor owns, pods first and the anchor last; objects without an
owner are deleted individually.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.rendering.names import WORKLOAD
from console.provisioners.kubernetes.workload import anchor_record

Json = dict[str, Any]


def delete(client: KubernetesClient, name: str, possible: Iterable[ObjectKind]) -> None:
    """Request deletion. Repeat until nothing is left; interrupted deletions are resumed."""
    config_map = client.get(kinds.CONFIG_MAP, name)
    if config_map is not None and is_owned(config_map, name):
        record = anchor_record.read_record(config_map)
        for item in record.items:
            kind = kinds.kind_of({"apiVersion": item.api_version, "kind": item.kind})
            if not kind.namespaced:  # cannot have a namespaced owner
                client.delete(kind, item.name)
        if not record.ending:
            client.delete(kinds.CONFIG_MAP, name, uid=record.uid)
        return
    for kind, body in list_remaining(client, name, possible):
        metadata = body["metadata"]
        owned = kind in kinds.CREATED_KINDS and metadata.get("ownerReferences")
        if owned or "deletionTimestamp" in metadata:
            continue
        client.delete(kind, metadata["name"], uid=str(metadata.get("uid", "")))


def list_remaining(
    client: KubernetesClient, name: str, possible: Iterable[ObjectKind]
) -> list[tuple[ObjectKind, Json]]:
    """Return every object with the workload's label."""
    return [
        (kind, body)
        for kind in possible
        for body in _listed(client, kind, name)
        if kind.namespaced or _claimed_in(body) == client.namespace
    ]


def _listed(client: KubernetesClient, kind: ObjectKind, name: str) -> list[Json]:
    try:
        return client.listed(kind, f"{WORKLOAD}={name}")
    except PermanentError:
        if kind.namespaced:
            raise
        return []  # optional right: without it, none of these was created


def _claimed_in(volume: Json) -> str:
    """Return the namespace a cluster-wide volume was created for."""
    return str(((volume.get("spec") or {}).get("claimRef") or {}).get("namespace", ""))


def is_owned(found: Json, name: str) -> bool:
    return (found["metadata"].get("labels") or {}).get(WORKLOAD) == name


def summarize(rest: Iterable[tuple[ObjectKind, Json]]) -> str:
    names = sorted(f"{kind.kind}/{body['metadata']['name']}" for kind, body in rest)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Left: {', '.join(names[:5])}{more}." if names else ""
