"""Nodes: two without GPUs and three kinds with GPUs, in two zones.

Our nodes have the label `kubelet-player`; an annotation holds their resources, so that tests can
add nodes through the API. Annotation `kubelet-player/lost` marks a lost node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.kube.behaviours import PLAYER

CAPACITY = f"{PLAYER}/capacity"
LOST = f"{PLAYER}/lost"
BASE = {"cpu": "96", "memory": "512Gi", "ephemeral-storage": "2Ti", "pods": "500"}


def node(
    name: str,
    instance_type: str,
    zone: str = "zone-a",
    gpus: int = 0,
    product: str = "",
    resource: str = "nvidia.com/gpu",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Mapping[str, str], ...] = (),
    **capacity: str,
) -> dict[str, Any]:
    """Return a Node without status, which the simulated kubelet writes."""
    own = {
        PLAYER: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": "here",
    }
    has = {**BASE, **capacity}
    if gpus:
        vendor = resource.partition("/")[0]
        own |= {f"{vendor}/gpu.present": "true", f"{vendor}/gpu.product": product}
        own[f"{vendor}/gpu.count"] = str(gpus)
        has[resource] = str(gpus)
    return {
        "metadata": {
            "name": name,
            "labels": own | dict(labels or {}),
            "annotations": {CAPACITY: json.dumps(has)},
        },
        "spec": {"taints": [dict(item) for item in taints]} if taints else {},
    }


NODES: tuple[dict[str, Any], ...] = (
    node("cpu-1", "m5.24xlarge", "zone-a"),
    node("cpu-2", "m5.24xlarge", "zone-b"),
    node("a10g-1", "ml.g5.8xlarge", "zone-a", 1, "NVIDIA-A10G"),
    node("a10g-2", "ml.g5.8xlarge", "zone-b", 1, "NVIDIA-A10G"),
    node("a100-1", "ml.p4d.24xlarge", "zone-a", 8, "NVIDIA-A100-SXM4-40GB"),
    node("a100-2", "ml.p4d.24xlarge", "zone-b", 8, "NVIDIA-A100-SXM4-40GB"),
    node("h100-1", "ml.p5.48xlarge", "zone-a", 64, "NVIDIA-H100-80GB-HBM3"),
    node("h100-2", "ml.p5.48xlarge", "zone-b", 64, "NVIDIA-H100-80GB-HBM3"),
    node("mi300-1", "amd-mi300x", "zone-a", 8, "AMD-Instinct-MI300X", "amd.com/gpu"),
)


def capacity(data: Mapping[str, Any]) -> dict[str, str]:
    value = data["metadata"].get("annotations", {}).get(CAPACITY)
    found: dict[str, str] = json.loads(value) if value else dict(BASE)
    return found


def lost(data: Mapping[str, Any]) -> bool:
    return LOST in data["metadata"].get("annotations", {})


def status(data: Mapping[str, Any], address: str, port: int, now: str) -> dict[str, Any]:
    """Return a ready status with all resources, or an unreachable one."""
    has = capacity(data)
    gone = lost(data)
    ready = {
        "type": "Ready",
        "status": "Unknown" if gone else "True",
        "reason": "NodeStatusUnknown" if gone else "KubeletReady",
        "message": "Kubelet stopped posting node status." if gone else "the player is ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return {
        "capacity": has,
        "allocatable": has,
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "kubeletVersion": "v1.36.2",
            "kubeProxyVersion": "",
            "osImage": "player",
            "operatingSystem": "linux",
            "architecture": "amd64",
            "containerRuntimeVersion": "player://1",
            "kernelVersion": "6",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }
