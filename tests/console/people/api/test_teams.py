"""REST of users, teams, tokens and the audit log."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.credentials import make_system_user
from console.accounts.models import ApiToken, Team, User
from console.audit.models import AuditEvent
from console.people import token_actions
from tests.support.people import Cast
from tests.support.teams import CANARY, OURS, Teams


def api(user: User) -> APIClient:
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(user)
    return client


def test_people(people: Cast) -> None:
    ada = api(people.ada)
    assert ada.post("/api/v1/users/", {"username": "..", "role": "viewer"}).status_code == 400
    made = ada.post("/api/v1/users/", {"username": "erin", "role": "operator"})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    assert User.objects.get(username="erin").check_password(made.json()["password"])
    read = ada.get("/api/v1/users/erin/")
    assert (read.json()["role"], "password" in read.json()) == ("operator", False)
    assert Client().login(username="erin", password=made.json()["password"])
    assert ada.get("/api/v1/users/erin/").headers["ETag"] != read.headers["ETag"]
    etag = made.headers["ETag"]
    changed = ada.patch("/api/v1/users/erin/", {"role": "viewer"}, headers={"If-Match": etag})
    assert changed.json()["role"] == "viewer", "a sign-on is no change"
    for earlier in (etag, read.headers["ETag"]):
        match = {"If-Match": earlier}
        stale = ada.patch("/api/v1/users/erin/", {"role": "admin"}, headers=match)
        assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert ada.patch("/api/v1/users/erin/", {"active": False}).json()["active"] is False
    assert ada.post("/api/v1/users/erin/password/").json()["password"]
    listed = ada.get("/api/v1/users/?active=false").json()["results"]
    assert {one["username"] for one in listed} == {"dora", "erin"}


@pytest.mark.parametrize(
    ("path", "data", "status", "field"),
    [
        ("users/ada/", {"role": "viewer"}, 400, None),  # the only admin
        ("users/ada/", {"active": False}, 400, None),  # oneself
        ("users/alice/", {"role": "emperor"}, 400, "role"),
        ("users/alice/", {"role": 7}, 400, "role"),
        ("users/alice/", {"active": "perhaps"}, 400, "active"),
        ("users/alice/", {"is_superuser": True}, 400, "is_superuser"),
        ("users/nobody/", {"role": "admin"}, 404, None),
    ],
)
def test_invalid_change_of_users_is_rejected(
    people: Cast, path: str, data: Any, status: int, field: str | None
) -> None:
    answer = api(people.ada).patch(f"/api/v1/{path}", data)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert User.objects.get(username="ada").role == "admin"


def test_partially_rejected_change_changes_nothing(people: Cast) -> None:
    api(people.ada).patch("/api/v1/users/alice/", {"role": "viewer", "active": []})
    assert User.objects.get(username="alice").role == "operator"


def test_users_need_an_admin_and_teams_a_membership(teams: Teams, people: Cast) -> None:
    for user in (people.alice, teams.gina, teams.nora):
        client = api(user)
        assert client.get("/api/v1/users/").status_code == 403
        assert client.post("/api/v1/users/", {"username": "x", "role": "admin"}).status_code == 403
        assert client.patch("/api/v1/users/ada/", {"active": False}).status_code == 403
        assert client.post("/api/v1/teams/", {"name": "x"}).status_code == 403
    gina = api(teams.gina)
    assert [one["slug"] for one in gina.get("/api/v1/teams/").json()["results"]] == ["ours"]
    assert gina.get("/api/v1/teams/theirs/").status_code == 404
    assert gina.get("/api/v1/teams/theirs/members/").status_code == 404
    assert gina.put("/api/v1/teams/theirs/members/gina/", {"role": "admin"}).status_code == 404
    assert len(api(people.charlie).get("/api/v1/teams/").json()["results"]) == 2


def test_teams(teams: Teams, people: Cast) -> None:
    ada = api(people.ada)
    made = ada.post("/api/v1/teams/", {"name": "Search", "namespaces": ["a"]})
    assert (made.status_code, made.json()["slug"]) == (201, "search")
    again = ada.post("/api/v1/teams/", {"name": "Search"})
    assert (again.status_code, again.json()["code"]) == (409, "taken")
    changed = ada.patch("/api/v1/teams/search/", {"namespaces": []})
    assert changed.json()["namespaces"] == []
    put = ada.put("/api/v1/teams/search/members/nora/", {"role": "viewer"})
    assert (put.status_code, put.json()["role"]) == (200, "viewer")
    assert ada.get("/api/v1/teams/search/").json()["people"] == 1
    assert ada.put("/api/v1/teams/search/members/absent/", {"role": "viewer"}).status_code == 404
    assert ada.put("/api/v1/teams/search/members/nora/", {}).json()["code"] == "required"
    assert ada.delete("/api/v1/teams/search/members/nora/").status_code == 204
    assert ada.delete("/api/v1/teams/search/").status_code == 204
    assert not Team.objects.filter(slug="search").exists()


def test_team_admin_manages_its_members(teams: Teams) -> None:
    gina = api(teams.gina)
    assert gina.put("/api/v1/teams/ours/members/nora/", {"role": "operator"}).status_code == 200
    names = [one["username"] for one in gina.get("/api/v1/teams/ours/members/").json()["results"]]
    assert names == ["erin", "frank", "gina", "nora"]
    assert (
        api(teams.erin).put("/api/v1/teams/ours/members/erin/", {"role": "admin"}).status_code
        == 403
    )


def test_tokens_are_private_except_for_admins(teams: Teams, people: Cast) -> None:
    erin = api(teams.erin)
    made = erin.post(
        "/api/v1/tokens/", {"name": "ci", "role": "operator", "team": "ours", "days": 7}
    )
    assert made.status_code == 201
    assert made.json()["token"].startswith("emb_")
    shown = erin.get("/api/v1/tokens/").json()["results"]
    assert [(one["name"], one["team"], "token" in one) for one in shown] == [("ci", "ours", False)]
    pk = shown[0]["id"]
    assert api(teams.frank).get("/api/v1/tokens/").json()["results"] == []
    assert api(teams.frank).delete(f"/api/v1/tokens/{pk}/").status_code == 404
    larger = erin.post("/api/v1/tokens/", {"name": "up", "role": "admin"})
    assert (larger.status_code, larger.json()["field"]) == (400, "role")
    other = erin.post("/api/v1/tokens/", {"name": "x", "role": "viewer", "user": "ada"})
    assert (other.status_code, other.json()["code"]) == (400, "not_yours")
    ApiToken.objects.update(last_used_at=timezone.now())
    match = {"If-Match": made.headers["ETag"]}
    assert api(people.ada).delete(f"/api/v1/tokens/{pk}/", headers=match).status_code == 204
    assert not ApiToken.objects.exists()


def test_local_command_creates_a_token_for_another_user(teams: Teams) -> None:
    made = api(make_system_user()).post(
        "/api/v1/tokens/", {"name": "ci", "role": "viewer", "user": "erin"}
    )
    assert (made.status_code, made.json()["user"]) == (201, "erin")
    assert AuditEvent.objects.get(verb="token.create").actor_name == "system"
    refused = api(make_system_user()).post(
        "/api/v1/tokens/", {"name": "x", "role": "admin", "user": "erin"}
    )
    assert refused.json()["field"] == "role"


def test_team_token_finds_no_other_teams(teams: Teams, client: Any) -> None:
    _, clear = token_actions.create_token(teams.erin, "one", "operator", team="ours")
    token_actions.create_token(teams.erin, "all", "operator")
    headers = {"authorization": f"Bearer {clear}"}
    listed = client.get("/api/v1/tokens/", headers=headers).json()["results"]
    assert [one["name"] for one in listed] == ["one"]


def test_audit_log_is_visible_to_those_concerned(two_teams: Teams, people: Cast) -> None:
    from endpoints import actions

    actions.scale(people.ada, OURS, 2)
    actions.scale(people.ada, CANARY, 2)
    rows = api(two_teams.frank).get("/api/v1/audit/").json()["results"]
    assert [(one["target"], one["team"]) for one in rows] == [(f"endpoint/{OURS}", "ours")]
    every = (
        api(people.charlie).get("/api/v1/audit/?verb=endpoint.scale&actor=ada").json()["results"]
    )
    assert {one["target"] for one in every} == {f"endpoint/{OURS}", f"endpoint/{CANARY}"}
    later = api(people.ada).get("/api/v1/audit/?since=2100-01-01T00:00:00Z").json()["results"]
    assert later == []
    wrong = api(people.ada).get("/api/v1/audit/?since=yesterday")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_moment")
