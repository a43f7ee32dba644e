"""Endpoint lifecycle on a cluster over an API server: from create to deletion."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from console.provisioners.kubernetes.workload import observation
from endpoints import actions, drift_actions, selectors
from endpoints.actions import SYSTEM
from endpoints.logs import sources
from endpoints.models import Endpoint
from tests.support.endpoints.cluster_harness import ClusterHarness
from tests.support.endpoints.fixtures import data, known_machine, no_old_keys  # noqa: F401
from tests.support.endpoints.reconciler_harness import age, kinds, states
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
DEPLOYMENT = ("Deployment", "demo-worker")
HASH = "emberline.dev/spec-hash"


@pytest.fixture
def cluster_harness(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    return ClusterHarness(cluster, monkeypatch)


@pytest.fixture
def demo_endpoint(cluster_harness: ClusterHarness, data: dict[str, Any]) -> Endpoint:
    return cluster_harness.create(data)


@pytest.fixture
def served(cluster_harness: ClusterHarness, demo_endpoint: Endpoint) -> Endpoint:
    cluster_harness.until(demo_endpoint, "Ready")
    return demo_endpoint


@pytest.fixture
def looking_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object at every look, instead of now and then."""
    monkeypatch.setattr(observation, "CHECK_EVERY_S", 0.0)


def change() -> Endpoint:
    """One that needs new workers."""
    return actions.patch(SYSTEM, "demo", {"worker_args": ["--max-model-len=1024"]})


def hash_of(harness: ClusterHarness) -> str:
    pods = harness.pods()
    return str(pods[0]["metadata"]["labels"][HASH])


def only_old_ones_work(harness: ClusterHarness, behaviour: str) -> None:
    """Pods of any later revision behave like this."""
    harness.cluster.rule(
        harness.namespace, "a-old", behaviour="ready", labels={HASH: hash_of(harness)}
    )
    routers = {"emberline.dev/workload": "demo-router"}
    harness.cluster.rule(harness.namespace, "b-routers", behaviour="ready", labels=routers)
    harness.cluster.rule(harness.namespace, "c-new", behaviour=behaviour)


def test_endpoint_from_create_to_ready_to_deleted(
    cluster_harness: ClusterHarness, demo_endpoint: Endpoint
) -> None:
    status = cluster_harness.until(demo_endpoint, "Ready")
    assert set(states(status).values()) == {"done"}
    assert {"Scheduled", "ImagePulled", "Prepared", "Loaded"} <= set(states(status))
    assert cluster_harness.ready() == 2
    assert cluster_harness.ready("demo-router") == 2
    assert {row["part"] for row in status.conditions} >= {"rollout"}
    assert {row["workload"] for row in status.pods} == {"demo-router"}
    worker = demo_endpoint.replicas.order_by("index").first()
    assert worker is not None
    assert worker.node
    actions.delete(SYSTEM, "demo")
    cluster_harness.gone(demo_endpoint)
    assert cluster_harness.left() == []


def test_change_is_rolled_out_with_all_replicas_ready(
    cluster_harness: ClusterHarness, served: Endpoint
) -> None:
    before = hash_of(cluster_harness)
    change()
    least = []

    def rolled_out() -> bool:
        least.append(cluster_harness.ready())
        status = cluster_harness.step(served)
        assert status is not None
        return status.phase == "Ready" and status.served_generation == 2

    until(rolled_out, what="rolled out")
    assert min(least) >= 2
    assert {pod["metadata"]["labels"][HASH] for pod in cluster_harness.pods()} != {before}


@pytest.mark.parametrize("behaviour", ["crash-loop", "pull-error"])
def test_failing_revision_is_rolled_back(
    cluster_harness: ClusterHarness, served: Endpoint, behaviour: str
) -> None:
    old = hash_of(cluster_harness)
    only_old_ones_work(cluster_harness, behaviour)
    change()

    def given_up() -> bool:
        assert cluster_harness.ready() >= 2, "the old revision serves meanwhile"
        status = cluster_harness.step(served)
        assert status is not None
        if status.reason in ("ErrImagePull", "ImagePullBackOff"):
            age(status, generation_seen_at=1801)  # half an hour later
        return Endpoint.objects.get(pk=served.pk).generation == 3

    until(given_up, what="taken back")
    status = cluster_harness.until(served, "Ready")
    assert status.rolled_back["failed"] == 2
    assert "RolledBack" in kinds(served)
    until(
        lambda: {p["metadata"]["labels"][HASH] for p in cluster_harness.pods()} == {old},
        what="old only",
    )


def test_cluster_events_are_shown_on_the_endpoint(
    cluster_harness: ClusterHarness, data: dict[str, Any]
) -> None:
    """No node fits: reason and event quote the scheduler's message."""
    placed = {"cluster": "east", "node_selector": {"no-such": "label"}}
    demo = cluster_harness.create(data, placement=placed)
    status = cluster_harness.until(demo, "Provisioning", "Unschedulable")
    assert "node" in status.message
    assert states(status)["Scheduled"] == "active"

    def reported() -> Any:
        cluster_harness.step(demo)
        return demo.events.filter(kind="FailedScheduling").first()

    event = until(reported, what="the scheduler's event")
    assert (event.origin, event.severity) == ("cluster", "warning")


def test_quota_is_named(cluster_harness: ClusterHarness, data: dict[str, Any]) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    cluster_harness.cluster.api.create("ResourceQuota", cluster_harness.namespace, quota)

    def enforced() -> bool:
        found = cluster_harness.cluster.api.get("ResourceQuota", cluster_harness.namespace, "few")
        return cluster_harness.cluster.kind == "fake" or "hard" in found.get("status", {})

    until(enforced, what="quota")
    demo = cluster_harness.create(data)
    status = cluster_harness.until(demo, "Provisioning", "QuotaExceeded")
    assert "quota" in status.message
    cluster_harness.cluster.api.merge(
        "ResourceQuota", cluster_harness.namespace, "few", {"spec": {"hard": {"pods": "99"}}}
    )
    cluster_harness.until(demo, "Ready")


def test_pause_keeps_everything_except_workers(
    cluster_harness: ClusterHarness, served: Endpoint
) -> None:
    actions.pause(SYSTEM, "demo")
    cluster_harness.until(served, "Paused")
    assert cluster_harness.pods() == []
    assert cluster_harness.ready("demo-router") == 2
    actions.resume(SYSTEM, "demo")
    cluster_harness.until(served, "Ready")
    assert cluster_harness.ready() == 2


def test_lost_node_is_a_loss_until_its_workers_are_replaced(
    cluster_harness: ClusterHarness, data: dict[str, Any]
) -> None:
    mine = {"chaos": cluster_harness.namespace}
    nodes = [cluster_harness.cluster.node(f"n{i}", "m5.24xlarge", labels=mine) for i in range(2)]
    placed = {"cluster": "east", "node_selector": mine}
    demo = cluster_harness.create(data, placement=placed)
    cluster_harness.until(demo, "Ready")
    on = {pod["spec"]["nodeName"] for pod in cluster_harness.pods()}
    assert on == set(nodes), "they are spread"
    cluster_harness.cluster.lose(nodes[0])
    cluster_harness.cluster.bury(nodes[0])
    cluster_harness.until(demo, "Ready")
    assert {pod["spec"]["nodeName"] for pod in cluster_harness.pods()} == {nodes[1]}
    assert cluster_harness.ready() == 2
    assert "WorkerRemoved" in kinds(demo)


@pytest.mark.usefixtures("looking_closely")
def test_external_change_is_found_named_and_healed(
    cluster_harness: ClusterHarness, served: Endpoint
) -> None:
    edit = {"spec": {"minReadySeconds": 77}}
    cluster_harness.cluster.api.merge("Deployment", cluster_harness.namespace, "demo-worker", edit)
    status = cluster_harness.until(served, "Degraded")
    (row,) = [row for row in status.drift if row["path"] == ".spec.minReadySeconds"]
    assert row["found"] == 77
    assert row["manager"]
    assert status.remedy
    drift_actions.heal(SYSTEM, "demo")
    status = cluster_harness.until(served, "Ready")
    found = cluster_harness.cluster.api.get("Deployment", cluster_harness.namespace, "demo-worker")
    assert found["spec"].get("minReadySeconds", 0) == row["wanted"]
    assert status.drift == []


@pytest.mark.usefixtures("looking_closely")
def test_external_change_is_adopted(cluster_harness: ClusterHarness, served: Endpoint) -> None:
    edit = {"spec": {"replicas": 3, "revisionHistoryLimit": 9}}
    cluster_harness.cluster.api.merge("Deployment", cluster_harness.namespace, "demo-worker", edit)
    status = cluster_harness.until(served, "Degraded")
    keys = {row["path"]: row["key"] for row in status.drift}
    drift_actions.adopt(SYSTEM, "demo", keys[".spec.replicas"])
    drift_actions.adopt(SYSTEM, "demo", keys[".spec.revisionHistoryLimit"])
    status = cluster_harness.until(served, "Ready")
    assert Endpoint.objects.get(pk=served.pk).spec["replicas"] == 3
    assert status.drift == []
    found = cluster_harness.cluster.api.get("Deployment", cluster_harness.namespace, "demo-worker")
    assert (found["spec"]["replicas"], found["spec"]["revisionHistoryLimit"]) == (3, 9)


@pytest.mark.usefixtures("looking_closely")
@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_deleted_objects_are_recreated(
    cluster_harness: ClusterHarness, served: Endpoint, kind: str
) -> None:
    cluster_harness.cluster.api.delete(kind, cluster_harness.namespace, "demo-worker")
    until(
        lambda: (
            cluster_harness.cluster.api.find(kind, cluster_harness.namespace, "demo-worker") is None
        )
    )

    def back() -> bool:
        status = cluster_harness.step(served)
        there = (
            cluster_harness.cluster.api.find(kind, cluster_harness.namespace, "demo-worker")
            is not None
        )
        return (
            there
            and status is not None
            and status.phase == "Ready"
            and cluster_harness.ready() == 2
        )

    until(back, what=f"{kind} is there again")


def test_missing_rights_are_named(
    cluster_harness: ClusterHarness, demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.clusters import actions as clusters

    nobody = cluster_harness.cluster.plane.kubeconfig_of(
        "person-9", cluster_harness.namespace
    ).read_text()
    clusters.change_cluster(None, "east", {"kubeconfig": nobody})
    status = cluster_harness.until(demo_endpoint, "Failed")
    assert status.reason == "ClusterRefused"
    assert "configmaps" in status.message
    own = cluster_harness.cluster.kubeconfig.read_text(encoding="utf-8")
    clusters.change_cluster(None, "east", {"kubeconfig": own})
    cluster_harness.until(demo_endpoint, "Ready")


def test_deletion_started_by_hand_is_completed(
    cluster_harness: ClusterHarness, served: Endpoint
) -> None:
    """The object which owns all others is gone, and they are orphans."""
    actions.delete(SYSTEM, "demo")
    cluster_harness.cluster.api.delete(
        "ConfigMap", cluster_harness.namespace, "demo-worker", propagationPolicy="Orphan"
    )
    cluster_harness.gone(served)
    assert cluster_harness.left() == []


def test_container_log_is_followed_and_resumed(
    cluster_harness: ClusterHarness, data: dict[str, Any]
) -> None:
    cluster_harness.cluster.rule(
        cluster_harness.namespace, log=["loading weights", "serving", "a request"]
    )
    cluster_harness.until(cluster_harness.create(data), "Ready")
    demo = selectors.get("demo")
    every = sources.containers(demo)
    assert {one.workload for one in every} == {"demo-worker", "demo-router"}
    source = sources.log_source(demo, every[0])
    lines = source.lines("", threading.Event())
    first = next(lines)
    assert first.text
    assert first.at
    second = next(lines)
    again = next(source.lines(first.at, threading.Event()))
    assert (again.text, again.at) == (second.text, second.at), "none twice, none lost"
    assert [line.text for line in source.end(1)] == ["a request"]
