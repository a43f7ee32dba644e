"""Versions of a workload's objects, by which an unchanged one is recognized without reading it.

Kinds with a live watch cost no request. Metadata of the other kinds is listed once per namespace
and shared by all its workloads, so that the requests do not grow with their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from console.provisioners.base import ProvisionError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.rendering.anchor import OwnedItem
from console.provisioners.kubernetes.rendering.names import WORKLOAD
from console.provisioners.kubernetes.workload import watch
from console.provisioners.kubernetes.workload.observation_cache import (
    MEMORY,
    RecentObservation,
    Versions,
)

LISTED_FOR_S = 20.0
"""Maximum age of a list: with the pause between two passes, the time until a change is noticed."""


def read_versions(
    client: KubernetesClient, workload: str, items: Iterable[OwnedItem]
) -> Versions | None:
    """Return the versions of the workload's pods, anchor and objects of the kinds of `items`, as
    they are now or were at most `LISTED_FOR_S` ago. None without watches, or if a list is refused.
    """
    server, namespace = client.server, client.namespace
    if not watch.is_watched(server, namespace):
        return None
    used = {kinds.kind_of({"apiVersion": i.api_version, "kind": i.kind}) for i in items}
    versions: list[tuple[ObjectKind, str, str]] = []
    for kind in {kinds.POD, kinds.CONFIG_MAP, *used}:
        pairs = watch.watched_versions(server, namespace, kind, workload)
        if pairs is None:
            try:
                pairs = _listed_versions(client, kind).get(workload, [])
            except ProvisionError:
                return None
        versions += [(kind, name, version) for name, version in pairs]
    return frozenset(versions)


def is_unchanged(client: KubernetesClient, workload: str, seen: RecentObservation) -> bool:
    """Return whether the workload is as it was when it was last observed to be settled."""
    settled = seen.settled
    if settled is None or time.monotonic() >= settled.until:
        return False
    return read_versions(client, workload, settled.items) == settled.versions


def _listed_versions(
    client: KubernetesClient, kind: ObjectKind
) -> dict[str, list[tuple[str, str]]]:
    def read() -> dict[str, list[tuple[str, str]]]:
        versions: dict[str, list[tuple[str, str]]] = {}
        for body in client.metadata(kind, WORKLOAD)[0]:
            about = body["metadata"]
            workload = str((about.get("labels") or {}).get(WORKLOAD, ""))
            pair = str(about["name"]), str(about.get("resourceVersion"))
            versions.setdefault(workload, []).append(pair)
        return versions

    key = (client.server, client.namespace, "versions", kind)
    listed: dict[str, list[tuple[str, str]]] = MEMORY.cached(key, LISTED_FOR_S, read)
    return listed
