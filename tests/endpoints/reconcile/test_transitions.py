"""Expected absences: first starts, updates, pauses, deletions, and starts that are overdue."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from console.provisioners.base import Ref
from endpoints import actions
from endpoints.models import Endpoint, EndpointStatus, Replica
from endpoints.reconcile.transitions import FACTOR, Transition, expected_absences, grace_s
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, age

pytestmark = pytest.mark.django_db


def transition(at: datetime | None = None) -> Transition | None:
    found = expected_absences(at or timezone.now())
    return found[0].transition if found else None


def starting(at: datetime | None = None) -> tuple[str, ...]:
    found = expected_absences(at or timezone.now())
    return found[0].workers if found else ()


def status_of(endpoint: Endpoint) -> EndpointStatus:
    return EndpointStatus.objects.get(pk=endpoint.pk)


def test_first_start_is_expected_until_the_deadline(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    assert transition() is Transition.START
    reconciler_harness.step(demo_endpoint)
    assert transition() is Transition.START
    assert starting() == ("demo-worker-0", "demo-worker-1")
    later = timezone.now() + timedelta(seconds=demo_endpoint.parsed.rollout.deadline_s + 60)
    assert transition(later) is None
    assert starting(later) == ()
    reconciler_harness.until(demo_endpoint, "Ready")
    assert expected_absences(timezone.now()) == []


def test_grace_follows_the_measured_start_of_the_same_model(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    EndpointStatus.objects.update(start={"model": ready.spec["model"], "seconds": 100.0})
    ready.status.refresh_from_db()
    assert grace_s(ready) == ready.parsed.rollout.drain_s + FACTOR * 100
    EndpointStatus.objects.update(start={"model": "another", "seconds": 100.0})
    ready.status.refresh_from_db()
    assert grace_s(ready) == ready.parsed.rollout.deadline_s


def test_reconciler_measures_the_start(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    start = status_of(ready).start
    assert start["model"] == ready.spec["model"]
    rows = Replica.objects.values_list("start_s", flat=True)
    assert start["seconds"] == max(rows)


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"worker_args": ["--seed=3"]}, Transition.UPDATE), ({"replicas": 0}, Transition.STOP)],
)
def test_change_is_expected(
    reconciler_harness: ReconcilerHarness, ready: Endpoint, change: dict, kind: str
) -> None:
    actions.patch(actions.SYSTEM, ready.name, change)
    assert transition() is kind
    reconciler_harness.step(ready)
    assert transition() is kind


def test_resumed_endpoint_starts_again(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    actions.pause(actions.SYSTEM, ready.name)
    reconciler_harness.until(ready, "Paused")
    assert transition() is Transition.STOP
    actions.resume(actions.SYSTEM, ready.name)
    reconciler_harness.step(ready)
    assert transition() is Transition.START


def test_added_worker_of_a_serving_endpoint_is_expected(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    """As an autoscaler adds one: the endpoint itself is in no transition."""
    Replica.objects.create(
        endpoint=ready, name="demo-worker-2", index=2, state="starting", started_at=timezone.now()
    )
    assert (transition(), starting()) == (None, ("demo-worker-2",))


def test_deletion_is_expected(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> None:
    actions.delete(actions.SYSTEM, ready.name)
    assert transition() is Transition.STOP


def test_losses_and_failures_are_not_expected(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    reconciler_harness.paper.crash(Ref("fake", "demo-worker"), 1)
    assert reconciler_harness.step(ready).phase == "Degraded"
    assert expected_absences(timezone.now()) == [], "a crashed worker that restarts is a loss"
    EndpointStatus.objects.update(phase="Failed", served_once=False)
    assert transition() is None


def test_overdue_update_is_not_expected(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    actions.patch(actions.SYSTEM, ready.name, {"worker_args": ["--seed=3"]})
    reconciler_harness.step(ready)
    status = status_of(ready)
    assert status.phase == "Updating"
    assert transition() is Transition.UPDATE
    EndpointStatus.objects.update(phase="Unavailable")
    assert transition() is Transition.UPDATE, "none serves until the next one is ready"
    EndpointStatus.objects.update(served_generation=Endpoint.objects.get(pk=ready.pk).generation)
    assert transition() is None, "a loss"
    EndpointStatus.objects.update(phase="Updating")
    age(status, phase_since=grace_s(Endpoint.objects.get(pk=ready.pk)) + 5)
    assert transition() is None


def test_number_of_queries_is_constant(
    reconciler_harness: ReconcilerHarness,
    demo_endpoint: Endpoint,
    django_assert_num_queries: object,
) -> None:
    reconciler_harness.step(demo_endpoint)
    for number in range(3):
        actions.create(actions.SYSTEM, demo_endpoint.spec | {"name": f"more-{number}"})
    with django_assert_num_queries(2):  # type: ignore[operator]
        assert len(expected_absences(timezone.now())) == 4
