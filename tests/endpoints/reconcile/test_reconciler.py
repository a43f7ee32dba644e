"""Reconciler: from the spec to Ready, and recovery from failures."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from console.provisioners.base import PermanentError, Ref, TemporaryError
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.keys import storage
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus, Replica
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, age, kinds, states

REF = Ref("fake", "demo-worker")

pytestmark = pytest.mark.django_db


def test_new_endpoint_starts_step_by_step(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    assert demo_endpoint.status.phase == "Pending"
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "WaitingForWorkers")
    assert states(status)["WorkersStarted"] == "done"
    assert states(status)["WorkersReady"] == "active"
    assert not reconciler_harness.proofs
    status = reconciler_harness.until(demo_endpoint, "Ready")
    assert set(states(status).values()) == {"done"}
    assert all(step["finished_at"] for step in status.steps)
    assert status.ready_replicas == 2
    assert status.url == "http://router"
    assert kinds(demo_endpoint)[0] == "WorkerStarted"
    assert kinds(demo_endpoint)[-1] == "PhaseChanged"


def test_ready_needs_a_real_response_through_the_router(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.proof_error = "HTTP 503: no worker"
    for _ in range(5):
        status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "Proving")
    assert "no worker" in status.message
    reconciler_harness.proof_error = ""
    reconciler_harness.until(demo_endpoint, "Ready")
    url, key, model = reconciler_harness.proofs[-1]
    assert (url, model) == ("http://router", "demo")
    assert storage.hash_key(key) == demo_endpoint.keys.get(name="console").sha256


def test_ready_endpoint_is_verified_once(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    requested = len(reconciler_harness.proofs)
    reconciler_harness.step(ready)
    reconciler_harness.step(ready)
    assert len(reconciler_harness.proofs) == requested


def test_ready_needs_the_router(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.router.down = "The router is being started."
    for _ in range(4):
        status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "WaitingForRouter")
    assert not reconciler_harness.proofs
    reconciler_harness.router.down = ""
    reconciler_harness.until(demo_endpoint, "Ready")


def test_dead_worker_degrades_the_endpoint_and_is_verified_again(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    requested = len(reconciler_harness.proofs)
    reconciler_harness.paper.crash(REF, 1)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "WorkerUnavailable")
    assert status.remedy
    reconciler_harness.until(ready, "Ready")
    assert "WorkerRestarted" in kinds(ready)
    assert len(reconciler_harness.proofs) == requested + 1
    event = ready.events.get(kind="WorkerRestarted")
    assert (event.subject, event.severity) == ("demo-worker-1", "warning")


def test_restart_between_two_passes_is_noticed(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    row = Replica.objects.get(endpoint=ready, index=0)
    Replica.objects.filter(pk=row.pk).update(started_at=timezone.now().replace(year=2020))
    reconciler_harness.step(ready)
    assert "WorkerRestarted" in kinds(ready)


def test_changed_pid_with_the_same_start_is_no_restart(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    """A launcher's pid gives way to that of the worker it starts."""
    Replica.objects.filter(endpoint=ready).update(pid=5)
    reconciler_harness.step(ready)
    assert "WorkerRestarted" not in kinds(ready)


def test_silent_router_degrades_the_endpoint_and_recovers(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.router.down = "The router does not answer."
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "RouterUnavailable")
    reconciler_harness.router.down = ""
    reconciler_harness.router.restarts = 1
    reconciler_harness.until(ready, "Ready")
    assert "RouterLost" in kinds(ready)
    assert "RouterReady" in kinds(ready)


def test_router_restart_is_reported_without_an_observed_outage(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    requested = len(reconciler_harness.proofs)
    reconciler_harness.router.restarts = 1
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.phase == "Ready"
    assert len(reconciler_harness.proofs) == requested + 1
    assert "RouterRestarted" in kinds(ready)


def test_router_without_reachable_workers_is_not_serving(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.router.restarts = 1
    reconciler_harness.proof_error = "HTTP 502"
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "NotServing")
    reconciler_harness.proof_error = ""
    reconciler_harness.until(ready, "Ready")


def test_crash_loop_fails_with_its_log_and_recovers(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.provisioner.log_text = "ValueError: no such flag"
    reconciler_harness.step(demo_endpoint)
    for _ in range(3):
        reconciler_harness.paper.crash(REF, 0)
        reconciler_harness.paper.crash(REF, 1)
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Failed", "WorkersCrashLooping")
    assert "no such flag" in status.detail
    assert "log" in status.remedy
    assert status.due_at is not None
    reconciler_harness.until(demo_endpoint, "Ready")
    status = EndpointStatus.objects.get(pk=demo_endpoint.pk)
    assert status.detail == ""


def test_old_crashes_are_no_loop(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> None:
    for _ in range(4):
        reconciler_harness.paper.crash(REF, 0)
        reconciler_harness.until(ready, "Ready")
    reconciler_harness.paper.crash(REF, 0)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.reason == "WorkerUnavailable"


def test_rejection_is_failed_and_retried(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.provisioner.breaks["apply"] = PermanentError(
        "NoSuchProgram", "vllm is not installed."
    )
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Failed", "NoSuchProgram")
    assert status.remedy
    reconciler_harness.provisioner.breaks.clear()
    reconciler_harness.until(demo_endpoint, "Ready")


def test_temporary_error_is_no_failure(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.provisioner.breaks["observe"] = TemporaryError(
        "SupervisorAway", "No supervisor."
    )
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "SupervisorAway")
    reconciler_harness.provisioner.breaks.clear()
    reconciler_harness.until(demo_endpoint, "Ready")
    reconciler_harness.provisioner.breaks["observe"] = TemporaryError(
        "SupervisorAway", "No supervisor."
    )
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "SupervisorAway")
    assert Replica.objects.filter(endpoint=demo_endpoint).count() == 2
    reconciler_harness.provisioner.breaks.clear()
    reconciler_harness.until(demo_endpoint, "Ready")


def test_exceeded_deadline_is_failed(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.step(demo_endpoint)
    reconciler_harness.paper.crash(REF, 0)
    reconciler_harness.paper.crash(REF, 1)
    age(demo_endpoint.status, generation_seen_at=3600)
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert (status.phase, status.reason) == ("Failed", "DeployDeadlineExceeded")
    reconciler_harness.until(demo_endpoint, "Ready")


def test_unchanged_endpoint_is_not_written(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    before = EndpointEvent.objects.count()
    for _ in range(3):
        reconciler_harness.step(ready)
    assert EndpointEvent.objects.count() == before


def test_repeated_errors_are_counted_in_one_event(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.provisioner.breaks["observe"] = TemporaryError(
        "SupervisorAway", "No supervisor."
    )
    for _ in range(4):
        reconciler_harness.step(ready)
    (event,) = ready.events.filter(kind="ReconcileFailed")
    assert event.count == 4


# --- changes ------------------------------------------------------------------------------------


def test_scale_up(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> None:
    actions.scale(SYSTEM, "demo", 3)
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.phase == "Updating"
    status = reconciler_harness.until(ready, "Ready")
    assert status.ready_replicas == 3


def test_scale_down_updates_the_router_before_stopping_a_worker(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.router.in_flight["demo-worker-1"] = 1
    actions.scale(SYSTEM, "demo", 1)
    applied = len(reconciler_harness.provisioner.applied)
    for _ in range(3):
        status = reconciler_harness.step(ready)
        assert status is not None
        assert (status.phase, status.reason) == ("Updating", "Draining")
        assert reconciler_harness.router.draining == {"demo-worker-1"}
    assert len(reconciler_harness.provisioner.applied) == applied
    assert len(reconciler_harness.observe().ready()) == 2
    reconciler_harness.router.in_flight.clear()
    status = reconciler_harness.until(ready, "Ready")
    assert status.ready_replicas == 1
    assert [r.index for r in reconciler_harness.observe().replicas] == [0]
    assert {"WorkerDraining", "WorkerRemoved"} <= set(kinds(ready))


def test_worker_that_never_drains_is_stopped_at_the_deadline(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.router.in_flight["demo-worker-1"] = 1
    actions.scale(SYSTEM, "demo", 1)
    reconciler_harness.step(ready)
    row = Replica.objects.get(endpoint=ready, index=1)
    assert row.draining_since is not None
    Replica.objects.filter(pk=row.pk).update(draining_since=row.draining_since.replace(year=2020))
    reconciler_harness.until(ready, "Ready")
    assert [r.index for r in reconciler_harness.observe().replicas] == [0]


def test_update_replaces_workers_one_by_one(
    reconciler_harness: ReconcilerHarness, ready: Endpoint, data: dict[str, Any]
) -> None:
    old = {r.spec_hash for r in reconciler_harness.observe().replicas}
    actions.patch(SYSTEM, "demo", {"cache": {"l1": {"size_gib": 1.0}}})
    fewest = 2
    for _ in range(20):
        status = reconciler_harness.step(ready)
        assert status is not None
        fewest = min(fewest, len(reconciler_harness.observe().ready()))
        # No worker is stopped before the router drains it.
        for replica in reconciler_harness.observe().replicas:
            reported = {
                w.name for w in reconciler_harness.router.calls[-1] if not w.draining and w.ready
            }
            assert replica.state == "ready" or replica.name not in reported
        if status.phase == "Ready":
            break
        assert status.phase == "Updating"
    assert status.phase == "Ready"
    assert fewest == 1
    new = {r.spec_hash for r in reconciler_harness.observe().replicas}
    assert len(new) == 1
    assert not new & old


def test_no_worker_drains_before_the_router_reaches_the_others(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    actions.patch(SYSTEM, "demo", {"cache": {"l1": {"size_gib": 1.0}}})
    for _ in range(20):
        reconciler_harness.step(ready)
        first, second = reconciler_harness.observe().replicas
        if first.spec_hash != second.spec_hash and first.state == "starting":
            break
    # The new worker becomes ready, and the router does not reach it yet.
    reconciler_harness.router.down = "The router reaches 1 of 2 workers."
    for _ in range(4):
        reconciler_harness.step(ready)
        first, second = reconciler_harness.observe().replicas
        assert second.state == "ready"
        assert not reconciler_harness.router.draining
    assert first.state == "ready"
    reconciler_harness.router.down = ""
    reconciler_harness.until(ready, "Ready", passes=20)


def test_routing_change_restarts_no_worker(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    before = reconciler_harness.observe().replicas
    requested = len(reconciler_harness.proofs)
    actions.patch(SYSTEM, "demo", {"routing": {"strategy": "session"}})
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.phase == "Ready"
    assert [r.started_at for r in reconciler_harness.observe().replicas] == [
        r.started_at for r in before
    ]
    assert len(reconciler_harness.proofs) == requested + 1


def test_pause_and_resume(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> None:
    actions.pause(SYSTEM, "demo")
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Pausing", "Pausing")
    status = reconciler_harness.until(ready, "Paused")
    assert reconciler_harness.observe().replicas == ()
    assert states(status) == {"Accepted": "done", "WorkersStopped": "done"}
    actions.resume(SYSTEM, "demo")
    status = reconciler_harness.step(ready)
    assert status is not None
    assert status.phase == "Provisioning"
    status = reconciler_harness.until(ready, "Ready")
    assert status.ready_replicas == 2


def test_failed_change_is_fixed_by_the_next(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    actions.patch(SYSTEM, "demo", {"worker_args": ["--bad"]})
    reconciler_harness.until(ready, "Updating")
    actions.rollback(SYSTEM, "demo", 1)
    reconciler_harness.until(ready, "Ready")


# --- the end ------------------------------------------------------------------------------------


def test_delete_leaves_nothing(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> None:
    assert storage.console_key_file("demo").is_file()
    actions.delete(SYSTEM, "demo")
    reconciler_harness.router.lingers = 2
    status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Deleting", "RemovingRouter")
    assert len(reconciler_harness.observe().ready()) == 2, "workers go after the router"
    reconciler_harness.gone(ready)
    assert not reconciler_harness.observe().exists
    assert not reconciler_harness.router.running
    assert not storage.console_key_file("demo").exists()
    assert not Endpoint.objects.exists()
    verbs = [event.verb for event in AuditEvent.objects.order_by("id")]
    assert verbs == ["endpoint.create", "endpoint.delete", "endpoint.deleted"]


def test_delete_during_the_start(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.step(demo_endpoint)
    actions.delete(SYSTEM, "demo")
    reconciler_harness.gone(demo_endpoint)
    assert not reconciler_harness.observe().exists


def test_delete_before_the_first_pass(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    actions.delete(SYSTEM, "demo")
    reconciler_harness.gone(demo_endpoint)


def test_delete_waits_for_an_unavailable_provisioner(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    actions.delete(SYSTEM, "demo")
    reconciler_harness.provisioner.breaks["delete"] = TemporaryError(
        "SupervisorAway", "No supervisor."
    )
    for _ in range(3):
        status = reconciler_harness.step(ready)
    assert status is not None
    assert (status.phase, status.reason) == ("Deleting", "SupervisorAway")
    reconciler_harness.provisioner.breaks.clear()
    reconciler_harness.gone(ready)
