"""Garbage collection of owned objects and terminating namespaces."""

from __future__ import annotations

from typing import Any

from tests.support.certificates import authority
from tests.support.kube.fake.controllers.world import World, leaving
from tests.support.kube.fake.store import Object


def namespace(world: World, name: str) -> None:
    """Create the service account of a new namespace; empty and remove a terminating one."""
    data = world.store.find("Namespace", "", name)
    if data is None:
        return
    if not leaving(data):
        _furnish(world, name)
        return
    left = [item for kind in _namespaced(world) for item in world.list(kind, name)]
    for item in left:
        if not leaving(item):
            world.delete(item)
    if not left:
        world.write({**data, "metadata": {**data["metadata"], "finalizers": []}})


def _namespaced(world: World) -> list[str]:
    return [kind for kind, resource in world.verbs.kinds.items() if resource.namespaced]


def _furnish(world: World, name: str) -> None:
    if world.store.find("ServiceAccount", name, "default") is None:
        world.create("ServiceAccount", {"metadata": {"name": "default", "namespace": name}})
    if world.store.find("ConfigMap", name, "kube-root-ca.crt") is None:
        metadata = {"name": "kube-root-ca.crt", "namespace": name}
        data = {"ca.crt": authority().pem.decode()}
        world.create("ConfigMap", {"metadata": metadata, "data": data})


def garbage(world: World, name: str) -> None:
    items = [item for kind in _namespaced(world) for item in world.list(kind, name)]
    there = {item["metadata"]["uid"]: item for item in items}
    for item in items:
        _one(world, item, items, there)


def _one(world: World, item: Object, items: list[Object], there: dict[str, Object]) -> None:
    finalizers = item["metadata"].get("finalizers", ())
    if leaving(item) and "foregroundDeletion" in finalizers:
        _foreground(world, item, items)
    elif leaving(item) and "orphan" in finalizers:
        _orphan(world, item, items)
    refs = item["metadata"].get("ownerReferences", ())
    if refs and not leaving(item):
        owners = [_owner(world, ref, there) for ref in refs]
        if not any(owners):
            world.delete(item)


def _owner(world: World, ref: Object, there: dict[str, Object]) -> Any:
    """Return the owner, in this namespace or cluster-scoped."""
    resource = world.verbs.kinds.get(ref["kind"])
    if resource is not None and not resource.namespaced:
        found = world.store.find(ref["kind"], "", ref["name"])
        return found if found and found["metadata"]["uid"] == ref["uid"] else None
    return there.get(ref["uid"])


def _dependents(item: Object, items: list[Object]) -> list[Object]:
    uid = item["metadata"]["uid"]
    return [
        other
        for other in items
        if any(ref["uid"] == uid for ref in other["metadata"].get("ownerReferences", ()))
    ]


def _foreground(world: World, item: Object, items: list[Object]) -> None:
    blocking = []
    for other in _dependents(item, items):
        if not leaving(other):
            world.delete(other, propagation="Foreground" if other["kind"] != "Pod" else "")
        found = world.store.find(other["kind"], other["metadata"]["namespace"],
                                 other["metadata"]["name"])  # fmt: skip
        ref = next(
            r for r in other["metadata"]["ownerReferences"] if r["uid"] == item["metadata"]["uid"]
        )
        if found is not None and ref.get("blockOwnerDeletion"):
            blocking.append(found)
    if not blocking:
        _release(world, item, "foregroundDeletion")


def _orphan(world: World, item: Object, items: list[Object]) -> None:
    uid = item["metadata"]["uid"]
    for other in _dependents(item, items):
        refs = [ref for ref in other["metadata"]["ownerReferences"] if ref["uid"] != uid]
        world.write({**other, "metadata": {**other["metadata"], "ownerReferences": refs}})
    _release(world, item, "orphan")


def _release(world: World, item: Object, finalizer: str) -> None:
    where = item["metadata"].get("namespace", ""), item["metadata"]["name"]
    live = world.store.find(item["kind"], *where)
    if live is not None:
        left = [name for name in live["metadata"].get("finalizers", ()) if name != finalizer]
        world.write({**live, "metadata": {**live["metadata"], "finalizers": left}})
