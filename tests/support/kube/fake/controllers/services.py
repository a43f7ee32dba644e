"""EndpointSlices of Services, allowed disruptions of budgets, and quota usage."""

from __future__ import annotations

import math
from typing import Any

from tests.support.kube.fake.admission import used_of
from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    condition,
    digest,
    leaving,
    pod_ready,
    reference,
)
from tests.support.kube.fake.store import Object


def slices(client: ControllerClient, namespace: str) -> None:
    for service in client.alive("Service", namespace):
        if service["spec"].get("selector"):
            _slice(client, service)


def _slice(client: ControllerClient, service: Object) -> None:
    spec, metadata = service["spec"], service["metadata"]
    selector = {"matchLabels": spec["selector"]}
    pods = [
        pod
        for pod in client.selected("Pod", metadata["namespace"], selector)
        if pod.get("status", {}).get("podIP")
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    always = spec.get("publishNotReadyAddresses", False)
    data = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{metadata['name']}-{digest(metadata['uid'], 5)}",
            "namespace": metadata["namespace"],
            "labels": {
                **metadata.get("labels", {}),
                "kubernetes.io/service-name": metadata["name"],
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [reference(service)],
        },
        "addressType": "IPv4",
        "ports": [_port(port, pods) for port in spec.get("ports") or ()],
        "endpoints": [_endpoint(pod, always) for pod in pods],
    }
    name = data["metadata"]["name"]
    if client.store.find("EndpointSlice", metadata["namespace"], name) is None:
        client.create("EndpointSlice", data)
    else:
        client.write(data)


def _port(port: Object, pods: list[Object]) -> Object:
    target = port.get("targetPort", port["port"])
    if isinstance(target, str):
        named = [
            item["containerPort"]
            for pod in pods
            for container in pod["spec"]["containers"]
            for item in container.get("ports") or ()
            if item.get("name") == target
        ]
        target = named[0] if named else None
    found = {"name": port.get("name", ""), "protocol": port.get("protocol", "TCP")}
    if "appProtocol" in port:
        found["appProtocol"] = port["appProtocol"]
    return {**found, **({"port": target} if target is not None else {})}


def _endpoint(pod: Object, always: bool) -> Object:
    serving = condition(pod, "Ready").get("status") == "True"
    state = {"ready": always or pod_ready(pod), "serving": serving, "terminating": leaving(pod)}
    metadata = pod["metadata"]
    target = {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"]}
    found: dict[str, Any] = {
        "addresses": [pod["status"]["podIP"]],
        "conditions": state,
        "targetRef": {**target, "uid": metadata["uid"]},
    }
    if pod["spec"].get("nodeName"):
        found["nodeName"] = pod["spec"]["nodeName"]
    return found


def budgets(client: ControllerClient, namespace: str) -> None:
    for budget in client.alive("PodDisruptionBudget", namespace):
        spec = budget["spec"]
        pods = client.selected("Pod", namespace, spec.get("selector"))
        healthy = sum(map(pod_ready, pods))
        least = _least(spec, len(pods))
        client.status(
            budget,
            expectedPods=len(pods),
            currentHealthy=healthy,
            desiredHealthy=least,
            disruptionsAllowed=max(0, healthy - least),
            observedGeneration=budget["metadata"]["generation"],
        )


def _least(spec: Object, of: int) -> int:
    def share(value: Any) -> int:
        if isinstance(value, int):
            return value
        return math.ceil(of * int(value.rstrip("%")) / 100)

    if "minAvailable" in spec:
        return share(spec["minAvailable"])
    return max(0, of - share(spec.get("maxUnavailable", 1)))


def quotas(client: ControllerClient, namespace: str) -> None:
    for quota in client.alive("ResourceQuota", namespace):
        kinds = [item for item in client.verbs.kinds.values() if item.namespaced]
        hard = quota["spec"].get("hard", {})
        client.status(quota, hard=hard, used=used_of(client.store, kinds, quota))
