"""Grants of a team limit its endpoints in every interface and at every apply."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from console.accounts.models import Membership
from console.audit.models import AuditEvent
from console.clusters import selectors as clusters
from console.core.grants import NAMESPACE_GRANTS, Grant
from console.people import team_actions
from endpoints import actions, manifest_actions, teams
from endpoints.manifest_actions import ManifestTarget
from endpoints.models import Endpoint, EndpointStatus
from endpoints.owners import Owner, OwningSystem
from endpoints.spec.endpoint_spec import SpecErrors, merge
from tests.support import teams as made
from tests.support.console import browser, person
from tests.support.endpoints.ownership import give_to
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.teams import OURS, Teams

pytestmark = pytest.mark.django_db
HOST = [{"name": "root", "hostPath": {"path": "/"}}]
SECRET = [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "console", "key": "django"}}}]
PLAIN = {
    "name": "fresh",
    "model": "org/model",
    "engine": "simulated",
    "placement": {"cluster": "east", "namespace": "models"},
}
ROOT = merge(PLAIN, {"pod.volumes": HOST})


@pytest.fixture(autouse=True)
def east(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "names", lambda: ["east"])


@pytest.fixture
def people(db: None) -> Teams:
    found = made.teams()
    made.their_endpoints(found)
    return found


def client_of(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def give(people: Teams, *grants: str) -> None:
    people.ours.grants = list(grants)
    people.ours.save(update_fields=["grants"])


def refused(act: Any) -> str:
    with pytest.raises(SpecErrors) as caught:
        act()
    (error,) = caught.value.errors
    assert error.code == "not_granted"
    return f"{error.field}: {error.message} {error.remedy}"


def test_every_entry_point_rejects_with_field_grant_and_remedy(people: Teams) -> None:
    erin = people.erin
    actions.create(erin, PLAIN)
    secret = merge(PLAIN, {"pod.env_from": SECRET, "name": "other"})
    content = refused(lambda: actions.create(erin, {**ROOT, "name": "other"}))
    assert content.startswith("pod.volumes: The volume 'root' (hostPath) needs the grant host.")
    assert "ask an admin of the console to give team Ours that grant" in content
    for act in (
        lambda: actions.create(erin, secret),
        lambda: actions.update(erin, "fresh", ROOT),
        lambda: actions.patch(erin, "fresh", {"pod": {"env_from": SECRET}}),
        lambda: manifest_actions.plan(erin, [ROOT], ManifestTarget("east")),
        lambda: manifest_actions.apply(erin, [{**ROOT, "name": "other"}], ManifestTarget("east")),
    ):
        refused(act)
    give(people, "host")
    actions.update(erin, "fresh", ROOT)
    assert "grant secrets" in refused(lambda: actions.create(erin, secret))
    actions.update(erin, "fresh", PLAIN)
    give(people)
    refused(lambda: actions.rollback(erin, "fresh", 2))
    assert Endpoint.objects.get(name="fresh").spec["placement"]["cluster"] == "east"
    assert not Endpoint.objects.filter(name="other").exists()


def test_rest_and_page_reject_and_the_preview_renders_nothing(people: Teams) -> None:
    api = client_of(people.erin)
    answer = api.post("/api/v1/endpoints/", ROOT, format="json")
    assert (answer.status_code, answer.json()["field"]) == (400, "pod.volumes")
    assert api.post("/api/v1/endpoints/?dry_run=true", ROOT, format="json").status_code == 400
    shown = api.post("/api/v1/preview/", ROOT, format="json").json()
    assert shown["objects"] == []
    assert "needs the grant host" in shown["refused"]
    give(people, "host")
    shown = api.post("/api/v1/preview/", ROOT, format="json").json()
    assert "needs the grant" not in shown["refused"]


def test_endpoints_without_a_team_need_an_admin(people: Teams) -> None:
    operator, admin = person("operator"), person("admin")
    content = refused(lambda: actions.create(operator, ROOT))
    assert "ask an admin of the console to make this change" in content
    actions.create(admin, ROOT)
    refused(lambda: actions.patch(operator, "fresh", {"pod": {"image": "mine"}}))
    admin.team_cap = people.ours.pk
    refused(lambda: actions.create(admin, {**ROOT, "name": "other"}, team="ours"))


def test_scaling_permission_does_not_require_create_permission(people: Teams) -> None:
    give(people, "host", "annotations")
    tagged = merge(ROOT, {"tags": {"a.example/b": "c"}})
    actions.create(people.erin, tagged)
    give(people)
    assert actions.scale(people.erin, "fresh", 3).parsed.replicas == 3
    actions.patch(people.erin, "fresh", {"routing": {"strategy": "roundrobin"}})
    refused_tag = {"tags": {"a.example/b": "other"}}
    with pytest.raises(SpecErrors):
        actions.patch(people.erin, "fresh", refused_tag)
    with pytest.raises(SpecErrors):
        actions.patch(people.erin, "fresh", {"pod": {"image": "mine"}})
    actions.pause(people.erin, "fresh")


def test_move_into_a_team_needs_its_grants(people: Teams) -> None:
    Membership.objects.create(team=people.theirs, user=people.erin, role="operator")
    give(people, "host")
    actions.create(people.erin, ROOT, team="ours")
    refused(lambda: teams.move(people.erin, "fresh", "theirs"))
    assert Endpoint.objects.get(name="fresh").team == people.ours


def test_cluster_object_has_the_grants_of_its_namespace(people: Teams) -> None:
    """Its author may create it there, without being an operator of any team."""
    author = OwningSystem(Owner("east", "models", "fresh"))
    assert teams.grants(author, None) == NAMESPACE_GRANTS
    give(people, "host")
    assert teams.grants(author, people.ours) == NAMESPACE_GRANTS | {Grant.HOST}
    for document, passes in ((ROOT, False), (merge(PLAIN, {"pod.env_from": SECRET}), True)):
        if passes:
            manifest_actions.plan_one(document, ManifestTarget("east", "models"), actor=author)
        else:
            with pytest.raises(SpecErrors):
                manifest_actions.plan_one(document, ManifestTarget("east", "models"), actor=author)


def stored(endpoint: Endpoint, patch: dict[str, Any]) -> None:
    """As it was written before the rule."""
    endpoint.spec = merge(endpoint.spec, patch)
    endpoint.generation += 1
    endpoint.save(update_fields=["spec", "generation"])
    endpoint.__dict__.pop("parsed", None)


def status_after(harness: ReconcilerHarness, endpoint: Endpoint) -> EndpointStatus:
    applied = len(harness.provisioner.applied)
    status = harness.step(endpoint)
    assert status is not None
    assert len(harness.provisioner.applied) == applied, "nothing of it reaches the provisioner"
    return status


@pytest.mark.parametrize("served", [False, True])
def test_stored_spec_is_not_applied_beyond_its_grants(
    people: Teams, reconciler_harness: ReconcilerHarness, served: bool
) -> None:
    endpoint = Endpoint.objects.get(name=OURS)
    if served:
        reconciler_harness.until(endpoint, "Ready")
    stored(endpoint, {"pod": {"volumes": HOST}})
    status = status_after(reconciler_harness, endpoint)
    assert (status.phase, status.reason) == ("Degraded" if served else "Failed", "SpecRefused")
    assert "pod.volumes: The volume 'root' (hostPath) needs the grant host." in status.message
    give(people, "host")
    reconciler_harness.until(Endpoint.objects.get(name=OURS), "Ready")


def test_object_without_a_team_has_the_grants_of_its_namespace(
    people: Teams, reconciler_harness: ReconcilerHarness
) -> None:
    endpoint = Endpoint.objects.get(name=OURS)
    Endpoint.objects.filter(name=OURS).update(team=None)
    endpoint.refresh_from_db()
    give_to(Owner("east", "models", OURS), OURS)
    stored(endpoint, {"pod": {"volumes": HOST}})
    assert status_after(reconciler_harness, endpoint).reason == "SpecRefused"


@pytest.mark.parametrize(
    "l2",
    [
        {"url": "redis://127.0.0.1:1", "password_file": "/proc/self/environ"},
        {"url": "rediss://127.0.0.1:1?ca_file=/etc/shadow", "password_file": ""},
        {"url": "rediss://127.0.0.1:1?cert_file=/etc/passwd&key_file=/x", "password_file": ""},
    ],
)
def test_file_outside_the_folder_is_neither_accepted_nor_applied(
    people: Teams, reconciler_harness: ReconcilerHarness, l2: dict[str, str]
) -> None:
    """Refused for everybody: no grant opens the console's files."""
    wanted = {"cache": {"l2": {"enabled": True, "backend": "redis", **l2}}}
    endpoint = Endpoint.objects.get(name=OURS)
    give(people, *Grant)
    for actor in (people.erin, actions.SYSTEM):
        with pytest.raises(SpecErrors) as caught:
            actions.patch(actor, OURS, wanted)
        error = caught.value.errors[0]
        assert error.code == "file_not_allowed"
        assert error.field.startswith("cache.l2.")
        assert "is not inside" in error.message
        assert "EMBERLINE_L2_SECRETS" in error.remedy
    stored(endpoint, wanted)
    assert status_after(reconciler_harness, endpoint).reason == "SpecRefused"


def test_stopping_is_always_allowed(people: Teams, reconciler_harness: ReconcilerHarness) -> None:
    endpoint = Endpoint.objects.get(name=OURS)
    reconciler_harness.until(endpoint, "Ready")
    stored(endpoint, {"pod": {"volumes": HOST}})
    actions.pause(people.erin, OURS)
    reconciler_harness.until(Endpoint.objects.get(name=OURS), "Paused")


def test_grants_are_given_by_admins_and_audited(people: Teams) -> None:
    admin = person("admin")
    api = client_of(admin)
    answer = api.patch("/api/v1/teams/ours/", {"grants": ["storage", "host", "host"]})
    assert answer.json()["grants"] == ["host", "storage"]
    event = AuditEvent.objects.filter(verb="team.update").latest("pk")
    assert event.changes == {"grants": [[], ["host", "storage"]]}
    assert api.patch("/api/v1/teams/ours/", {"grants": ["root"]}).json()["field"] == "grants"
    assert api.patch("/api/v1/teams/ours/", {"grants": "host"}).status_code == 400
    for user in (people.gina, people.erin):  # the team's own admin, and its operator
        answer = client_of(user).patch("/api/v1/teams/ours/", {"grants": list(Grant)})
        assert answer.status_code == 403
    page = browser("admin")
    text = page.get("/access/teams/ours/").content.decode()
    assert 'value="host"' in text and text.count(" checked") == 2
    sent = {"name": "Ours", "description": "", "namespaces": "", "grants": ["secrets"]}
    assert page.post("/access/teams/ours/change/", sent).status_code == 302
    people.ours.refresh_from_db()
    assert people.ours.grants == ["secrets"]
    made_one = team_actions.create(admin, {"name": "New"})
    assert made_one.grants == []
