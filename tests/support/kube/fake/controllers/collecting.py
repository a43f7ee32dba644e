"""Garbage collection of owned objects and terminating namespaces."""

from __future__ import annotations

from typing import Any

from tests.support.certificates import authority
from tests.support.kube.fake.controllers.controller_client import ControllerClient, leaving
from tests.support.kube.fake.store import Object


def namespace(client: ControllerClient, name: str) -> None:
    """Create the service account of a new namespace; empty and remove a terminating one."""
    data = client.store.find("Namespace", "", name)
    if data is None:
        return
    if not leaving(data):
        _furnish(client, name)
        return
    left = [item for kind in _namespaced(client) for item in client.list(kind, name)]
    for item in left:
        if not leaving(item):
            client.delete(item)
    if not left:
        client.write({**data, "metadata": {**data["metadata"], "finalizers": []}})


def _namespaced(client: ControllerClient) -> list[str]:
    return [kind for kind, resource in client.verbs.kinds.items() if resource.namespaced]


def _furnish(client: ControllerClient, name: str) -> None:
    if client.store.find("ServiceAccount", name, "default") is None:
        client.create("ServiceAccount", {"metadata": {"name": "default", "namespace": name}})
    if client.store.find("ConfigMap", name, "kube-root-ca.crt") is None:
        metadata = {"name": "kube-root-ca.crt", "namespace": name}
        data = {"ca.crt": authority().pem.decode()}
        client.create("ConfigMap", {"metadata": metadata, "data": data})


def garbage(client: ControllerClient, name: str) -> None:
    items = [item for kind in _namespaced(client) for item in client.list(kind, name)]
    there = {item["metadata"]["uid"]: item for item in items}
    for item in items:
        _one(client, item, items, there)


def _one(
    client: ControllerClient, item: Object, items: list[Object], there: dict[str, Object]
) -> None:
    finalizers = item["metadata"].get("finalizers", ())
    if leaving(item) and "foregroundDeletion" in finalizers:
        _foreground(client, item, items)
    elif leaving(item) and "orphan" in finalizers:
        _orphan(client, item, items)
    refs = item["metadata"].get("ownerReferences", ())
    if refs and not leaving(item):
        owners = [_owner(client, ref, there) for ref in refs]
        if not any(owners):
            client.delete(item)


def _owner(client: ControllerClient, ref: Object, there: dict[str, Object]) -> Any:
    """Return the owner, in this namespace or cluster-scoped."""
    resource = client.verbs.kinds.get(ref["kind"])
    if resource is not None and not resource.namespaced:
        found = client.store.find(ref["kind"], "", ref["name"])
        return found if found and found["metadata"]["uid"] == ref["uid"] else None
    return there.get(ref["uid"])


def _dependents(item: Object, items: list[Object]) -> list[Object]:
    uid = item["metadata"]["uid"]
    return [
        other
        for other in items
        if any(ref["uid"] == uid for ref in other["metadata"].get("ownerReferences", ()))
    ]


def _foreground(client: ControllerClient, item: Object, items: list[Object]) -> None:
    blocking = []
    for other in _dependents(item, items):
        if not leaving(other):
            client.delete(other, propagation="Foreground" if other["kind"] != "Pod" else "")
        found = client.store.find(other["kind"], other["metadata"]["namespace"],
                                 other["metadata"]["name"])  # fmt: skip
        ref = next(
            r for r in other["metadata"]["ownerReferences"] if r["uid"] == item["metadata"]["uid"]
        )
        if found is not None and ref.get("blockOwnerDeletion"):
            blocking.append(found)
    if not blocking:
        _release(client, item, "foregroundDeletion")


def _orphan(client: ControllerClient, item: Object, items: list[Object]) -> None:
    uid = item["metadata"]["uid"]
    for other in _dependents(item, items):
        refs = [ref for ref in other["metadata"]["ownerReferences"] if ref["uid"] != uid]
        client.write({**other, "metadata": {**other["metadata"], "ownerReferences": refs}})
    _release(client, item, "orphan")


def _release(client: ControllerClient, item: Object, finalizer: str) -> None:
    where = item["metadata"].get("namespace", ""), item["metadata"]["name"]
    live = client.store.find(item["kind"], *where)
    if live is not None:
        left = [name for name in live["metadata"].get("finalizers", ()) if name != finalizer]
        client.write({**live, "metadata": {**live["metadata"], "finalizers": left}})
