"""Rendered objects in a cluster: placement, discovery, eviction, network policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.anchor import set_owner
from console.provisioners.kubernetes.rendering.names import WORKLOAD
from console.provisioners.kubernetes.rendering.render import render
from tests.console.provisioners.kubernetes.rendering.matrix import (
    ROUTERS,
    SECRETS,
    SPECS,
    TARGET,
    WORKER,
    pod_changed,
)
from tests.support.kube.behaviours import PLAYER
from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster, ready
from tests.support.waiting import until

MINE = f"{WORKLOAD}=demo-worker"
SMALL = replace(WORKER, memory_bytes=2**28, cpus=0.1, replicas=1)


def put(cluster: Cluster, space: str, spec: WorkloadSpec) -> None:
    anchor, *others = render(spec, replace(TARGET, namespace=space), SECRETS)
    made = cluster.api.apply("ConfigMap", space, anchor, "emberline", force="true")
    for data in others:
        mine = set_owner(data, spec.name, made["metadata"]["uid"])
        cluster.api.apply(data["kind"], space, mine, "emberline", force="true")


def running(cluster: Cluster, space: str, count: int) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        pods = [pod for pod in cluster.pods(space, MINE) if ready(pod)]
        return pods if len(pods) == count else []

    return until(found, what=f"{count} pods ready")


@pytest.fixture
def space(cluster: Cluster) -> str:
    return cluster.namespace(**cluster.restricted)


def test_instance_types_are_used_in_their_order(cluster: Cluster, space: str) -> None:
    first = cluster.node("first", f"{space}.liked", gpus=1)
    second = cluster.node("second", f"{space}.next", gpus=1)
    cluster.node("never", f"{space}.other", gpus=8)
    spec = pod_changed(
        replace(SMALL, gpus=1), instance_types=(f"{space}.liked", f"{space}.next"), shm_bytes=0
    )
    put(cluster, space, spec)
    (pod,) = running(cluster, space, 1)
    assert pod["spec"]["nodeName"] == first
    put(cluster, space, replace(spec, replicas=2))
    nodes = {pod["spec"]["nodeName"] for pod in running(cluster, space, 2)}
    assert nodes == {first, second}
    put(cluster, space, replace(spec, replicas=3))

    def waiting() -> list[str]:
        return [
            condition["reason"]
            for pod in cluster.pods(space, MINE)
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]

    assert until(waiting, what="the third has no node") == ["Unschedulable"]


def test_only_ready_pods_are_discovered_with_all_channels(cluster: Cluster, space: str) -> None:
    cluster.rule(space, behaviour="never-ready", labels={WORKLOAD: "demo-worker"})
    put(cluster, space, replace(SMALL, replicas=2))
    label = "kubernetes.io/service-name=demo-worker-pods"

    def ends() -> list[dict[str, Any]]:
        slices = cluster.api.list("EndpointSlice", space, label)
        return [end for one in slices for end in one.get("endpoints") or ()]

    until(lambda: len(ends()) == 2, what="both are listed")
    assert not any(end["conditions"]["ready"] for end in ends())
    cluster.rule(space, behaviour="ready")
    until(lambda: sum(bool(end["conditions"]["ready"]) for end in ends()) == 2, what="both ready")
    (one,) = cluster.api.list("EndpointSlice", space, label)
    ports = {port["name"]: port["port"] for port in one["ports"]}
    assert ports == {"http": 8000, "kv-events": 5557, "kv-replay": 5558}


def test_node_drains_evict_one_pod_at_a_time(cluster: Cluster, space: str) -> None:
    put(cluster, space, replace(SMALL, replicas=2))
    one, other = running(cluster, space, 2)

    def budget() -> tuple[int | None, int | None]:
        """Healthy pods and allowed disruptions; of one pod alone, too, one is allowed."""
        status = cluster.api.get("PodDisruptionBudget", space, "demo-worker").get("status", {})
        return status.get("currentHealthy"), status.get("disruptionsAllowed")

    until(lambda: budget() == (2, 1), what="budget of two healthy pods")
    # The replacement does not become ready, so only the remaining pods count.
    for pod in (one, other):
        note = {"metadata": {"annotations": {PLAYER: "ready"}}}
        cluster.api.merge("Pod", space, pod["metadata"]["name"], note)
    cluster.rule(space, behaviour="never-ready")
    until(lambda: evicted(cluster, space, one), what="eviction of the first")
    until(lambda: budget()[1] == 0, what="budget without the evicted pod")
    with pytest.raises(Refused) as refused:
        evict(cluster, space, other)
    assert refused.value.code == 429


def evicted(cluster: Cluster, space: str, pod: dict[str, Any]) -> bool:
    """Try as a drain does: the rule may be in force a moment before the annotations are."""
    try:
        evict(cluster, space, pod)
    except Refused as refused:
        assert refused.code == 429
        return False
    return True


def evict(cluster: Cluster, space: str, pod: dict[str, Any]) -> None:
    name = pod["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    cluster.api.ask("POST", cluster.api.path("Pod", space, name, "eviction"), body)


@pytest.mark.kubernetes
def test_router_account_can_only_read_slices(real_cluster: Cluster) -> None:
    space, elsewhere = real_cluster.namespace(), real_cluster.namespace()
    put(real_cluster, space, ROUTERS)

    def may(verb: str, group: str, resource: str, where: str) -> bool:
        requested = {"verb": verb, "group": group, "resource": resource, "namespace": where}
        user = f"system:serviceaccount:{space}:demo-router"
        body = {"spec": {"user": user, "resourceAttributes": requested}}
        body |= {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(real_cluster.api.ask("POST", path, body)["status"]["allowed"])

    slices = ("discovery.k8s.io", "endpointslices")
    until(lambda: may("watch", *slices, space), what="the binding is known")
    assert may("list", *slices, space)
    assert not may("list", *slices, elsewhere)
    assert not may("update", *slices, space)
    assert not may("list", "", "secrets", space)
    assert not may("list", "", "pods", space)


@pytest.mark.kubernetes
def test_share_is_bound_to_its_claim(real_cluster: Cluster) -> None:

    space, api = real_cluster.namespace(), real_cluster.api
    put(real_cluster, space, SPECS["worker-fsx"])
    (claim,) = api.list("PersistentVolumeClaim", space)
    name = claim["metadata"]["name"]
    try:
        until(
            lambda: (
                api.get("PersistentVolumeClaim", space, name).get("status", {}).get("phase")
                == "Bound"
            ),
            what="claim bound",
        )
    finally:
        api.delete("PersistentVolume", "", f"{space}.{name}")
