"""The end of a workload, and the proof that nothing of it is left.

Promises that `left` looks at every kind which may ever have been made, by label, and trusts no
inventory. The cluster's garbage collector removes what the anchor owns, pods before what made
them, the anchor last; what has no owner (any more) is deleted one by one.
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
    """Ask for the end of it. To be called until nothing is left: what an earlier call or somebody
    else left half done is found again."""
    found = client.get(kinds.CONFIG_MAP, name)
    if found is not None and ours(found, name):
        kept = anchor_record.read(found)
        for one in kept.items:
            kind = kinds.of({"apiVersion": one.api_version, "kind": one.kind})
            if not kind.namespaced:  # no owner in a namespace takes it along
                client.delete(kind, one.name)
        if not kept.ending:
            client.delete(kinds.CONFIG_MAP, name, uid=kept.uid)
        return
    for kind, body in left(client, name, possible):
        metadata = body["metadata"]
        owned = kind in kinds.MADE and metadata.get("ownerReferences")
        if owned or "deletionTimestamp" in metadata:
            continue
        client.delete(kind, metadata["name"], uid=str(metadata.get("uid", "")))


def left(
    client: KubernetesClient, name: str, possible: Iterable[ObjectKind]
) -> list[tuple[ObjectKind, Json]]:
    """Everything that carries the workload's label."""
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
        return []  # a right one can do without: who lacks it has made none of these


def _claimed_in(volume: Json) -> str:
    """The namespace a volume of the whole cluster was made for."""
    return str(((volume.get("spec") or {}).get("claimRef") or {}).get("namespace", ""))


def ours(found: Json, name: str) -> bool:
    return (found["metadata"].get("labels") or {}).get(WORKLOAD) == name


def summary(rest: Iterable[tuple[ObjectKind, Json]]) -> str:
    """What is left, for people."""
    names = sorted(f"{kind.kind}/{body['metadata']['name']}" for kind, body in rest)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"Left: {', '.join(names[:5])}{more}." if names else ""
