"""The life of an endpoint on a cluster, over an API server: from create to nothing left."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from console.provisioners.kubernetes.workload import observation
from endpoints import actions, drift_actions, selectors
from endpoints.actions import SYSTEM
from endpoints.logs import sources
from endpoints.models import Endpoint
from tests.support.endpoints.cluster_world import ClusterWorld
from tests.support.endpoints.fixtures import data, known_machine, no_old_keys  # noqa: F401
from tests.support.endpoints.world import age, kinds, states
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
DEPLOYMENT = ("Deployment", "demo-worker")
HASH = "emberline.dev/spec-hash"


@pytest.fixture
def world(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ClusterWorld:
    return ClusterWorld(cluster, monkeypatch)


@pytest.fixture
def demo(world: ClusterWorld, data: dict[str, Any]) -> Endpoint:
    return world.create(data)


@pytest.fixture
def served(world: ClusterWorld, demo: Endpoint) -> Endpoint:
    world.until(demo, "Ready")
    return demo


@pytest.fixture
def looking_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every object at every look, instead of now and then."""
    monkeypatch.setattr(observation, "CHECK_EVERY_S", 0.0)


def change() -> Endpoint:
    """One that needs new workers."""
    return actions.patch(SYSTEM, "demo", {"worker_args": ["--max-model-len=1024"]})


def hash_of(world: ClusterWorld) -> str:
    pods = world.pods()
    return str(pods[0]["metadata"]["labels"][HASH])


def only_old_ones_work(world: ClusterWorld, behaviour: str) -> None:
    """Pods of any later revision behave like this."""
    world.cluster.rule(world.namespace, "a-old", behaviour="ready", labels={HASH: hash_of(world)})
    routers = {"emberline.dev/workload": "demo-router"}
    world.cluster.rule(world.namespace, "b-routers", behaviour="ready", labels=routers)
    world.cluster.rule(world.namespace, "c-new", behaviour=behaviour)


def test_from_create_to_ready_to_nothing(world: ClusterWorld, demo: Endpoint) -> None:
    status = world.until(demo, "Ready")
    assert set(states(status).values()) == {"done"}
    assert {"Scheduled", "ImagePulled", "Prepared", "Loaded"} <= set(states(status))
    assert world.ready() == 2
    assert world.ready("demo-router") == 2
    assert {row["part"] for row in status.conditions} >= {"rollout"}
    assert {row["workload"] for row in status.pods} == {"demo-router"}
    worker = demo.replicas.order_by("index").first()
    assert worker is not None
    assert worker.node
    actions.delete(SYSTEM, "demo")
    world.gone(demo)
    assert world.left() == []


def test_a_change_rolls_out_with_all_ready(world: ClusterWorld, served: Endpoint) -> None:
    before = hash_of(world)
    change()
    least = []

    def rolled_out() -> bool:
        least.append(world.ready())
        status = world.step(served)
        assert status is not None
        return status.phase == "Ready" and status.served_generation == 2

    until(rolled_out, what="rolled out")
    assert min(least) >= 2
    assert {pod["metadata"]["labels"][HASH] for pod in world.pods()} != {before}


@pytest.mark.parametrize("behaviour", ["crash-loop", "pull-error"])
def test_a_failing_revision_is_taken_back(
    world: ClusterWorld, served: Endpoint, behaviour: str
) -> None:
    old = hash_of(world)
    only_old_ones_work(world, behaviour)
    change()

    def given_up() -> bool:
        assert world.ready() >= 2, "the old revision serves meanwhile"
        status = world.step(served)
        assert status is not None
        if status.reason in ("ErrImagePull", "ImagePullBackOff"):
            age(status, generation_seen_at=1801)  # half an hour later
        return Endpoint.objects.get(pk=served.pk).generation == 3

    until(given_up, what="taken back")
    status = world.until(served, "Ready")
    assert status.rolled_back["failed"] == 2
    assert "RolledBack" in kinds(served)
    until(lambda: {p["metadata"]["labels"][HASH] for p in world.pods()} == {old}, what="old only")


def test_what_the_cluster_says_is_on_the_endpoint(
    world: ClusterWorld, data: dict[str, Any]
) -> None:
    """No node has what is asked for: said with the scheduler's own words, as reason and event."""
    placed = {"cluster": "east", "node_selector": {"no-such": "label"}}
    demo = world.create(data, placement=placed)
    status = world.until(demo, "Provisioning", "Unschedulable")
    assert "node" in status.message
    assert states(status)["Scheduled"] == "active"

    def told() -> Any:
        world.step(demo)
        return demo.events.filter(kind="FailedScheduling").first()

    event = until(told, what="the scheduler's event")
    assert (event.origin, event.severity) == ("cluster", "warning")


def test_a_quota_is_named(world: ClusterWorld, data: dict[str, Any]) -> None:
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    world.cluster.api.create("ResourceQuota", world.namespace, quota)

    def enforced() -> bool:
        found = world.cluster.api.get("ResourceQuota", world.namespace, "few")
        return world.cluster.kind == "fake" or "hard" in found.get("status", {})

    until(enforced, what="quota")
    demo = world.create(data)
    status = world.until(demo, "Provisioning", "QuotaExceeded")
    assert "quota" in status.message
    world.cluster.api.merge(
        "ResourceQuota", world.namespace, "few", {"spec": {"hard": {"pods": "99"}}}
    )
    world.until(demo, "Ready")


def test_pause_keeps_all_but_the_workers(world: ClusterWorld, served: Endpoint) -> None:
    actions.pause(SYSTEM, "demo")
    world.until(served, "Paused")
    assert world.pods() == []
    assert world.ready("demo-router") == 2
    actions.resume(SYSTEM, "demo")
    world.until(served, "Ready")
    assert world.ready() == 2


def test_a_lost_node_is_a_loss_until_its_workers_are_elsewhere(
    world: ClusterWorld, data: dict[str, Any]
) -> None:
    mine = {"chaos": world.namespace}
    nodes = [world.cluster.node(f"n{i}", "m5.24xlarge", labels=mine) for i in range(2)]
    placed = {"cluster": "east", "node_selector": mine}
    demo = world.create(data, placement=placed)
    world.until(demo, "Ready")
    on = {pod["spec"]["nodeName"] for pod in world.pods()}
    assert on == set(nodes), "they are spread"
    world.cluster.lose(nodes[0])
    world.cluster.bury(nodes[0])
    world.until(demo, "Ready")
    assert {pod["spec"]["nodeName"] for pod in world.pods()} == {nodes[1]}
    assert world.ready() == 2
    assert "WorkerRemoved" in kinds(demo)


@pytest.mark.usefixtures("looking_closely")
def test_what_others_change_is_found_named_and_healed(
    world: ClusterWorld, served: Endpoint
) -> None:
    edit = {"spec": {"minReadySeconds": 77}}
    world.cluster.api.merge("Deployment", world.namespace, "demo-worker", edit)
    status = world.until(served, "Degraded")
    (row,) = [row for row in status.drift if row["path"] == ".spec.minReadySeconds"]
    assert row["found"] == 77
    assert row["manager"]
    assert status.remedy
    drift_actions.heal(SYSTEM, "demo")
    status = world.until(served, "Ready")
    found = world.cluster.api.get("Deployment", world.namespace, "demo-worker")
    assert found["spec"].get("minReadySeconds", 0) == row["wanted"]
    assert status.drift == []


@pytest.mark.usefixtures("looking_closely")
def test_what_others_change_is_adopted(world: ClusterWorld, served: Endpoint) -> None:
    edit = {"spec": {"replicas": 3, "revisionHistoryLimit": 9}}
    world.cluster.api.merge("Deployment", world.namespace, "demo-worker", edit)
    status = world.until(served, "Degraded")
    keys = {row["path"]: row["key"] for row in status.drift}
    drift_actions.adopt(SYSTEM, "demo", keys[".spec.replicas"])
    drift_actions.adopt(SYSTEM, "demo", keys[".spec.revisionHistoryLimit"])
    status = world.until(served, "Ready")
    assert Endpoint.objects.get(pk=served.pk).spec["replicas"] == 3
    assert status.drift == []
    found = world.cluster.api.get("Deployment", world.namespace, "demo-worker")
    assert (found["spec"]["replicas"], found["spec"]["revisionHistoryLimit"]) == (3, 9)


@pytest.mark.usefixtures("looking_closely")
@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_what_others_delete_comes_back(world: ClusterWorld, served: Endpoint, kind: str) -> None:
    world.cluster.api.delete(kind, world.namespace, "demo-worker")
    until(lambda: world.cluster.api.find(kind, world.namespace, "demo-worker") is None)

    def back() -> bool:
        status = world.step(served)
        there = world.cluster.api.find(kind, world.namespace, "demo-worker") is not None
        return there and status is not None and status.phase == "Ready" and world.ready() == 2

    until(back, what=f"{kind} is there again")


def test_rights_that_are_missing_are_named(
    world: ClusterWorld, demo: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console.clusters import actions as clusters

    nobody = world.cluster.plane.kubeconfig_of("person-9", world.namespace).read_text()
    clusters.change_cluster(None, "east", {"kubeconfig": nobody})
    status = world.until(demo, "Failed")
    assert status.reason == "ClusterRefused"
    assert "configmaps" in status.message
    own = world.cluster.kubeconfig.read_text(encoding="utf-8")
    clusters.change_cluster(None, "east", {"kubeconfig": own})
    world.until(demo, "Ready")


def test_a_deletion_that_somebody_began_by_hand_is_finished(
    world: ClusterWorld, served: Endpoint
) -> None:
    """The object which owns all others is gone, and they are orphans."""
    actions.delete(SYSTEM, "demo")
    world.cluster.api.delete(
        "ConfigMap", world.namespace, "demo-worker", propagationPolicy="Orphan"
    )
    world.gone(served)
    assert world.left() == []


def test_a_containers_log_is_followed_and_gone_on_with(
    world: ClusterWorld, data: dict[str, Any]
) -> None:
    world.cluster.rule(world.namespace, log=["loading weights", "serving", "a request"])
    world.until(world.create(data), "Ready")
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
