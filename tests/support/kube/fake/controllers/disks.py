"""PersistentVolumeClaims: bound at once if their class exists."""

from __future__ import annotations

from tests.support.kube.fake.controllers.controller_client import ControllerClient
from tests.support.kube.fake.store import Object


def run(client: ControllerClient, namespace: str) -> None:
    for claim in client.alive("PersistentVolumeClaim", namespace):
        if claim.get("status", {}).get("phase") != "Bound":
            _bind(client, claim)


def _bind(client: ControllerClient, claim: Object) -> None:
    named = claim["spec"].get("storageClassName", "")
    if not named and "storageClassName" not in claim["spec"]:
        named = _default(client)
        if named:
            spec = {**claim["spec"], "storageClassName": named}
            claim = client.write({**claim, "spec": spec})
    if named and client.store.find("StorageClass", "", named) is None:
        text = f'storageclass.storage.k8s.io "{named}" not found'
        client.event(claim, "ProvisioningFailed", text, warning=True)
        client.later(1.0, claim["metadata"]["namespace"])
        return
    # On a real plane the simulated provisioner creates the volume; here it is only bound.
    capacity = claim["spec"].get("resources", {}).get("requests", {})
    bound = claim
    if not claim["spec"].get("volumeName"):
        volume = f"pvc-{claim['metadata']['uid']}"
        bound = client.write({**claim, "spec": {**claim["spec"], "volumeName": volume}})
    modes = claim["spec"].get("accessModes", [])
    client.status(bound, phase="Bound", capacity=capacity, accessModes=modes)


def _default(client: ControllerClient) -> str:
    for item in client.list("StorageClass"):
        value = item["metadata"].get("annotations", {})
        if value.get("storageclass.kubernetes.io/is-default-class") == "true":
            return str(item["metadata"]["name"])
    return ""
