"""Watches of namespaces in use: started and stopped, gathered notices, stored state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import signals
from django.test import Client
from django.utils import timezone

from console.claims import due
from console.clusters.models import Cluster, ClusterWatch
from console.clusters.watches import ClusterWatches, wanted_places
from console.core import uses
from console.provisioners.kubernetes.workload import watch
from console.system import changes
from endpoints import tasks
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus
from endpoints.reconcile.reconciler import NEXT_PASS_S, STEADY_ON_CLUSTER_S
from tests.support.endpoints.cluster_harness import ClusterHarness
from tests.support.endpoints.fixtures import data, known_machine, no_old_keys  # noqa: F401
from tests.support.kube.cluster import Cluster as KubeCluster
from tests.support.people import Cast
from tests.support.waiting import until

pytestmark = pytest.mark.django_db


class Rounds:
    """The rounds of `ClusterWatches` in the test's thread, which has the database."""

    def __init__(self) -> None:
        self.watches = ClusterWatches(changes.announce)

    def adjust(self) -> None:
        self.watches._adjust(wanted_places())

    def deliver(self) -> None:
        self.watches._deliver()

    def states(self) -> dict[str, str]:
        self.deliver()
        return dict(ClusterWatch.objects.values_list("kind", "error"))

    def live(self) -> None:
        self.adjust()
        both = {"pods": "", "deployments": ""}
        until(lambda: self.states() == both, what="both watches live")


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    found = Rounds()
    yield found
    found.watches._adjust({})


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(tasks.reconcile_endpoint, "nudge", found.append)
    return found


@pytest.fixture
def cluster_harness(cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    return ClusterHarness(cluster, monkeypatch)


@pytest.fixture
def fake_harness(fake_cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterHarness:
    monkeypatch.setattr(watch, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(watch, "MAX_RETRY_S", 0.1)
    return ClusterHarness(fake_cluster, monkeypatch)


def due_in_s(endpoint: Endpoint) -> float:
    status = EndpointStatus.objects.get(pk=endpoint.pk)
    assert status.due_at is not None
    return (status.due_at - status.updated_at).total_seconds()


def test_death_of_a_pod_is_announced_and_a_steady_endpoint_is_not_polled(
    cluster_harness: ClusterHarness, data: dict[str, Any], rounds: Rounds, requests: list[str]
) -> None:
    demo = cluster_harness.create(data)
    cluster_harness.until(demo, "Ready")
    cluster_harness.step(demo)
    assert due_in_s(demo) < STEADY_ON_CLUSTER_S / 2, "polled without a watch"
    rounds.live()

    def steady() -> bool:
        cluster_harness.step(demo)
        return due_in_s(demo) >= 0.8 * STEADY_ON_CLUSTER_S - 1

    until(steady, what="observed rarely")
    rounds.deliver()
    requests.clear()
    pod = cluster_harness.pods()[0]["metadata"]["name"]
    cluster_harness.cluster.api.delete("Pod", cluster_harness.namespace, pod, gracePeriodSeconds=0)
    until(lambda: rounds.deliver() or requests, what="notice")
    assert set(requests) == {str(demo.pk)}
    assert due(EndpointStatus, timezone.now()) == [demo.pk], "in case the message is lost"

    def recorded() -> bool:
        cluster_harness.step(demo)
        lost = ("WorkerLost", "WorkerRemoved")
        return EndpointEvent.objects.filter(endpoint=demo, subject=pod, kind__in=lost).exists()

    until(recorded, what="event of the lost worker")


def test_lost_watch_is_counted_shown_and_replaced_by_polling(
    fake_harness: ClusterHarness,
    data: dict[str, Any],
    rounds: Rounds,
    requests: list[str],
    people: Cast,
    client: Client,
) -> None:
    demo = fake_harness.create(data)
    fake_harness.until(demo, "Ready")
    rounds.live()
    until(lambda: fake_harness.step(demo) and due_in_s(demo) >= 0.8 * STEADY_ON_CLUSTER_S - 1)
    requests.clear()
    with fake_harness.cluster.plane.failing("watch=true"):  # type: ignore[attr-defined]
        fake_harness.cluster.plane.stop_api()  # type: ignore[attr-defined]
        fake_harness.cluster.plane.start_api()  # type: ignore[attr-defined]
        until(lambda: all(rounds.states().values()), what="both reported lost")
        assert str(demo.pk) in requests, (
            "observed at once, since its changes are no longer announced"
        )
        fake_harness.step(demo)
        assert due_in_s(demo) <= max(NEXT_PASS_S.values())
        client.force_login(people.alice)
        page = client.get("/clusters/east/").content.decode()
        assert "polled since" in page
        assert "interrupted 1 time" in page
        found = client.get("/api/v1/clusters/east/").json()["watches"]
        assert {row["kind"]: row["losses"] for row in found} == {"pods": 1, "deployments": 1}
        assert all(row["error"] for row in found)
    rounds.live()
    assert "live since" in client.get("/clusters/east/").content.decode()


def test_namespaces_without_endpoints_are_not_watched(
    fake_harness: ClusterHarness, data: dict[str, Any], rounds: Rounds
) -> None:
    rounds.adjust()
    assert not rounds.watches._watches
    demo = fake_harness.create(data)
    fake_harness.create({**data, "name": "second"})
    rounds.live()
    assert list(rounds.watches._watches) == [("east", fake_harness.namespace)]
    assert len(rounds.watches._watches["east", fake_harness.namespace][1]) == len(watch.WATCHED)
    Endpoint.objects.all().delete()
    rounds.adjust()
    assert not rounds.watches._watches
    assert not ClusterWatch.objects.exists(), "no state of a watch that has ended"
    assert demo is not None


def test_new_credentials_restart_the_watches(
    fake_harness: ClusterHarness, data: dict[str, Any], rounds: Rounds
) -> None:
    fake_harness.create(data)
    rounds.live()
    (_, before) = rounds.watches._watches["east", fake_harness.namespace]
    rounds.adjust()
    assert rounds.watches._watches["east", fake_harness.namespace][1] == before
    Cluster.objects.update(context="gone")
    rounds.adjust()
    assert rounds.watches._watches["east", fake_harness.namespace][1] != before
    for one in before:
        one.join(30)
        assert not one.is_alive()


def test_undelivered_notices_are_delivered_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = []

    def handle(name: str) -> None:
        found.append(name)
        if len(found) == 1:
            raise RuntimeError("database is gone")

    monkeypatch.setattr(changes, "_handlers", {"endpoint": handle})
    running = ClusterWatches(changes.announce)
    running._notice({"endpoint/demo"})
    with pytest.raises(RuntimeError):
        running._deliver()
    running._deliver()
    running._deliver()
    assert found == ["demo", "demo"]


def test_unreadable_credentials_leave_other_clusters_watched(
    fake_harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"nowhere": ["a"], "east": ["", fake_harness.namespace, "b"]}
    monkeypatch.setattr(uses, "by_name", lambda _kind: named)
    assert set(wanted_places()) == {("east", fake_harness.namespace), ("east", "b")}


def test_a_celery_worker_watches_once_ready() -> None:
    connected = [receiver for _, receiver in signals.worker_ready.receivers]
    assert changes.start_watches in connected
