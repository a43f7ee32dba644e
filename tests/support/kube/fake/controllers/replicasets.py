"""ReplicaSets: the desired number of pods, and a condition if pod creation fails."""

from __future__ import annotations

import secrets
import time
from datetime import datetime

from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    condition,
    conditions,
    leaving,
    pod_ready,
    reference,
)
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.store import Object, copied

ENDED = ("Succeeded", "Failed")


def run(client: ControllerClient, namespace: str) -> None:
    for data in client.alive("ReplicaSet", namespace):
        _one(client, data)


def _one(client: ControllerClient, data: Object) -> None:
    pods = [pod for pod in client.owned("Pod", data) if not leaving(pod)]
    pods = [pod for pod in pods if pod.get("status", {}).get("phase") not in ENDED]
    wanted = data["spec"]["replicas"]
    refused = ""
    try:
        for _ in range(wanted - len(pods)):
            pods.append(make(client, data, f"{data['metadata']['name']}-{_suffix()}"))
    except ApiError as error:
        refused = str(error)
        client.event(data, "FailedCreate", f"Error creating: {error}", warning=True)
        client.later(0.3, data["metadata"]["namespace"])
    pods.sort(key=lambda pod: (not pod_ready(pod), pod["metadata"]["creationTimestamp"]))
    pods.sort(key=lambda pod: not pod_ready(pod))
    for pod in pods[wanted:]:
        client.delete(pod)
    _status(client, data, pods[:wanted], refused)


def make(client: ControllerClient, owner: Object, name: str, **labels: str) -> Object:
    template = copied(owner["spec"]["template"])
    metadata = template.get("metadata", {})
    metadata = {
        **metadata,
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "labels": {**metadata.get("labels", {}), **labels},
        "ownerReferences": [reference(owner)],
    }
    pod = client.create("Pod", {"metadata": metadata, "spec": template["spec"]})
    client.event(owner, "SuccessfulCreate", f"Created pod: {name}")
    return pod


def available(client: ControllerClient, pod: Object, after_s: int) -> bool:
    """Return whether the pod has been ready for long enough."""
    if not pod_ready(pod):
        return False
    content = condition(pod, "Ready")["lastTransitionTime"]
    left = datetime.fromisoformat(content).timestamp() + after_s - time.time()
    if left > 0 and after_s:
        client.later(left, pod["metadata"]["namespace"])
        return False
    return True


def _suffix() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))


def _status(client: ControllerClient, data: Object, pods: list[Object], refused: str) -> None:
    after_s = data["spec"].get("minReadySeconds", 0)
    counts = {
        "replicas": len(pods),
        "fullyLabeledReplicas": len(pods),
        "readyReplicas": sum(map(pod_ready, pods)),
        "availableReplicas": sum(available(client, pod, after_s) for pod in pods),
    }
    status = {key: value for key, value in counts.items() if value or key == "replicas"}
    status["observedGeneration"] = data["metadata"]["generation"]
    if refused:
        failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
        found = conditions(data, {**failure, "message": refused})
        client.write({**data, "status": {**status, "conditions": found}}, sub="status")
    else:
        client.write({**data, "status": status}, sub="status")
