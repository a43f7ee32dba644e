"""Teams of endpoints: creation, moves, namespaces, and no access from other teams."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from console.accounts.models import ApiToken, Membership, Team, User
from console.audit.models import AuditEvent
from endpoints import actions, manifest_actions, teams
from endpoints.keys import actions as keys_actions
from endpoints.models import Endpoint
from endpoints.owners import Owner, OwningSystem
from endpoints.refusals import RefusalError
from endpoints.spec.endpoint_spec import SpecErrors
from tests.support import teams as made
from tests.support.console import person
from tests.support.teams import CANARY, NOBODYS, OURS, Teams

pytestmark = pytest.mark.django_db
DATA = {"name": "fresh", "model": "smollm2-135m-instruct", "engine": "simulated"}


@pytest.fixture
def two_teams(db: None) -> Teams:
    found = made.teams()
    made.their_endpoints(found)
    return found


def code(caught: Any) -> str:
    return str(caught.value.errors[0].code)


def team_of(name: str) -> str | None:
    team = Endpoint.objects.get(name=name).team
    return team.slug if team else None


def test_endpoint_belongs_to_the_team_of_its_creator(two_teams: Teams) -> None:
    actions.create(two_teams.erin, DATA)
    assert team_of("fresh") == "ours"
    actions.create(person("operator"), {**DATA, "name": "free"})
    assert team_of("free") is None


def test_member_of_several_teams_chooses_one(two_teams: Teams) -> None:
    Membership.objects.create(team=two_teams.theirs, user=two_teams.erin, role="operator")
    with pytest.raises(SpecErrors) as caught:
        actions.create(two_teams.erin, DATA)
    assert (caught.value.errors[0].field, code(caught)) == ("team", "required")
    assert "ours, theirs" in caught.value.errors[0].remedy
    actions.create(two_teams.erin, DATA, team="theirs")
    assert team_of("fresh") == "theirs"


@pytest.mark.parametrize("slug", ["theirs", "absent", ""])
def test_endpoints_cannot_be_created_for_another_team(two_teams: Teams, slug: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        actions.create(two_teams.erin, DATA, team=slug)
    assert code(caught) in ("unknown_team", "required")
    assert "theirs" not in caught.value.errors[0].remedy


def test_team_viewer_creates_none(two_teams: Teams) -> None:
    for slug in (None, "ours"):
        with pytest.raises(PermissionDenied):
            actions.create(two_teams.frank, DATA, team=slug)


def test_team_token_creates_endpoints_of_its_team(two_teams: Teams) -> None:
    admin = person("admin")
    admin.team_cap, admin.role_cap = two_teams.ours.pk, "operator"
    actions.create(admin, DATA)
    assert team_of("fresh") == "ours"
    with pytest.raises(SpecErrors):
        actions.create(admin, {**DATA, "name": "other"}, team="theirs")


def test_move_needs_the_role_in_both_teams(two_teams: Teams) -> None:
    for who, name, slug in (
        (two_teams.erin, OURS, "theirs"),
        (two_teams.erin, OURS, "absent"),
        (two_teams.gina, OURS, "theirs"),
    ):
        with pytest.raises(SpecErrors) as caught:
            teams.move(who, name, slug)
        assert code(caught) == "unknown_team"
    with pytest.raises(PermissionDenied):
        teams.move(two_teams.erin, OURS, None)
    for name in (CANARY, NOBODYS, "absent"):
        with pytest.raises(RefusalError) as missing:
            teams.move(two_teams.erin, name, "ours")
        assert code(missing) == "not_found"
    with pytest.raises(PermissionDenied):
        teams.move(two_teams.frank, OURS, "ours")
    assert (team_of(OURS), team_of(CANARY), team_of(NOBODYS)) == ("ours", "theirs", None)


def test_move_is_audited_for_both_teams(two_teams: Teams) -> None:
    Membership.objects.create(team=two_teams.theirs, user=two_teams.erin, role="operator")
    generation = Endpoint.objects.get(name=OURS).generation
    teams.move(two_teams.erin, OURS, "theirs")
    teams.move(two_teams.erin, OURS, "theirs")  # already there
    assert team_of(OURS) == "theirs"
    assert Endpoint.objects.get(name=OURS).generation == generation  # nothing of it restarts
    events = AuditEvent.objects.filter(verb="endpoint.move").order_by("team__slug")
    assert [(one.team.slug, one.changes) for one in events if one.team] == [
        ("ours", {"team": ["ours", "theirs"]}),
        ("theirs", {"team": ["ours", "theirs"]}),
    ]


def test_no_other_path_changes_or_shows_a_foreign_endpoint(two_teams: Teams) -> None:
    erin = two_teams.erin
    spec = {**DATA, "name": CANARY}
    before = Endpoint.objects.get(name=CANARY)
    attempts = [
        lambda: actions.create(erin, spec),
        lambda: actions.update(erin, CANARY, spec),
        lambda: actions.update(erin, OURS, spec),  # by another name
        lambda: actions.patch(erin, CANARY, {"replicas": 3}),
        lambda: actions.patch(erin, OURS, {"name": CANARY}),
        lambda: actions.scale(erin, CANARY, 3),
        lambda: actions.pause(erin, CANARY),
        lambda: actions.resume(erin, CANARY),
        lambda: actions.rollback(erin, CANARY, 1),
        lambda: actions.delete(erin, CANARY),
        lambda: keys_actions.create(erin, CANARY, {"name": "mine"}),
        lambda: manifest_actions.plan(erin, [spec]),
        lambda: manifest_actions.apply(erin, [{**spec, "replicas": 3}]),
    ]
    for attempt in attempts:
        with pytest.raises((RefusalError, SpecErrors)) as caught:
            attempt()
        assert code(caught) in ("not_found", "name_taken", "fixed")
        assert "replicas" not in str(caught.value)
    after = Endpoint.objects.get(name=CANARY)
    assert (after.generation, after.spec) == (before.generation, before.spec)
    assert (after.team, after.deleted_at) == (two_teams.theirs, None)
    assert after.keys.count() == before.keys.count()


def test_manifest_with_one_foreign_object_changes_nothing(two_teams: Teams) -> None:
    mine = {**DATA, "name": OURS, "replicas": 3}
    with pytest.raises(SpecErrors):
        manifest_actions.apply(two_teams.erin, [mine, {**DATA, "name": CANARY}])
    assert Endpoint.objects.get(name=OURS).generation == 1


def test_rollback_keeps_the_team(two_teams: Teams) -> None:
    """A revision has no team: the owner of an endpoint is not part of its spec."""
    actions.scale(two_teams.erin, OURS, 2)
    Membership.objects.create(team=two_teams.theirs, user=two_teams.gina, role="operator")
    teams.move(two_teams.gina, OURS, "theirs")
    with pytest.raises(RefusalError):
        actions.rollback(two_teams.erin, OURS, 1)
    actions.rollback(two_teams.hugo, OURS, 1)
    assert team_of(OURS) == "theirs"


def test_permission_is_checked_again_under_the_row_lock(two_teams: Teams, monkeypatch: Any) -> None:
    """Moved away between the question and the change."""
    locked = actions.locked

    def moved(name: str) -> Endpoint:
        Endpoint.objects.filter(name=name).update(team=two_teams.theirs)
        return locked(name)

    monkeypatch.setattr(actions, "locked", moved)
    with pytest.raises(RefusalError):
        actions.scale(two_teams.erin, OURS, 3)
    assert Endpoint.objects.get(name=OURS).spec["replicas"] == 1


@pytest.mark.parametrize(
    ("namespaces", "cluster", "namespace", "fits"),
    [
        ([], "prod", "any", True),
        (["a"], "prod", "a", True),
        (["a"], "prod", "b", False),
        (["prod/a"], "prod", "a", True),
        (["prod/a"], "lab", "a", False),
    ],
)
def test_team_is_limited_to_its_namespaces(
    two_teams: Teams,
    monkeypatch: Any,
    namespaces: list[str],
    cluster: str,
    namespace: str,
    fits: bool,
) -> None:
    monkeypatch.setattr("console.clusters.selectors.namespace", lambda _, wanted: wanted)
    two_teams.ours.namespaces = namespaces
    two_teams.ours.save()
    endpoint = Endpoint.objects.get(name=OURS)
    endpoint.spec["placement"] = {"cluster": cluster, "namespace": namespace}
    Endpoint.objects.filter(name=OURS).update(spec=endpoint.spec, team=two_teams.theirs)
    Membership.objects.create(team=two_teams.theirs, user=two_teams.erin, role="operator")
    if fits:
        teams.move(two_teams.erin, OURS, "ours")
        return
    with pytest.raises(SpecErrors) as caught:
        teams.move(two_teams.erin, OURS, "ours")
    assert code(caught) == "not_of_the_team"
    assert ", ".join(namespaces) in caught.value.errors[0].remedy


def test_local_endpoints_ignore_namespaces(two_teams: Teams) -> None:
    two_teams.ours.namespaces = ["a"]
    two_teams.ours.save()
    assert actions.create(two_teams.erin, DATA).team == two_teams.ours


def test_object_belongs_to_the_team_of_its_namespace(two_teams: Teams) -> None:
    two_teams.ours.namespaces = ["prod/search"]
    two_teams.ours.save()

    def team(cluster: str, namespace: str) -> Team | None:
        return teams.team_of_new(OwningSystem(Owner(cluster, namespace, "x")), None)

    assert team("prod", "search") == two_teams.ours
    assert team("lab", "search") is None
    two_teams.theirs.namespaces = ["search"]
    two_teams.theirs.save()
    assert team("prod", "search") is None  # of two: without an owner until one is set


def bearer(user: User, **limits: Any) -> dict[str, str]:
    from console.accounts import credentials

    clear, prefix, digest = credentials.make_token()
    facts = {"role": "admin", "name": prefix, **limits}
    ApiToken.objects.create(user=user, prefix=prefix, sha256=digest, **facts)
    return {"authorization": f"Bearer {clear}"}


def test_by_rest(two_teams: Teams, client: Any) -> None:
    Membership.objects.create(team=two_teams.theirs, user=two_teams.erin, role="operator")
    headers = bearer(two_teams.erin)

    def post(path: str, data: Any) -> Any:
        return client.post(path, data, content_type="application/json", headers=headers)

    refused = post("/api/v1/endpoints/", DATA)
    assert (refused.status_code, refused.json()["field"]) == (400, "team")
    made = post("/api/v1/endpoints/", {**DATA, "team": "theirs"})
    assert (made.status_code, made.json()["team"]) == (201, "theirs")
    assert post("/api/v1/endpoints/", {**DATA, "team": [7]}).json()["code"] == "invalid"
    moved = post("/api/v1/endpoints/fresh/move/", {"team": "ours"})
    assert (moved.status_code, moved.json()["team"]) == (200, "ours")
    assert (
        post("/api/v1/endpoints/fresh/move/", {"team": "absent"}).json()["code"] == "unknown_team"
    )
    move = "/api/v1/endpoints/fresh/move/"
    assert post(move, {"team": None}).status_code == 403
    would = post(f"{move}?dry_run=true", {"team": "theirs"}).json()
    assert [(one["field"], one["before"], one["after"]) for one in would["changes"]] == [
        ("team", "ours", "theirs")
    ]
    assert team_of("fresh") == "ours"
    listed = client.get("/api/v1/endpoints/", headers=bearer(two_teams.hugo)).json()["results"]
    assert [one["name"] for one in listed] == [CANARY]


def test_by_page(two_teams: Teams, client: Any) -> None:
    Membership.objects.create(team=two_teams.theirs, user=two_teams.erin, role="operator")
    client.force_login(two_teams.erin)
    response = client.post(f"/endpoints/{OURS}/move/", {"team": "theirs"})
    assert (response.status_code, team_of(OURS)) == (302, "theirs")
    client.post(f"/endpoints/{OURS}/move/", {"team": ""})
    assert team_of(OURS) == "theirs"
