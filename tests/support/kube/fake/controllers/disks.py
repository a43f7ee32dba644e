"""PersistentVolumeClaims: bound at once if their class exists."""

from __future__ import annotations

from tests.support.kube.fake.controllers.world import World
from tests.support.kube.fake.store import Object


def run(world: World, namespace: str) -> None:
    for claim in world.alive("PersistentVolumeClaim", namespace):
        if claim.get("status", {}).get("phase") != "Bound":
            _bind(world, claim)


def _bind(world: World, claim: Object) -> None:
    named = claim["spec"].get("storageClassName", "")
    if not named and "storageClassName" not in claim["spec"]:
        named = _default(world)
        if named:
            spec = {**claim["spec"], "storageClassName": named}
            claim = world.write({**claim, "spec": spec})
    if named and world.store.find("StorageClass", "", named) is None:
        text = f'storageclass.storage.k8s.io "{named}" not found'
        world.event(claim, "ProvisioningFailed", text, warning=True)
        world.later(1.0, claim["metadata"]["namespace"])
        return
    # On a real plane the simulated provisioner creates the volume; here it is only bound.
    capacity = claim["spec"].get("resources", {}).get("requests", {})
    bound = claim
    if not claim["spec"].get("volumeName"):
        volume = f"pvc-{claim['metadata']['uid']}"
        bound = world.write({**claim, "spec": {**claim["spec"], "volumeName": volume}})
    modes = claim["spec"].get("accessModes", [])
    world.status(bound, phase="Bound", capacity=capacity, accessModes=modes)


def _default(world: World) -> str:
    for item in world.list("StorageClass"):
        value = item["metadata"].get("annotations", {})
        if value.get("storageclass.kubernetes.io/is-default-class") == "true":
            return str(item["metadata"]["name"])
    return ""
