"""StatefulSets: numbered pods in order, each with its volumes."""

from __future__ import annotations

from typing import Any

from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    digest,
    leaving,
    pod_ready,
)
from tests.support.kube.fake.controllers.replicasets import available, make
from tests.support.kube.fake.store import Object, copied

HASH = "controller-revision-hash"
NUMBER = "apps.kubernetes.io/pod-index"


def run(client: ControllerClient, namespace: str) -> None:
    for data in client.alive("StatefulSet", namespace):
        _one(client, data)


def _one(client: ControllerClient, data: Object) -> None:
    name = f"{data['metadata']['name']}-{digest(data['spec']['template'])}"
    pods = {int(pod["metadata"]["labels"][NUMBER]): pod for pod in client.owned("Pod", data)}
    for number, pod in list(pods.items()):
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            client.delete(pod, 0)
            del pods[number]
    wanted = data["spec"]["replicas"]
    together = data["spec"]["podManagementPolicy"] == "Parallel"
    if _fill(client, data, pods, name, wanted, together) and _shrink(
        client, pods, wanted, together
    ):
        _update(client, data, pods, name, wanted)
    _status(client, data, pods, name)


def _fill(
    client: ControllerClient,
    data: Object,
    pods: dict[int, Object],
    name: str,
    wanted: int,
    together: bool,
) -> bool:
    """Return whether all pods exist (and are available, if they are created in order)."""
    for number in range(wanted):
        if number not in pods:
            pods[number] = _make(client, data, number, name)
        if not together and not pod_ready(pods[number]):
            return False
    return True


def _shrink(client: ControllerClient, pods: dict[int, Object], wanted: int, together: bool) -> bool:
    surplus = sorted((number for number in pods if number >= wanted), reverse=True)
    for number in surplus:
        if not leaving(pods[number]):
            client.delete(pods[number])
        if not together:
            return False
    return not surplus


def _update(
    client: ControllerClient, data: Object, pods: dict[int, Object], name: str, wanted: int
) -> None:
    """Update the highest first, the next once it is available."""
    if data["spec"]["updateStrategy"].get("type") == "OnDelete":
        return
    for number in reversed(range(wanted)):
        pod = pods[number]
        if pod["metadata"]["labels"].get(HASH) != name:
            if not leaving(pod):
                client.delete(pod)
            return
        if not pod_ready(pod):
            return


def _make(client: ControllerClient, data: Object, number: int, name: str) -> Object:
    own = f"{data['metadata']['name']}-{number}"
    labels = {HASH: name, NUMBER: str(number), "statefulset.kubernetes.io/pod-name": own}
    owner: Any = copied(data)
    spec = owner["spec"]["template"]["spec"]
    spec |= {"hostname": own, "subdomain": data["spec"].get("serviceName", "")}
    for template in data["spec"].get("volumeClaimTemplates", ()):
        claim = f"{template['metadata']['name']}-{own}"
        volumes = [v for v in spec.get("volumes", ()) if v["name"] != template["metadata"]["name"]]
        source = {"persistentVolumeClaim": {"claimName": claim}}
        spec["volumes"] = [*volumes, {"name": template["metadata"]["name"], **source}]
        if client.store.find("PersistentVolumeClaim", data["metadata"]["namespace"], claim) is None:
            _claim(client, data, template, claim)
    return make(client, owner, own, **labels)


def _claim(client: ControllerClient, data: Object, template: Object, name: str) -> None:
    metadata = {
        "name": name,
        "namespace": data["metadata"]["namespace"],
        "labels": {
            **data["spec"]["selector"].get("matchLabels", {}),
            **template["metadata"].get("labels", {}),
        },
        "annotations": template["metadata"].get("annotations", {}),
    }
    client.create("PersistentVolumeClaim", {"metadata": metadata, "spec": template["spec"]})


def _status(client: ControllerClient, data: Object, pods: dict[int, Object], name: str) -> None:
    all_pods = list(pods.values())
    new = [pod for pod in all_pods if pod["metadata"]["labels"].get(HASH) == name]
    before = data.get("status", {})
    current = before.get("currentRevision", name)
    if len(new) == len(all_pods) == data["spec"]["replicas"] and all(map(pod_ready, new)):
        current = name
    after_s = data["spec"].get("minReadySeconds", 0)
    status = {
        "replicas": len(all_pods),
        "readyReplicas": sum(map(pod_ready, all_pods)),
        "availableReplicas": sum(available(client, pod, after_s) for pod in all_pods),
        "updatedReplicas": len(new),
        "currentReplicas": len(new) if current == name else len(all_pods) - len(new),
        "currentRevision": current,
        "updateRevision": name,
        "observedGeneration": data["metadata"]["generation"],
        "collisionCount": 0,
    }
    client.write({**data, "status": status}, sub="status")
