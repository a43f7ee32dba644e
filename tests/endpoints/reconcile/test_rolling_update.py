"""Endpoint on a cluster that replaces workers by itself: rollout and rollback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.audit.models import AuditEvent
from console.provisioners.base import (
    ClusterEvent,
    Drift,
    PartCondition,
    PermanentError,
    ReplicaState,
)
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.lifecycle.components import ComponentStatus
from endpoints.models import Endpoint, EndpointStatus, Replica
from endpoints.spec.endpoint_spec import merge
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, age, kinds, states

pytestmark = pytest.mark.django_db
WORKLOAD = "demo-worker"


@pytest.fixture
def cluster() -> PaperCluster:
    return PaperCluster()


@pytest.fixture
def reconciler_harness(cluster: PaperCluster) -> ReconcilerHarness:
    return ReconcilerHarness(cluster)


def change() -> Endpoint:
    """One that needs new workers."""
    return actions.patch(SYSTEM, "demo", {"worker_args": ["--max-model-len=1024"]})


def wanted_hash(cluster: PaperCluster) -> str:
    return cluster.workloads[WORKLOAD].spec.spec_hash


def test_endpoint_passes_the_stages_of_its_pods(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.provisioner.inner.held = True
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "Unschedulable")
    assert "0/3 nodes" in status.message
    assert "Add nodes" in status.remedy
    assert states(status)["Scheduled"] == "active"
    reconciler_harness.provisioner.inner.held = False
    reconciler_harness.until(demo_endpoint, "Ready")
    status = EndpointStatus.objects.get(pk=demo_endpoint.pk)
    assert set(states(status).values()) == {"done"}
    row = Replica.objects.filter(endpoint=demo_endpoint).first()
    assert row is not None
    assert (row.stage, row.node, row.containers) == ("ready", "node-1", ["worker", "fetch"])


def test_change_keeps_the_ready_count_and_plans_no_draining(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    old = wanted_hash(cluster)
    cluster.least_ready = 2
    change()
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.phase == "Updating"
    assert status.served_generation == 1, "the page says which revision serves"
    reconciler_harness.until(ready, "Ready", passes=30)
    assert wanted_hash(cluster) != old
    assert "WorkerDraining" not in kinds(ready)
    hashes = {row.spec_hash for row in Replica.objects.filter(endpoint=ready, stage="ready")}
    assert hashes == {wanted_hash(cluster)}


@pytest.mark.parametrize("how", ["bad", "crashing"])
def test_failing_revision_is_rolled_back_automatically(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint, how: str
) -> None:
    cluster.least_ready = 2
    change()
    reconciler_harness.step(ready)
    getattr(cluster, how).add(wanted_hash(cluster))
    if how == "bad":
        cluster.given_up.add(wanted_hash(cluster))
    status = reconciler_harness.until(ready, "Ready", passes=20)
    demo = Endpoint.objects.get(pk=ready.pk)
    assert demo.generation == 3
    latest = demo.revisions.first()
    assert latest is not None
    assert (latest.number, latest.verb, latest.author) == (3, "auto-rollback", "system")
    assert latest.spec == demo.revisions.get(number=1).spec
    assert (status.rolled_back["failed"], status.rolled_back["number"]) == (2, 1)
    assert "RolledBack" in kinds(demo)
    assert AuditEvent.objects.filter(verb="endpoint.auto-rollback", target="endpoint/demo").exists()


def test_corrected_endpoint_is_not_failed_by_old_pods(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, demo_endpoint: Endpoint
) -> None:
    """Its first revision crashes; while the new pods come up, the old ones still end."""
    reconciler_harness.step(demo_endpoint)
    cluster.crashing.add(wanted_hash(cluster))
    assert reconciler_harness.until(demo_endpoint, "Failed").reason == "WorkersCrashLooping"
    change()
    seen: list[str] = []
    while not seen or seen[-1] != "Ready":
        status = reconciler_harness.step(demo_endpoint)
        assert status is not None
        seen.append(status.phase)
        assert status.phase in ("Provisioning", "Ready"), (status.reason, status.message)
        assert len(seen) < 30, seen


def test_rollback_target_is_not_rolled_back(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    first = wanted_hash(cluster)
    change()
    reconciler_harness.step(ready)
    cluster.given_up |= {first, wanted_hash(cluster)}
    cluster.bad |= {first, wanted_hash(cluster)}
    cluster.lose(WORKLOAD, 0)
    for _ in range(3):
        reconciler_harness.step(ready)
    # Stored specs may be filled in by later versions: the verb counts, not that they are equal.
    revision = ready.revisions.get(number=1)
    revision.spec["tags"] = {"a": "b"}
    revision.save()
    for _ in range(3):
        reconciler_harness.step(ready)
    assert Endpoint.objects.get(pk=ready.pk).generation == 3
    assert ready.events.get(kind="RolledBack").count == 1


def test_rollback_can_be_disabled(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    changed = change()
    changed.spec["rollout"] = {"auto_rollback": False}
    changed.save(update_fields=["spec"])
    reconciler_harness.step(ready)
    cluster.bad.add(wanted_hash(cluster))
    cluster.given_up.add(wanted_hash(cluster))
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "ProgressDeadlineExceeded")
    assert Endpoint.objects.get(pk=ready.pk).generation == 2


def test_failed_first_deployment_has_no_rollback(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.step(demo_endpoint)
    cluster.bad.add(wanted_hash(cluster))
    cluster.given_up.add(wanted_hash(cluster))
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Failed", "ProgressDeadlineExceeded")
    assert status.remedy
    assert Endpoint.objects.get(pk=demo_endpoint.pk).generation == 1


def test_deadline_rolls_a_change_back(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Any
) -> None:
    change()
    status = reconciler_harness.step(ready)
    assert status is not None
    cluster.bad.add(wanted_hash(cluster))
    age(status, generation_seen_at=1801)
    reconciler_harness.step(ready)
    assert Endpoint.objects.get(pk=ready.pk).generation == 3


@pytest.mark.parametrize(
    ("reason", "generation"), [("RefusedByCluster", 3), ("ClusterRefused", 2), ("FieldConflict", 2)]
)
def test_only_failures_of_the_revision_roll_it_back(
    reconciler_harness: ReconcilerHarness, ready: Endpoint, reason: str, generation: int
) -> None:
    """A missing right or a foreign hand would hinder the earlier revision as well."""
    change()
    reconciler_harness.provisioner.breaks["apply"] = PermanentError(reason, "No.")
    reconciler_harness.step(ready)
    assert Endpoint.objects.get(pk=ready.pk).generation == generation


def test_newer_change_is_not_overwritten_by_a_rollback(
    reconciler_harness: ReconcilerHarness,
    cluster: PaperCluster,
    ready: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change()
    reconciler_harness.step(ready)
    cluster.bad.add(wanted_hash(cluster))
    cluster.given_up.add(wanted_hash(cluster))
    real = actions.roll_back_failed

    def meanwhile(*args: Any, **named: Any) -> Endpoint:
        actions.scale(SYSTEM, "demo", 3)
        return real(*args, **named)

    monkeypatch.setattr(actions, "roll_back_failed", meanwhile)
    reconciler_harness.step(ready)
    demo = Endpoint.objects.get(pk=ready.pk)
    latest = demo.revisions.first()
    assert latest is not None
    assert (demo.generation, latest.verb) == (3, "scale")
    assert "RollbackRefused" in kinds(demo)


# --- an autoscaler ------------------------------------------------------------------------------


def test_autoscaler_owns_the_count_and_growth_is_no_loss(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    cluster.wanted = 2
    reconciler_harness.until(ready, "Ready")
    cluster.wanted = 4
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Ready", "Scaling")
    assert status.wanted_replicas == 4
    status = reconciler_harness.until(ready, "Ready")
    for _ in range(4):
        status = reconciler_harness.step(ready)
        assert status is not None
    assert (status.reason, status.ready_replicas) == ("Serving", 4)
    cluster.lose(WORKLOAD, 0)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.reason == "WorkerUnavailable", "four stood, three are left"


def test_scale_to_zero_and_up_again(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Any
) -> None:
    cluster.wanted = 0
    status = reconciler_harness.until(ready, "Paused")
    assert status.reason == "ScaledToZero"
    assert status.served_once
    cluster.wanted = 1
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "Scaling")
    reconciler_harness.until(ready, "Ready")


def test_paused_endpoint_is_not_scaled(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Any
) -> None:
    cluster.wanted = 3
    actions.pause(SYSTEM, "demo")
    status = reconciler_harness.until(ready, "Paused")
    assert status.reason == "Paused"
    assert status.wanted_replicas is None


# --- what the cluster tells beside --------------------------------------------------------------


def test_cluster_events_are_reported_with_their_count(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    seen = ClusterEvent("pod/x", "FailedScheduling", "No GPU.", True, 3, 1000.0, 2000.0)
    cluster.events = (seen,)
    for _ in range(3):
        reconciler_harness.step(ready)
    event = ready.events.get(origin="cluster")
    assert (event.kind, event.severity, event.count) == ("FailedScheduling", "warning", 3)
    cluster.events = (replace(seen, count=5, last_at=3000.0),)
    reconciler_harness.step(ready)
    event = ready.events.get(origin="cluster")
    assert (event.count, event.last_at.timestamp()) == (5, 3000.0)


def test_unready_exposure_is_reported_and_awaited(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, demo_endpoint: Endpoint
) -> None:
    cluster.parts = (PartCondition("route", False, "NoParent", "No gateway took it."),)
    for _ in range(5):
        status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "ExposureUnavailable")
    assert states(status)["RouteReady"] == "active"
    assert not reconciler_harness.proofs
    cluster.parts = (PartCondition("route", True), PartCondition("scaler", False, "NoMetrics"))
    status = reconciler_harness.until(demo_endpoint, "Ready")
    assert [row["part"] for row in status.conditions] == ["route", "scaler"]


def test_pods_reachable_only_inside_the_cluster(
    reconciler_harness: ReconcilerHarness,
    cluster: PaperCluster,
    ready: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = cluster.observe(
        reconciler_harness.reconciler.provisioners(ready.parsed).apply(cluster.applied[-1])
    )
    silent = ComponentStatus(False, "RouterSilent", "No answer.", "u", "a", seen=seen)
    monkeypatch.setattr(reconciler_harness.router, "reconcile", lambda *_: silent)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "PodsUnreachable")
    assert "in the cluster" in status.remedy
    gone = replace(seen.replicas[0], state=ReplicaState.STARTING)
    silent = replace(silent, seen=replace(seen, replicas=(gone,)))
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.reason == "RouterUnavailable"


def test_unreachable_cluster_is_no_failure_and_changes_nothing(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    cluster.away = True
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "ClusterUnreachable")
    assert Replica.objects.filter(endpoint=ready).count() == 2, "what was known is kept"
    cluster.away = False
    reconciler_harness.until(ready, "Ready")


def test_removed_cluster_is_reported(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    def unknown(_spec: Any) -> Any:
        raise PermanentError("UnknownCluster", "There is no cluster 'east'.")

    type(reconciler_harness.reconciler)(
        unknown, reconciler_harness.router, reconciler_harness.prove
    ).reconcile(str(ready.pk))
    status = EndpointStatus.objects.get(pk=ready.pk)
    assert (status.phase, status.reason) == ("Degraded", "UnknownCluster")
    actions.delete(SYSTEM, "demo")
    type(reconciler_harness.reconciler)(
        unknown, reconciler_harness.router, reconciler_harness.prove
    ).reconcile(str(ready.pk))
    status = EndpointStatus.objects.get(pk=ready.pk)
    assert (status.phase, status.reason) == ("Deleting", "UnknownCluster")


def test_removed_cluster_is_reported_with_its_own_namespace(
    reconciler_harness: ReconcilerHarness, placed: Endpoint
) -> None:
    placed.spec["placement"] = {"cluster": "west"}
    placed.save(update_fields=["spec"])
    status = reconciler_harness.step(placed)
    assert status is not None
    assert (status.phase, status.reason) == ("Failed", "UnknownCluster")


def test_unchanged_objects_are_applied_periodically(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    for _ in range(3):
        reconciler_harness.step(ready)
    count = len(cluster.applied)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert len(cluster.applied) == count
    age(status, applied_at=31)
    reconciler_harness.step(ready)
    assert len(cluster.applied) == count + 1
    EndpointStatus.objects.filter(pk=ready.pk).update(applied="another one")
    reconciler_harness.step(ready)
    assert len(cluster.applied) == count + 2
    cluster.lose(WORKLOAD, 0)
    reconciler_harness.step(ready)
    assert len(cluster.applied) == count + 3
    reconciler_harness.until(ready, "Ready")
    actions.scale(SYSTEM, "demo", 3)
    reconciler_harness.step(ready)
    assert cluster.applied[-1].replicas == 3


def test_deletion_leaves_nothing(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Endpoint
) -> None:
    actions.delete(SYSTEM, "demo")
    reconciler_harness.gone(ready)
    assert not cluster.workloads
    assert not Endpoint.objects.exists()


DRIFT = Drift("Deployment/demo-worker", ".spec.paused", False, True, "kubectl-edit")


def test_drift_is_detected_and_reported_once(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Any
) -> None:
    cluster.drift = (DRIFT,)
    for _ in range(3):
        status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "Drifted")
    assert "kubectl-edit" in status.message
    assert status.drift[0]["key"] == "Deployment/demo-worker.spec.paused"
    event = ready.events.get(kind="DriftFound")
    assert (event.count, event.severity) == (1, "warning")
    cluster.drift = ()
    status = reconciler_harness.until(ready, "Ready")
    assert status.drift == []
    assert "DriftEnded" in kinds(ready)


def test_workers_scaled_by_others_are_drift(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, ready: Any
) -> None:
    """As after `kubectl scale --replicas=0`: what is missing does not restart by itself."""
    cluster.drift = (Drift("Deployment/demo-worker", ".spec.replicas", 2, 0, "kubectl"),)
    for _ in range(5):
        status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Unavailable", "Drifted")
    assert status.message.startswith("0/2 workers ready. Drift from the configuration")
    assert status.remedy.startswith("Heal to restore")


def test_two_clusters_are_independent(data: dict[str, Any], cluster: PaperCluster) -> None:
    """Each endpoint is observed where its own spec places it."""
    other = PaperCluster()
    harness = ReconcilerHarness(cluster)
    actions.create(SYSTEM, data)
    second = actions.create(SYSTEM, merge(data, {"name": "other"}))
    found = {"demo": cluster, "other": other}
    reconciler = type(harness.reconciler)(lambda s: found[s.name], harness.router, harness.prove)
    reconciler.reconcile(str(second.pk))
    assert not cluster.workloads
    assert list(other.workloads) == ["other-worker"]
