"""Abandoning an endpoint of a lost cluster: preconditions and report."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.clusters import removal_proof
from console.clusters.models import Cluster, ClusterStatus
from console.core.errors import Refused
from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.rendering import names
from endpoints import abandonment, actions
from endpoints.actions import SYSTEM
from endpoints.keys import storage
from endpoints.models import Endpoint
from endpoints.owners import Owner
from endpoints.placement import provisioner
from endpoints.refusals import ConflictError
from tests.support.console import make_endpoint
from tests.support.endpoints.cluster_harness import ClusterHarness
from tests.support.endpoints.ownership import give_to
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.kube.cluster import Cluster as KubeCluster

pytestmark = pytest.mark.django_db
SELECTOR = "emberline.dev/owner=endpoint.demo"
REST = "/api/v1/endpoints/demo/?abandon=true"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    found = PaperCluster()
    monkeypatch.setattr(provisioner.clusters, "provisioner", lambda *_: found)
    return found


@pytest.fixture
def reconciler_harness(cluster: PaperCluster) -> ReconcilerHarness:
    return ReconcilerHarness(cluster)


@pytest.fixture
def lost(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, placed: Endpoint
) -> Endpoint:
    """It served, and its cluster has not answered since."""
    reconciler_harness.until(placed, "Ready")
    cluster.away = True
    return placed


@pytest.fixture
def page(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def there() -> bool:
    return Endpoint.objects.filter(name="demo").exists()


def seen(ago_s: float) -> None:
    ClusterStatus.objects.update(seen_at=timezone.now() - timedelta(seconds=ago_s))


def test_abandoned_endpoint_is_removed_and_audited(
    reconciler_harness: ReconcilerHarness, lost: Endpoint, alice: User
) -> None:
    seen(removal_proof.SILENT_FOR_S + 10)
    left = abandonment.abandon(alice, "demo")
    assert (left.cluster, left.namespace, left.selector) == ("east", "models", SELECTOR)
    assert f"-n models -l {SELECTOR}" in left.command
    assert left.command in left.message
    assert not there()
    assert not storage.console_key_file("demo").exists()
    line = AuditEvent.objects.get(verb="endpoint.abandon")
    assert (line.actor_name, line.target) == ("alice", "endpoint/demo")
    assert line.changes["selector"] == SELECTOR
    assert "does not answer" in line.changes["why"]
    reconciler_harness.reconciler.reconcile(str(lost.pk))
    assert not there(), "a pass that comes late makes nothing"


def test_label_equals_that_of_the_objects() -> None:
    assert removal_proof._OWNER == names.OWNER
    assert f"{names.OWNER}={names.owner_label('endpoint/demo')}" == SELECTOR


def test_deletion_waits_for_its_cluster(
    reconciler_harness: ReconcilerHarness, lost: Endpoint
) -> None:
    actions.delete(SYSTEM, "demo")
    status = reconciler_harness.step(lost)
    assert status is not None
    assert (status.phase, status.reason) == ("Deleting", "ClusterUnreachable")
    abandonment.abandon(SYSTEM, "demo")
    assert not there()


@pytest.mark.parametrize(
    "failure",
    [
        None,
        PermanentError("ClusterRefused", "The credentials have expired."),
        PermanentError("ClusterUntrusted", "Another certificate."),
        TemporaryError("ClusterBusy", "Too many requests."),
    ],
)
def test_reachable_cluster_prevents_abandonment(
    cluster: PaperCluster, placed: Endpoint, failure: Exception | None, monkeypatch: Any
) -> None:
    def observe(_ref: Any) -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr(cluster, "observe", observe)
    with pytest.raises(Refused, match=r"cannot be abandoned\. It responds") as caught:
        abandonment.abandon(SYSTEM, "demo")
    assert caught.value.status_code == 409
    assert str(failure or "") in str(caught.value)
    assert there()
    assert not AuditEvent.objects.filter(verb="endpoint.abandon").exists()


def test_recently_reachable_cluster_prevents_abandonment(lost: Endpoint) -> None:
    seen(removal_proof.SILENT_FOR_S - 60)
    with pytest.raises(Refused, match="the outage may be brief"):
        abandonment.abandon(SYSTEM, "demo")
    assert there()


def test_removed_cluster_allows_abandonment(placed: Endpoint) -> None:
    Cluster.objects.all().delete()
    placed.spec["placement"] = {"cluster": "east"}
    placed.save()
    left = abandonment.abandon(SYSTEM, "demo")
    assert left.namespace == "NAMESPACE"
    assert "Cluster 'east' does not exist" in left.why
    assert not there()


def test_local_endpoint_cannot_be_abandoned() -> None:
    make_endpoint()
    with pytest.raises(ConflictError, match="runs on this machine"):
        abandonment.abandon(SYSTEM, "demo")
    assert there()


def test_foreign_owner_is_named(lost: Endpoint) -> None:
    give_to(Owner("west", "models", "demo"), "demo")
    with pytest.raises(ConflictError, match="InferenceEndpointConfig"):
        abandonment.abandon(SYSTEM, "demo")
    give_to(Owner("east", "models", "demo"), "demo")
    abandonment.abandon(SYSTEM, "demo")
    assert not there()


def test_changed_endpoint_is_not_abandoned(
    cluster: PaperCluster, lost: Endpoint, monkeypatch: Any
) -> None:
    with pytest.raises(ConflictError, match="changed meanwhile"):
        abandonment.abandon(SYSTEM, "demo", expected_generation=9)

    def changed(_ref: Any) -> None:
        actions.pause(SYSTEM, "demo")
        raise TemporaryError("ClusterUnreachable", "Away.")

    monkeypatch.setattr(cluster, "observe", changed)
    with pytest.raises(ConflictError, match="changed meanwhile"):
        abandonment.abandon(SYSTEM, "demo")
    assert there()


# --- by whom and from where ---------------------------------------------------------------------


def test_viewer_cannot_abandon(lost: Endpoint, charlie: User) -> None:
    client = Client()
    client.force_login(charlie)
    assert client.post("/endpoints/demo/abandon/", {"name": "demo"}).status_code == 403
    assert client.delete(REST).status_code == 403
    with pytest.raises(PermissionDenied):
        abandonment.abandon(charlie, "demo")
    assert there()


def test_page_needs_the_typed_name(cluster: PaperCluster, lost: Endpoint, page: Client) -> None:
    text = page.get("/endpoints/demo/delete/").content.decode()
    for word in ("Type <strong>demo</strong> to abandon it", SELECTOR, "-n models", "/abandon/"):
        assert word in text
    assert page.get("/endpoints/demo/abandon/").status_code == 302
    for wrong in ("", "Demo", "other"):
        answer = page.post("/endpoints/demo/abandon/", {"name": wrong})
        assert answer.status_code == 400
        assert "does not match" in answer.content.decode()
    cluster.away = False
    answer = page.post("/endpoints/demo/abandon/", {"name": "demo"})
    assert (answer.status_code, "It responds." in answer.content.decode()) == (409, True)
    assert there()
    cluster.away = True
    actions.delete(SYSTEM, "demo")
    assert "Abandon…" in page.get("/endpoints/demo/").content.decode()
    assert 'id="delete-name"' not in page.get("/endpoints/demo/delete/").content.decode()
    answer = page.post("/endpoints/demo/abandon/", {"name": "demo"}, follow=True)
    assert SELECTOR in answer.content.decode()
    assert not there()


def test_local_page_offers_no_abandonment(page: Client) -> None:
    make_endpoint()
    assert "abandon" not in page.get("/endpoints/demo/delete/").content.decode()
    answer = page.post("/endpoints/demo/abandon/", {"name": "demo"})
    assert (answer.status_code, "runs on this machine" in answer.content.decode()) == (409, True)


def test_by_rest(cluster: PaperCluster, lost: Endpoint, page: Client) -> None:
    assert page.delete("/api/v1/endpoints/demo/?abandon=yes").status_code == 400
    cluster.away = False
    refused = page.delete(REST)
    assert (refused.status_code, refused.json()["code"]) == (409, "cluster_there")
    cluster.away = True
    assert page.delete(REST, headers={"If-Match": '"7"'}).status_code == 412
    answer = page.delete(REST)
    assert (answer.status_code, answer.json()["selector"]) == (200, SELECTOR)
    assert page.delete(REST).status_code == 404


def test_from_a_shell(cluster: PaperCluster, lost: Endpoint) -> None:
    out = io.StringIO()
    words = ("emberline", "endpoint", "delete", "demo", "--abandon", "--yes")
    cluster.away = False
    with pytest.raises(CommandError, match="cannot be abandoned"):
        call_command(*words, stdout=out)
    cluster.away = True
    call_command(*words, stdout=out)
    assert SELECTOR in out.getvalue()
    assert not there()


def test_over_the_wire(
    fake_cluster: KubeCluster, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may be left is what its label finds."""
    over_fake = ClusterHarness(fake_cluster, monkeypatch)
    demo = over_fake.create(data)
    over_fake.until(demo, "Ready")
    seen(removal_proof.SILENT_FOR_S + 10)
    with pytest.raises(Refused, match="It responds"):
        abandonment.abandon(SYSTEM, "demo")
    plane: Any = over_fake.cluster.plane
    plane.stop_api()
    try:
        left = abandonment.abandon(SYSTEM, "demo")
    finally:
        plane.start_api()
    assert not there()
    assert left.namespace == over_fake.namespace
    found = over_fake.cluster.api.list("ConfigMap", left.namespace, left.selector)
    assert {"demo-worker", "demo-router"} <= {one["metadata"]["name"] for one in found}
