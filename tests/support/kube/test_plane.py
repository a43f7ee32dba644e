"""Tests of the control plane and the simulated kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster, ready
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

STRICT = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "container": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


def deployment(name: str, replicas: int = 1, image: str = "web:1", **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": image, "securityContext": STRICT["container"]}
    spec = {"containers": [container], "securityContext": STRICT["securityContext"], **pod}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def available(cluster: Cluster, namespace: str, name: str) -> int:
    status = cluster.api.get("Deployment", namespace, name)["status"]
    return int(status.get("availableReplicas", 0))


def waiting(cluster: Cluster, namespace: str) -> set[str]:
    states = [
        item["state"].get("waiting", {}).get("reason", "")
        for pod in cluster.pods(namespace)
        for item in pod["status"].get("containerStatuses", ())
    ]
    return set(filter(None, states))


def test_deployment_becomes_ready_and_is_collected(cluster: Cluster) -> None:
    api = cluster.api
    space = cluster.namespace(**cluster.restricted)
    api.apply("Deployment", space, deployment("web", 2))
    ports = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}
    api.apply("Service", space, {"metadata": {"name": "web"}, "spec": ports})
    until(lambda: available(cluster, space, "web") == 2, 60)

    def slices() -> Any:
        return api.list("EndpointSlice", space)

    until(lambda: [len(item["endpoints"] or ()) for item in slices()] == [2], 60)
    api.delete("Deployment", space, "web", propagationPolicy="Foreground")
    until(lambda: not cluster.pods(space) and not api.list("ReplicaSet", space), 60)


def test_pods_follow_their_rule(cluster: Cluster) -> None:
    api = cluster.api
    space = cluster.namespace()
    cluster.rule(space, behaviour="crash-loop", labels={"app": "bad"})
    api.apply("Deployment", space, deployment("bad"))
    api.apply("Deployment", space, deployment("good"))
    until(lambda: waiting(cluster, space) == {"CrashLoopBackOff"}, 60)
    until(lambda: available(cluster, space, "good") == 1, 60)
    cluster.rule(space, behaviour="pull-error")
    until(lambda: waiting(cluster, space) == {"ImagePullBackOff"}, 60)
    cluster.rule(space)
    until(lambda: available(cluster, space, "bad") == 1, 60)


def test_unschedulable_pod_is_reported(cluster: Cluster) -> None:
    space = cluster.namespace()
    pod = {"nodeSelector": {"node.kubernetes.io/instance-type": "ml.none"}}
    cluster.api.apply("Deployment", space, deployment("web", **pod))

    def why() -> str:
        conditions = [c for p in cluster.pods(space) for c in p["status"].get("conditions", ())]
        return "".join(c["reason"] for c in conditions if c["status"] == "False")

    until(lambda: why() == "Unschedulable", 60)


def test_pods_of_a_lost_node_are_rescheduled(cluster: Cluster) -> None:
    api = cluster.api
    space = cluster.namespace()
    node = cluster.node("gone", "ml.lab", labels={"lab": space})
    prefer = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "lab", "operator": "In", "values": [space]}]
                    },
                }
            ]
        }
    }
    api.apply("Deployment", space, deployment("web", affinity=prefer))
    until(lambda: available(cluster, space, "web") == 1, 60)
    assert [pod["spec"]["nodeName"] for pod in cluster.pods(space)] == [node]
    cluster.lose(node)

    def ready_on() -> set[str]:
        return {pod["spec"].get("nodeName") for pod in cluster.pods(space) if ready(pod)}

    until(lambda: ready_on() - {node}, 90)
    # The lost pod's status stays until the node is marked out of service.
    assert node in {pod["spec"].get("nodeName") for pod in cluster.pods(space)}
    cluster.bury(node)
    until(lambda: all(pod["spec"].get("nodeName") != node for pod in cluster.pods(space)), 30)


def test_logs_are_read_through_the_api(cluster: Cluster) -> None:
    space = cluster.namespace()
    cluster.rule(space, log=["one", "two", "three"])
    cluster.api.apply("Deployment", space, deployment("web"))
    until(lambda: available(cluster, space, "web") == 1, 60)
    path = cluster.api.path("Pod", space, cluster.pods(space)[0]["metadata"]["name"], "log")
    assert cluster.api.http.get(path, params={"tailLines": 2}).text == "two\nthree\n"
    with cluster.api.http.stream("GET", path, params={"follow": "true"}) as answer:
        lines = answer.iter_lines()
        assert [next(lines), next(lines), next(lines)] == ["one", "two", "three"]
        cluster.api.delete("Deployment", space, "web")
        assert list(lines) == []  # ends with the container


def test_missing_permission_is_rejected(cluster: Cluster) -> None:
    with cluster.plane.client("person-9") as api:
        with pytest.raises(Refused, match=r"403 Forbidden.*person-9"):
            api.list("Pod", "default")
    weak = cluster.namespace(**cluster.restricted)
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "x", "image": "x"}]}}
    with pytest.raises(Refused, match="violates PodSecurity"):
        cluster.api.create("Pod", weak, pod)


def test_misspelt_custom_resource_field_is_rejected(cluster: Cluster) -> None:
    space = cluster.namespace()
    data = {
        "metadata": {"name": "x"},
        "spec": {"scaleTargetRef": {"name": "x"}, "triggers": [], "minReplicas": 1},
    }
    with pytest.raises(Refused, match=r"unknown field .spec\.minReplicas"):
        cluster.api.create("ScaledObject", space, data, fieldValidation="Strict")
    # Apply validates more strictly than requested, with its own text and status.
    with pytest.raises(Refused, match=r"\.spec\.minReplicas: field not declared in schema"):
        cluster.api.apply("ScaledObject", space, data)
