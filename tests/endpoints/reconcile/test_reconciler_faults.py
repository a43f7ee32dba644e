"""Concurrent reconcilers, crashes at any line, lost messages, and an unavailable cache tier."""

from __future__ import annotations

import os
import socket
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from console.claims import due, take_claim
from console.core import uses
from console.provisioners.base import Ref
from console.provisioners.kubernetes.workload import versions
from console.system import changes
from endpoints import actions, tasks
from endpoints.actions import SYSTEM
from endpoints.choices import Phase
from endpoints.keys import storage
from endpoints.lifecycle.facts import Impairment
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus
from endpoints.reconcile.reconciler import (
    NEXT_PASS_S,
    STEADY_ON_CLUSTER_S,
    STEADY_S,
    UNANNOUNCED_ON_CLUSTER_S,
    UNANNOUNCED_S,
    _steady_s,
)
from endpoints.spec.endpoint_spec import merge, parse
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, age, kinds, states

REF = Ref("fake", "demo-worker")

pytestmark = pytest.mark.django_db


# --- two at once, and death ---------------------------------------------------------------------


def test_pass_without_a_claim_does_nothing(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    held = take_claim(EndpointStatus, str(demo_endpoint.pk))
    assert held is not None
    status = reconciler_harness.step(demo_endpoint)
    assert status is not None
    assert status.phase == "Pending"
    assert not reconciler_harness.provisioner.applied


@pytest.mark.django_db(transaction=True)
def test_two_reconcilers_apply_once(
    reconciler_harness: ReconcilerHarness, data: dict[str, Any]
) -> None:
    demo = actions.create(SYSTEM, data)
    inside, go_on = threading.Event(), threading.Event()

    def slow_prove(*_args: str) -> str:
        return ""

    original = reconciler_harness.provisioner.apply

    def apply_slowly(spec: Any) -> Any:
        inside.set()
        assert go_on.wait(60)
        return original(spec)

    reconciler_harness.provisioner.apply = apply_slowly  # type: ignore[method-assign]
    first = threading.Thread(target=lambda: (reconciler_harness.step(demo), connection.close()))
    first.start()
    assert inside.wait(60)
    reconciler_harness.step(demo)  # the other one, meanwhile
    go_on.set()
    first.join(60)
    assert len(reconciler_harness.provisioner.applied) == 1
    assert len(reconciler_harness.observe().replicas) == 2


class Killed(BaseException):
    """Not an Exception: like SIGKILL, it runs no handler of ours."""


STEPS = [
    ("endpoints.reconcile.l2_status.check_l2", None),
    ("endpoints.reconcile.base.worker_spec", None),
    ("endpoints.reconcile.base.decide", None),
    ("endpoints.reconcile.status.events.write", None),
    ("endpoints.reconcile.status.remedy_of", None),
    ("endpoints.reconcile.status.send_replicas_changed", None),
    ("observe", "provisioner"),
    ("apply", "provisioner"),
    ("applied", "provisioner"),
]


@pytest.mark.parametrize(("where", "kind"), STEPS)
@pytest.mark.parametrize("passes_before", [0, 1, 2])
def test_reconciler_converges_after_a_kill_at_any_step(
    reconciler_harness: ReconcilerHarness,
    demo_endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    kind: str | None,
    passes_before: int,
) -> None:
    for _ in range(passes_before):
        reconciler_harness.step(demo_endpoint)
    with monkeypatch.context() as patched:
        if kind == "provisioner":
            reconciler_harness.provisioner.breaks[where] = Killed()
        else:

            def die(*_args: Any, **_kwargs: Any) -> None:
                raise Killed

            patched.setattr(where, die)
        try:
            reconciler_harness.step(demo_endpoint)
        except Killed:
            pass
        else:
            return  # nothing has changed since the last pass, so this step is not reached
    reconciler_harness.provisioner.breaks.clear()
    # The claim is still held, as after a real death, and the row is due when it ends.
    status = EndpointStatus.objects.get(pk=demo_endpoint.pk)
    assert status.claim_until is not None
    assert status.due_at == status.claim_until
    age(status, claim_until=1, due_at=1)
    assert due(EndpointStatus, timezone.now()) == [demo_endpoint.pk]
    reconciler_harness.until(demo_endpoint, "Ready")
    assert [r.index for r in reconciler_harness.observe().replicas] == [0, 1]
    assert len([k for k in kinds(demo_endpoint) if k == "WorkerStarted"]) == 2


def test_error_postpones_the_row(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_args: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("endpoints.reconcile.base.decide", crash)
    with pytest.raises(ZeroDivisionError):
        reconciler_harness.step(demo_endpoint)
    status = EndpointStatus.objects.get(pk=demo_endpoint.pk)
    assert status.claim_until is None
    assert status.due_at is not None
    assert (status.due_at - timezone.now()).total_seconds() > 10


def test_lost_claim_writes_nothing(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    def steal(*_args: str) -> str:
        age(demo_endpoint.status, claim_until=1)
        return ""

    reconciler_harness.step(demo_endpoint)
    before = EndpointEvent.objects.count()
    reconciler = reconciler_harness.reconciler
    type(reconciler)(
        lambda _spec: reconciler_harness.provisioner, reconciler_harness.router, steal
    ).reconcile(str(demo_endpoint.pk))
    status = EndpointStatus.objects.get(pk=demo_endpoint.pk)
    assert status.phase == "Provisioning"
    assert EndpointEvent.objects.count() == before


def test_lost_nudge_is_found_by_the_sweep(
    demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(tasks.reconcile_endpoint, "run", found.append)
    tasks.sweep()
    assert found == [str(demo_endpoint.pk)]


def test_request_during_a_pass_is_kept(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    def prove(*_args: str) -> str:
        actions.scale(SYSTEM, "demo", 1)
        return ""

    reconciler_harness.router.restarts = 7
    type(reconciler_harness.reconciler)(
        lambda _spec: reconciler_harness.provisioner, reconciler_harness.router, prove
    ).reconcile(str(ready.pk))
    status = EndpointStatus.objects.get(pk=ready.pk)
    assert status.observed_generation == 1
    assert due(EndpointStatus, timezone.now()) == [ready.pk]


def test_lost_console_key_is_renewed(
    reconciler_harness: ReconcilerHarness, ready: Endpoint
) -> None:
    storage.console_key_file("demo").unlink()
    reconciler_harness.step(ready)
    key = ready.keys.get(name="console", revoked_at__isnull=True)
    assert storage.hash_key(storage.read_console_key("demo")) == key.sha256
    assert ready.keys.filter(name="console").count() == 2


# --- the cache tier -----------------------------------------------------------------------------


def test_workers_wait_for_the_l2_address(
    reconciler_harness: ReconcilerHarness, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cachetier.selectors import Attachment

    found = Attachment("", "/secrets/l2", ready=False, reason="Starting", message="It starts.")
    monkeypatch.setattr("endpoints.reconcile.l2_status.attachment", lambda _name: found)
    demo = actions.create(SYSTEM, merge(data, {"cache.l2.enabled": True}))
    status = reconciler_harness.step(demo)
    assert status is not None
    assert (status.phase, status.reason) == ("Provisioning", "WaitingForCacheTier")
    assert states(status)["CacheTier"] == "active"
    assert states(status)["WorkersStarted"] == "waiting"
    assert not reconciler_harness.provisioner.applied
    found = Attachment("redis://127.0.0.1:1", "/secrets/l2", ready=True)
    status = reconciler_harness.until(demo, "Ready")
    assert states(status)["CacheTier"] == "done"
    assert "redis://127.0.0.1:1" in reconciler_harness.provisioner.applied[0].argv
    # It goes away and comes back: the workers keep running, with what they have.
    before = reconciler_harness.observe().replicas
    found = Attachment("redis://127.0.0.1:1", "/secrets/l2", ready=False, message="Node is away.")
    status = reconciler_harness.step(demo)
    assert status is not None
    assert (status.phase, status.reason) == ("Degraded", "L2Unavailable")
    assert status.remedy
    found = Attachment("", "/secrets/l2", ready=False, message="Gone.")
    status = reconciler_harness.step(demo)
    assert status is not None
    assert status.reason == "L2Unavailable"
    found = Attachment("redis://127.0.0.1:1", "/secrets/l2", ready=True)
    reconciler_harness.until(demo, "Ready")
    assert [r.started_at for r in reconciler_harness.observe().replicas] == [
        r.started_at for r in before
    ]
    assert {"L2Lost", "L2Ready"} <= set(kinds(demo))


def test_unavailable_redis_blocks_no_endpoint(
    reconciler_harness: ReconcilerHarness, data: dict[str, Any]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        url = f"redis://127.0.0.1:{taken.getsockname()[1]}"
        l2 = {"enabled": True, "backend": "redis", "url": url}
        demo = actions.create(SYSTEM, merge(data, {"cache": {"l2": l2}}))
        status = reconciler_harness.until(demo, "Degraded")
    assert status.reason == "L2Unavailable"
    assert url in status.message
    assert reconciler_harness.proofs, "it serves without its L2"


def test_used_tier_is_known_and_its_changes_nudge_its_endpoints(
    data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cachetier.signals import tier_changed

    demo = actions.create(SYSTEM, merge(data, {"cache.l2.enabled": True}))
    actions.create(SYSTEM, merge(data, {"name": "other"}))
    assert uses.of("cache-tier", "default") == ["endpoint demo"]
    assert uses.of("cache-tier", "other") == []
    woken: list[str] = []
    monkeypatch.setattr(tasks.reconcile_endpoint, "nudge", woken.append)
    tier_changed.send(sender=None, tier="default")
    assert woken == [str(demo.pk)]


def test_pruning_keeps_recent_rows(ready: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endpoints.tasks.EVENTS_KEPT", 2)
    orphan = storage.console_key_file("nobody")
    storage.write_console_key("nobody", "x")
    os.utime(orphan, (0, 0))
    newest = ready.events.order_by("-last_at", "-id").first()
    tasks.prune()
    assert ready.events.count() == 2
    assert ready.events.order_by("-last_at", "-id").first() == newest
    assert not orphan.exists()
    assert storage.console_key_file("demo").exists()


def test_impaired_component_degrades_and_recovers_by_itself(
    reconciler_harness: ReconcilerHarness, demo_endpoint: Endpoint
) -> None:
    reconciler_harness.until(demo_endpoint, "Ready")
    reconciler_harness.router.impairment = Impairment(
        "RoutingFallback", "It guesses.", "Ask the doctor."
    )
    status = reconciler_harness.until(demo_endpoint, "Degraded")
    assert (status.reason, status.remedy) == ("RoutingFallback", "Ask the doctor.")
    assert status.ready_replicas == demo_endpoint.spec["replicas"], "all serve"
    reconciler_harness.router.impairment = None
    status = reconciler_harness.until(demo_endpoint, "Ready")
    assert status.remedy == ""
    messages = list(EndpointEvent.objects.filter(kind="PhaseChanged").values_list("message"))
    assert any("RoutingFallback. It guesses." in text for (text,) in messages)


# --- announced changes, and lost announcements --------------------------------------------------


def due_in_s(endpoint: Endpoint) -> float:
    status = EndpointStatus.objects.get(pk=endpoint.pk)
    assert status.due_at is not None
    return (status.due_at - timezone.now()).total_seconds()


@pytest.fixture
def announced(reconciler_harness: ReconcilerHarness, ready: Endpoint) -> Endpoint:
    """A Ready endpoint whose processes announce their changes."""
    reconciler_harness.provisioner.announces = True
    reconciler_harness.step(ready)
    return ready


def test_an_unchanged_endpoint_is_observed_rarely(
    reconciler_harness: ReconcilerHarness, announced: Endpoint
) -> None:
    status = EndpointStatus.objects.get(pk=announced.pk)
    assert status.due_at is not None
    assert status.due_at - status.updated_at >= timedelta(seconds=0.8 * STEADY_S)
    applied = len(reconciler_harness.provisioner.applied)
    reconciler_harness.step(announced)
    assert len(reconciler_harness.provisioner.applied) == applied
    reconciler_harness.provisioner.announces = False
    reconciler_harness.step(announced)
    assert due_in_s(announced) <= NEXT_PASS_S[Phase.READY]
    assert len(reconciler_harness.provisioner.applied) == applied + 1


@pytest.mark.parametrize(
    ("spec", "announced"),
    [
        ({}, True),
        ({"routing": {"strategy": "kvaware"}}, False),
        ({"cache": {"l2": {"enabled": True, "backend": "redis", "url": "redis://r:1"}}}, False),
    ],
)
def test_parts_that_announce_nothing_are_observed_more_often(
    data: dict[str, Any], spec: dict[str, Any], announced: bool
) -> None:
    parsed = parse({**data, **spec})
    assert _steady_s(parsed, rolls=False) == (STEADY_S if announced else UNANNOUNCED_S)
    expected_s = STEADY_ON_CLUSTER_S if announced else UNANNOUNCED_ON_CLUSTER_S
    assert _steady_s(parsed, rolls=True) == expected_s


def test_other_objects_are_compared_within_two_minutes() -> None:
    """As docs/kubernetes-workloads.md states: age of a list, and the pause between two passes."""
    assert versions.LISTED_FOR_S + STEADY_ON_CLUSTER_S <= 120


def test_an_announced_death_is_observed_at_once(
    reconciler_harness: ReconcilerHarness, announced: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(tasks.reconcile_endpoint, "nudge", requests.append)
    changes.announce({"endpoint/demo", "endpoint/unknown"})
    assert requests == [str(announced.pk)]
    assert due(EndpointStatus, timezone.now()) == [announced.pk], "in case the message is lost"


def test_a_lost_announcement_is_made_up_for_by_the_sweep(
    reconciler_harness: ReconcilerHarness, announced: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks.reconcile_endpoint, "run", reconciler_harness.reconciler.reconcile)
    reconciler_harness.paper.crash(REF, 1)
    tasks.sweep()
    status = EndpointStatus.objects.get(pk=announced.pk)
    assert status.phase == "Ready", "not due yet"
    age(status, due_at=0)
    tasks.sweep()
    status.refresh_from_db()
    assert (status.phase, status.reason) == ("Degraded", "WorkerUnavailable")
    assert due_in_s(announced) <= NEXT_PASS_S[Phase.DEGRADED]
    reconciler_harness.until(announced, "Ready")
    assert due_in_s(announced) <= NEXT_PASS_S[Phase.READY], "once more after a change"
    assert "WorkerRestarted" in kinds(announced)


def test_everything_is_observed_anew_when_listening_begins(announced: Endpoint) -> None:
    """Changes while no Celery worker ran are unknown."""
    assert due(EndpointStatus, timezone.now()) == []
    changes.observe_anew()
    assert due(EndpointStatus, timezone.now()) == [announced.pk]
    EndpointStatus.objects.update(due_at=None)
    changes.observe_anew()
    assert due(EndpointStatus, timezone.now()) == [], "on request only"


@pytest.mark.parametrize("change", ["restart", "scale"])
def test_a_change_is_followed_up_soon(
    reconciler_harness: ReconcilerHarness, announced: Endpoint, change: str
) -> None:
    if change == "restart":
        reconciler_harness.router.restarts = 1
    else:
        actions.scale(SYSTEM, "demo", 1)
    reconciler_harness.step(announced)
    assert due_in_s(announced) <= NEXT_PASS_S[Phase.READY]
