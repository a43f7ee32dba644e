"""Jobs: one pod at a time until enough have succeeded."""

from __future__ import annotations

import secrets

from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    condition,
    conditions,
    leaving,
)
from tests.support.kube.fake.controllers.replicasets import make
from tests.support.kube.fake.store import Object


def run(client: ControllerClient, namespace: str) -> None:
    for data in client.alive("Job", namespace):
        if not condition(data, "Complete") and not condition(data, "Failed"):
            _one(client, data)


def _one(client: ControllerClient, data: Object) -> None:
    pods = client.owned("Pod", data)
    ends = [pod.get("status", {}).get("phase") for pod in pods]
    good, bad = ends.count("Succeeded"), ends.count("Failed")
    active = [
        pod
        for pod, end in zip(pods, ends, strict=True)
        if end not in ("Succeeded", "Failed") and not leaving(pod)
    ]
    status = {"succeeded": good, "failed": bad, "active": len(active)}
    messages: list[Object] = []
    if good >= data["spec"]["completions"]:
        messages = [{"type": "Complete", "status": "True", "reason": "CompletionsReached"}]
    elif bad > data["spec"]["backoffLimit"]:
        messages = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    elif not active and not data["spec"].get("suspend"):
        name = f"{data['metadata']['name']}-{secrets.token_hex(3)[:5]}"
        labels = {"batch.kubernetes.io/job-name": data["metadata"]["name"]}
        make(client, data, name, **labels)
        status["active"] = 1
    client.status(data, **status, conditions=conditions(data, *messages))
