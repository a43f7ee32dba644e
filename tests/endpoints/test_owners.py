"""Fields owned by a cluster object cannot be changed from any interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.provisioners.base import Drift
from endpoints import actions, drift_actions, manifest_actions
from endpoints.actions import SYSTEM
from endpoints.controller.models import Owned
from endpoints.models import DriftOrder, Endpoint
from endpoints.owners import Owner, OwningSystem
from endpoints.refusals import ConflictError
from tests.support.endpoints.ownership import give_to
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness, kinds

pytestmark = pytest.mark.django_db
PAUSED = Drift("Deployment/demo-worker", ".spec.paused", False, True, "kubectl-edit", 1000.0)
SCALED = Drift("Deployment/demo-worker", ".spec.replicas", 2, 3, "kubectl")
OWNER = Owner("east", "models", "llama")
Say = Callable[[Any], object]

GUARDED: dict[str, Say] = {
    "update": lambda who: actions.update(who, "demo", {**_spec(), "replicas": 3}),
    "patch": lambda who: actions.patch(who, "demo", {"replicas": 3}),
    "scale": lambda who: actions.scale(who, "demo", 3),
    "pause": lambda who: actions.pause(who, "demo"),
    "resume": lambda who: actions.resume(who, "demo"),
    "rollback": lambda who: actions.rollback(who, "demo", 1),
    "delete": lambda who: actions.delete(who, "demo"),
    "adopt a field": lambda who: drift_actions.adopt(who, "demo", PAUSED.key),
    "adopt replicas": lambda who: drift_actions.adopt(who, "demo", SCALED.key),
    "apply": lambda who: manifest_actions.apply(who, [{**_spec(), "replicas": 3}]),
}
HARMLESS = {
    "create": "there is none of that name",
    "require_owner": "is the guard",
    "lock_changeable": "writes nothing",
    "user_of": "writes nothing",
    "heal": "restores what the object wants",
}


def _spec() -> dict[str, Any]:
    return dict(Endpoint.objects.get(name="demo").spec)


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
    """Paused once, so that every verb would change something."""
    cluster.drift = (PAUSED, SCALED)
    reconciler_harness.until(placed, "Degraded")
    return placed


@pytest.fixture
def owned(drifted: Endpoint) -> Endpoint:
    give_to(OWNER, "demo")
    return drifted


@pytest.mark.parametrize("verb", GUARDED)
@pytest.mark.parametrize("who", ["alice", "the command line", "another object"])
def test_owned_endpoint_is_changed_only_by_its_object(
    owned: Endpoint, alice: User, who: str, verb: str
) -> None:
    if verb in ("resume", "rollback"):
        paused = {**owned.spec, "replicas": 0}
        Endpoint.objects.filter(pk=owned.pk).update(spec=paused)
    other = OwningSystem(Owner("east", "models", "other"))
    actor = {"alice": alice, "the command line": SYSTEM, "another object": other}[who]
    before = Endpoint.objects.values("spec", "generation", "deleted_at").get(pk=owned.pk)
    lines = AuditEvent.objects.count()
    with pytest.raises(ConflictError) as refused:
        GUARDED[verb](actor)
    assert refused.value.code == "managed"
    assert "models/llama in east" in refused.value.message
    after = Endpoint.objects.values("spec", "generation", "deleted_at").get(pk=owned.pk)
    assert (after, DriftOrder.objects.exists()) == (before, False)
    assert AuditEvent.objects.count() == lines, "nothing is written down that was not done"


def test_every_verb_is_guarded_or_declared_harmless() -> None:
    """Each new one is classified."""
    verbs = {
        name
        for module in (actions, drift_actions)
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and "actor" in inspect.signature(value).parameters
    }
    known = {*HARMLESS, *(name.partition(" ")[0] for name in GUARDED)}
    assert verbs <= known, verbs - known


def test_by_rest_and_page(owned: Endpoint, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    answer = client.post(
        "/api/v1/endpoints/demo/drift/adopt/", {"key": PAUSED.key}, "application/json"
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "managed")
    assert "kubectl edit inferenceendpointconfig llama -n models" in answer.json()["remedy"]
    response = client.post("/endpoints/demo/drift/adopt/", {"key": PAUSED.key}, follow=True)
    assert "models/llama in east" in response.content.decode()
    for path in ("/endpoints/demo/", "/endpoints/demo/live/"):
        page = client.get(path).content.decode()
        assert "Heal demo-worker" in page
        assert "drift/adopt/" not in page, "what is refused is not offered"
    Owned.objects.all().delete()
    assert "drift/adopt/" in client.get("/endpoints/demo/live/").content.decode()


def test_healing_restores_the_object_spec(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, owned: Endpoint, alice: User
) -> None:
    drift_actions.heal(alice, "demo")
    reconciler_harness.until(owned, "Ready")
    assert cluster.healed == ["demo-worker"]
    assert Endpoint.objects.get(pk=owned.pk).generation == 1


def test_adoption_requested_before_the_object_is_dropped_and_reported(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, drifted: Endpoint, alice: User
) -> None:
    drift_actions.adopt(alice, "demo", PAUSED.key)
    drift_actions.heal(alice, "demo", "demo-worker")
    give_to(OWNER, "demo")
    reconciler_harness.until(drifted, "Ready")
    assert (cluster.adopted, cluster.healed) == ([], ["demo-worker"])
    assert not DriftOrder.objects.exists()
    assert "DriftNotAdopted" in kinds(drifted)
    assert "DriftAdopted" not in kinds(drifted)
