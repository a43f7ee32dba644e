"""Endpoints on a cluster under failures: they converge and leave nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from console.claims import due
from console.provisioners.kubernetes.api.client import KubernetesClient
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint, EndpointStatus, Replica
from endpoints.spec.endpoint_spec import merge
from tests.support.endpoints.cluster_harness import ClusterHarness, Killed
from tests.support.endpoints.fixtures import data, known_machine, no_old_keys  # noqa: F401
from tests.support.endpoints.reconciler_harness import kinds
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
LONGEST_PASS = 200
"""Requests of a pass are fewer: then a pass that was to be killed ends by itself."""
STRIDES = {"fake": 6}
"""Over the fake, which every run has, one request in so many; else at each."""


@pytest.fixture
def cluster_harness(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    return ClusterHarness(cluster, monkeypatch)


@pytest.fixture
def demo_endpoint(cluster_harness: ClusterHarness, data: dict[str, Any]) -> Endpoint:
    return cluster_harness.create(data)


def change(text: str) -> None:
    actions.patch(SYSTEM, "demo", {"worker_args": [f"--max-model-len={text}"]})


def ready_now(endpoint: Endpoint) -> bool:
    status = EndpointStatus.objects.get(pk=endpoint.pk)
    generation = Endpoint.objects.get(pk=endpoint.pk).generation
    return status.phase == "Ready" and status.observed_generation == generation


class Reaper:
    """Kills each pass a request (or a stride) later than the last one, and begins anew."""

    def __init__(
        self, harness: ClusterHarness, patch: pytest.MonkeyPatch, *, answered: bool
    ) -> None:
        self.harness, self.patch, self.answered = harness, patch, answered
        self.stride = STRIDES.get(harness.cluster.kind, 1)
        self.kills = self.at = 0

    def step(self, endpoint: Endpoint) -> None:
        with self.harness.killing(self.patch, self.at, answered=self.answered) as count:
            try:
                self.harness.step(endpoint)
            except Killed:
                self.kills += 1
                status = EndpointStatus.objects.get(pk=endpoint.pk)
                assert status.claim_until is not None, "nobody else may act until it runs out"
                self.harness.survivor(endpoint)
                assert due(EndpointStatus, timezone.now()) == [endpoint.pk]
        again = (self.at + 1) % self.stride  # other requests in the next round
        self.at = self.at + self.stride if count[0] > self.at else again
        assert self.at < LONGEST_PASS


@pytest.mark.timeout(600)
@pytest.mark.parametrize("answered", [False, True], ids=["before", "carried-out"])
def test_reconciler_survives_a_kill_at_every_request(
    cluster_harness: ClusterHarness,
    demo_endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    answered: bool,
) -> None:
    reaper = Reaper(cluster_harness, monkeypatch, answered=answered)

    def reaped(goal: Callable[[], bool]) -> Callable[[], bool]:
        def once() -> bool:
            reaper.step(demo_endpoint)
            return goal()

        return once

    until(reaped(lambda: ready_now(demo_endpoint)), 300.0, what="ready")
    born = reaper.kills
    assert born > 2
    change("1024")

    def changed() -> bool:
        assert cluster_harness.ready() >= 2
        return ready_now(demo_endpoint)

    until(reaped(changed), 300.0, what="changed")
    assert reaper.kills > born
    assert len(cluster_harness.pods()) == 2 or until(lambda: len(cluster_harness.pods()) == 2)
    actions.delete(SYSTEM, "demo")
    until(reaped(lambda: not Endpoint.objects.exists()), 300.0, what="gone")
    assert cluster_harness.left() == []


def test_two_concurrent_workers_act_as_one(
    cluster_harness: ClusterHarness, demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the first is in the middle: at every single request."""
    send, inside, wrote = KubernetesClient._send, [False], [0]

    def crowded(client: KubernetesClient, *args: Any, **named: Any) -> Any:
        if not inside[0]:
            inside[0] = True
            before = wrote[0]
            cluster_harness.reconciler.reconcile(str(demo_endpoint.pk))
            assert wrote[0] == before, "the second did something"
            inside[0] = False
        else:
            wrote[0] += 1
        return send(client, *args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(KubernetesClient, "_send", crowded)
        cluster_harness.until(demo_endpoint, "Ready")
    assert len(cluster_harness.pods()) == 2
    names = [row.name for row in Replica.objects.filter(endpoint=demo_endpoint)]
    assert len(names) == len(set(names)) == 2


def test_worker_with_an_expired_claim_writes_nothing(
    cluster_harness: ClusterHarness, demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim ran out in the middle of a pass, and another one has brought all to an end."""
    cluster_harness.step(demo_endpoint)
    send, slept = KubernetesClient._send, [False]

    def sleepy(client: KubernetesClient, *args: Any, **named: Any) -> Any:
        found = send(client, *args, **named)
        if not slept[0]:
            slept[0] = True
            cluster_harness.survivor(demo_endpoint)
            cluster_harness.until(demo_endpoint, "Ready")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(KubernetesClient, "_send", sleepy)
        cluster_harness.step(demo_endpoint)
    assert slept[0]
    assert ready_now(demo_endpoint), "what the other one wrote stands"
    assert len(kinds(demo_endpoint)) == len(list(demo_endpoint.events.all()))
    cluster_harness.until(demo_endpoint, "Ready")
    assert len(cluster_harness.pods()) == 2


# --- the API server is away ---------------------------------------------------------------------


@pytest.fixture
def over_fake(fake_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    """Only a plane of our own may be stopped."""
    return ClusterHarness(fake_cluster, monkeypatch)


def away(harness: ClusterHarness) -> Any:
    return harness.cluster.plane


def test_api_server_outage_at_any_time(over_fake: ClusterHarness, data: dict[str, Any]) -> None:
    """While it comes up, while it changes, while it stands, and while it goes."""
    harness = over_fake
    demo = harness.create(data)
    harness.step(demo)
    _gone_and_back(harness, demo, "Provisioning")
    harness.until(demo, "Ready")
    _gone_and_back(harness, demo, "Degraded")
    status = harness.until(demo, "Ready")
    assert status.rolled_back == {}
    change("1024")
    harness.step(demo)
    _gone_and_back(harness, demo, "Degraded")
    harness.until(demo, "Ready")
    assert Endpoint.objects.get(pk=demo.pk).generation == 2, "nobody blames the revision"
    actions.delete(SYSTEM, "demo")
    harness.step(demo)
    _gone_and_back(harness, demo, "Deleting")
    harness.gone(demo)
    assert harness.left() == []


def _gone_and_back(harness: ClusterHarness, endpoint: Endpoint, phase: str) -> None:
    before = set(endpoint.replicas.values_list("name", flat=True))
    away(harness).stop_api()
    try:
        for _ in range(3):
            status = harness.step(endpoint)
            assert status is not None
            assert (status.phase, status.reason) == (phase, "ClusterUnreachable")
            assert status.due_at is not None
        assert before == set(endpoint.replicas.values_list("name", flat=True)), "what was known"
    finally:
        away(harness).start_api()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_overloaded_api_server_is_no_failure(
    over_fake: ClusterHarness, data: dict[str, Any], status: int
) -> None:
    demo = over_fake.create(data)
    with away(over_fake).failing("", status):
        seen = over_fake.step(demo)
    assert seen is not None
    assert seen.phase == "Provisioning"
    assert seen.reason in ("ClusterBusy", "ClusterUnreachable")
    over_fake.until(demo, "Ready")


def test_fleet_is_created_and_deleted_concurrently(
    over_fake: ClusterHarness, data: dict[str, Any]
) -> None:
    _fleet(over_fake, data, 4)


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_fifty_endpoints_at_once(
    real_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]
) -> None:
    _fleet(ClusterHarness(real_cluster, monkeypatch), data, 50)


def _fleet(harness: ClusterHarness, data: dict[str, Any], count: int) -> None:
    small = merge(data, {"replicas": 1})
    fleet = [
        harness.create({**small, "name": f"e{number}"}, router={"replicas": 1})
        for number in range(count)
    ]

    def sweep(goal: Callable[[Endpoint], bool]) -> Callable[[], bool]:
        def once() -> bool:
            for endpoint in [one for one in fleet if not goal(one)]:
                harness.step(endpoint)
            return all(goal(one) for one in fleet)

        return once

    until(sweep(ready_now), 300.0, what="the fleet is ready")
    assert Replica.objects.filter(state="ready").count() == count
    for endpoint in fleet:
        actions.delete(SYSTEM, endpoint.name)
    gone = sweep(lambda one: not Endpoint.objects.filter(pk=one.pk).exists())
    until(gone, 300.0, what="the fleet is gone")
    assert harness.left() == []
