"""Nodes by instance type, and GPUs as counted by the scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from console.provisioners.kubernetes.discovery.inventory import (
    CapabilityFinding,
    Inventory,
    Offers,
    count_gpus_taken,
    parse_quantity,
    pools,
)

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int = 0, ready: str = "True", **more: Any) -> dict[str, Any]:
    labels = {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "nvidia.com/gpu.product": "H100",
        "nvidia.com/gpu.memory": "81559",
        "topology.kubernetes.io/zone": more.pop("zone", "a"),
    }
    return {
        "metadata": {"name": name, "labels": more.pop("labels", labels)},
        "spec": more,
        "status": {
            "allocatable": {"cpu": "1920m", "memory": "2Ti", **({GPU: str(gpus)} if gpus else {})},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(
    on: str, *requested: int, phase: str = "Running", init: tuple[Any, ...] = ()
) -> dict[str, Any]:
    containers = [{"resources": {"limits": {GPU: str(count)}}} for count in requested]
    steps = [{"resources": {"requests": {GPU: str(count)}}, **more} for count, more in init]
    spec: dict[str, Any] = {"containers": containers, "initContainers": steps}
    return {"spec": {**spec, **({"nodeName": on} if on else {})}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("250m", 0.25), ("2Ti", 2 * 1024**4), ("1k", 1000), ("x", 0), ("", 0), (8, 8)],
)
def test_quantities(text: Any, number: float) -> None:
    assert float(parse_quantity(text)) == number


def test_free_resources_are_those_not_requested() -> None:
    nodes = [node("n1", 8), node("n2", 8, zone="b"), node("cpu", labels={})]
    pods = [
        pod("n1", 2, 1),
        pod("n1", 4, phase="Succeeded"),
        pod("", 4, phase="Pending"),
        pod("n2", 1, init=((4, {}),)),
        pod("n2", 1, init=((1, {"restartPolicy": "Always"}),)),
    ]
    assert count_gpus_taken(pods) == {("n1", GPU): 3, ("n2", GPU): 6}
    other, h100 = pools(nodes, pods)
    assert (other.instance_type, other.gpus, other.gpu) == ("", 0, "")
    assert (h100.gpu, h100.nodes, h100.gpus, h100.gpus_free) == ("H100", 2, 16, 7)
    assert (h100.gpus_per_node, h100.zones, h100.cpus) == (8, ("a", "b"), 1.92)
    assert h100.gpu_memory_bytes == 81559 * 1024**2
    assert h100.memory_bytes == 2 * 1024**4


def test_unschedulable_node_has_no_free_resources() -> None:
    nodes = [node("n1", 8, ready="False"), node("n2", 8, unschedulable=True), node("n3", 8)]
    (pool,) = pools(nodes, [])
    assert (pool.nodes, pool.ready, pool.gpus, pool.gpus_free) == (3, 2, 24, 8)


def test_unknown_is_not_zero() -> None:
    (pool,) = pools([node("n1", 8)], None)
    assert pool.gpus_free is None


def test_node_without_status() -> None:
    (pool,) = pools([{"metadata": {"name": "new"}, "spec": {}}], [])
    assert (pool.nodes, pool.ready, pool.gpus, pool.memory_bytes) == (1, 0, 0, 0)


def test_taints_that_repel_pods() -> None:
    taints = [
        {"key": GPU, "value": "present", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "team", "effect": "NoExecute"},
    ]
    (pool,) = pools([node("n1", 1, taints=taints)], [])
    assert pool.taints == ("nvidia.com/gpu=present:NoSchedule", "team:NoExecute")


def test_gpu_slices_count_as_gpus() -> None:
    sliced = node("n1")
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] = "7"
    (pool,) = pools([sliced], [])
    assert (pool.gpu_resource, pool.gpus) == ("nvidia.com/mig-1g.10gb", 7)


def test_inventory_survives_json_and_later_releases() -> None:
    found = Inventory(
        "v1.36.2",
        (CapabilityFinding("keda", present=True, detail="x"),),
        pools([node("n1", 8)], None),
        Offers(namespaces=None, storage_classes=("a", "b")),
        ("note",),
        shares=True,
    )
    data = json.loads(json.dumps(found.to_json()))
    assert Inventory.of_json(data) == found
    data["findings"].append({"name": "of a later release", "present": True})
    data["pools"][0]["of_a_later_release"] = 1
    del data["offers"]["gateways"]
    assert Inventory.of_json(data) == found
    assert Inventory.of_json({}) == Inventory()
