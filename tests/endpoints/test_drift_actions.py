"""Decisions about drifted fields, on page and REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.provisioners.base import Drift, TemporaryError
from endpoints import drift_actions
from endpoints.models import DriftOrder, Endpoint, EndpointStatus
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, kinds

pytestmark = pytest.mark.django_db
PAUSED = Drift("Deployment/demo-worker", ".spec.paused", False, True, "kubectl-edit", 1000.0)
SCALED = Drift("Deployment/demo-worker", ".spec.replicas", 2, 3, "kubectl")


@pytest.fixture
def cluster() -> PaperCluster:
    return PaperCluster()


@pytest.fixture
def reconciler_harness(cluster: PaperCluster) -> ReconcilerHarness:
    return ReconcilerHarness(cluster)


@pytest.fixture
def drifted(
    reconciler_harness: ReconcilerHarness, placed: Endpoint, cluster: PaperCluster
) -> Endpoint:
    cluster.drift = (PAUSED,)
    reconciler_harness.until(placed, "Degraded")
    return placed


def test_healing_is_requested_executed_once_and_reported(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    drift_actions.heal(alice, "demo")
    drift_actions.heal(alice, "demo")
    assert DriftOrder.objects.count() == 1
    assert not cluster.healed, "only the reconciler touches a cluster"
    status = reconciler_harness.until(drifted, "Ready")
    assert cluster.healed == ["demo-worker"]
    assert not DriftOrder.objects.exists()
    assert status.drift == []
    assert "DriftHealed" in kinds(drifted)
    line = AuditEvent.objects.filter(verb="endpoint.heal", target="endpoint/demo").first()
    assert line is not None
    assert line.changes == {PAUSED.key: [True, False]}


def test_request_survives_an_unreachable_cluster(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    drift_actions.heal(alice, "demo")
    cluster.away = True
    reconciler_harness.step(drifted)
    assert DriftOrder.objects.count() == 1
    cluster.away = False
    reconciler_harness.until(drifted, "Ready")
    assert cluster.healed == ["demo-worker"]


def test_request_ends_together_with_the_status(
    reconciler_harness: ReconcilerHarness,
    cluster: PaperCluster,
    drifted: Endpoint,
    alice: User,
    monkeypatch: Any,
) -> None:
    """Killed between the cluster and the database, it is carried out again."""

    def die(*_args: Any, **_named: Any) -> None:
        raise TemporaryError("Killed", "Killed.")

    drift_actions.heal(alice, "demo")
    with monkeypatch.context() as patched:
        patched.setattr("endpoints.reconcile.reconciler.write", die)
        with pytest.raises(TemporaryError):
            reconciler_harness.step(drifted)
    assert DriftOrder.objects.count() == 1
    EndpointStatus.objects.filter(pk=drifted.pk).update(claim_until=None)
    reconciler_harness.until(drifted, "Ready")
    assert cluster.healed == ["demo-worker"] * 2


def test_adoption_leaves_the_field_to_its_owner(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    drift_actions.adopt(alice, "demo", PAUSED.key)
    reconciler_harness.until(drifted, "Ready")
    assert cluster.adopted == [("demo-worker", PAUSED.key)]
    assert "DriftAdopted" in kinds(drifted)
    assert Endpoint.objects.get(pk=drifted.pk).generation == 1


def test_adoption_of_a_spec_field_changes_the_spec(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    cluster.drift = (SCALED,)
    reconciler_harness.step(drifted)
    drift_actions.adopt(alice, "demo", SCALED.key)
    demo = Endpoint.objects.get(pk=drifted.pk)
    latest = demo.revisions.first()
    assert latest is not None
    assert (demo.spec["replicas"], latest.verb, latest.author) == (3, "adopt", "alice")
    assert not DriftOrder.objects.exists()
    assert not cluster.adopted


def test_replica_count_of_another_object_is_ignored(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    other = Drift("Deployment/demo-router", ".spec.replicas", 2, 3, "kubectl")
    cluster.drift = (other,)
    reconciler_harness.step(drifted)
    drift_actions.adopt(alice, "demo", other.key)
    assert Endpoint.objects.get(pk=drifted.pk).spec["replicas"] == 2
    assert DriftOrder.objects.get().key == other.key


def test_by_rest(drifted: Endpoint, alice: User, charlie: User) -> None:
    client = Client()
    client.force_login(charlie)
    shown = client.get("/api/v1/endpoints/demo/drift/").json()["results"]
    assert (shown[0]["key"], shown[0]["manager"]) == (PAUSED.key, "kubectl-edit")
    one = client.get("/api/v1/endpoints/demo/").json()
    assert one["drift"] == shown
    assert one["served_revision"] == 1
    body = {"key": PAUSED.key}
    url = "/api/v1/endpoints/demo/drift/adopt/"
    assert client.post(url, body, "application/json").status_code == 403
    client.force_login(alice)
    refused = client.post(url, {"key": "Pod/x.y"}, "application/json")
    assert refused.status_code == 404
    assert "Reload the drift list" in refused.json()["remedy"]
    assert client.post(url, {"key": [3]}, "application/json").status_code == 400
    assert client.post(url, body, "application/json").status_code == 202
    heal = "/api/v1/endpoints/demo/drift/heal/"
    assert client.post(heal, {}, "application/json").status_code == 202
    assert client.post(heal, {"workload": "other"}, "application/json").status_code == 404
    assert set(DriftOrder.objects.values_list("verb", flat=True)) == {"heal", "adopt"}


def test_page_offers_both_actions(drifted: Endpoint, alice: User, charlie: User) -> None:
    client = Client()
    client.force_login(charlie)
    page = client.get("/endpoints/demo/").content.decode()
    assert "kubectl-edit" in page
    assert ".spec.paused" in page
    assert client.post("/endpoints/demo/drift/heal/").status_code == 403
    client.force_login(alice)
    client.post("/endpoints/demo/drift/heal/", {"workload": "demo-worker"})
    client.post("/endpoints/demo/drift/adopt/", {"key": PAUSED.key})
    assert DriftOrder.objects.count() == 2
    answer = client.post("/endpoints/demo/drift/adopt/", {"key": "Pod/x"}, follow=True)
    assert "Reload the drift list" in answer.content.decode()


def test_local_endpoint_has_no_drift(demo_endpoint: Endpoint, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    answer = client.post("/api/v1/endpoints/demo/drift/heal/", {}, "application/json")
    assert answer.status_code == 409
    assert answer.json()["code"] == "not_on_a_cluster"
