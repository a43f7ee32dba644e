"""Access pages by role."""

from __future__ import annotations

import pytest

from console.accounts.models import ApiToken, Membership, MembershipSource, Team, User
from console.people import token_actions
from tests.support.people import Cast, client_of
from tests.support.teams import Teams


def test_admin_creates_a_team_and_adds_members(teams: Teams, people: Cast) -> None:
    client = client_of(people.ada)
    refused = client.post("/access/teams/", {"name": "Ours", "namespaces": ""})
    assert refused.status_code == 409
    assert "Another team has this name" in refused.content.decode()
    wrong = client.post("/access/teams/", {"name": "Search", "namespaces": "Bad_Name"})
    assert (wrong.status_code, "Bad_Name" in wrong.content.decode()) == (400, True)
    made = client.post("/access/teams/", {"name": "Search", "namespaces": "a\nprod/b"})
    assert made.headers["Location"] == "/access/teams/search/"
    assert Team.objects.get(slug="search").namespaces == ["a", "prod/b"]
    member = {"username": "nora", "role": "operator"}
    page = client.post("/access/teams/search/members/", member, follow=True).content.decode()
    assert "nora now has the role operator in this team." in page
    absent = {"username": "nobody", "role": "operator"}
    page = client.post("/access/teams/search/members/", absent, follow=True).content.decode()
    assert "User nobody does not exist." in page
    changed = {"name": "Search", "description": "finds", "namespaces": ""}
    client.post("/access/teams/search/change/", changed)
    assert Team.objects.get(slug="search").namespaces == []


def test_members_have_pages(teams: Teams, people: Cast) -> None:
    users = User.objects.bulk_create(User(username=f"user-{n:02}") for n in range(60))
    Membership.objects.bulk_create(
        Membership(team=teams.ours, user=user, role="viewer") for user in users
    )
    client = client_of(people.ada)
    assert "user-59" not in client.get(f"/access/teams/{teams.ours.slug}/").text
    assert "user-59" in client.get(f"/access/teams/{teams.ours.slug}/?page=2").text


def test_deletion_needs_the_typed_name(teams: Teams, people: Cast) -> None:
    client = client_of(people.ada)
    assert client.post("/access/teams/ours/delete/", {"name": "our"}).status_code == 400
    assert client.post("/access/teams/ours/delete/", {"name": "ours"}).status_code == 302
    assert not Team.objects.filter(slug="ours").exists()


def test_team_admin_sees_forms_and_others_do_not(teams: Teams, people: Cast) -> None:
    gina = client_of(teams.gina).get("/access/teams/ours/").content.decode()
    assert "Add member" in gina
    assert "Delete team" not in gina
    frank = client_of(teams.frank).get("/access/teams/ours/").content.decode()
    assert "Add member" not in frank
    assert "Leave" in frank
    assert "Delete team" in client_of(people.ada).get("/access/teams/ours/").content.decode()
    assert client_of(teams.frank).get("/access/teams/theirs/").status_code == 404
    listed = client_of(teams.frank).get("/access/teams/").content.decode()
    assert "Ours" in listed
    assert "Theirs" not in listed


def test_member_can_leave_a_team(teams: Teams) -> None:
    client = client_of(teams.frank)
    response = client.post("/access/teams/ours/members/remove/", {"username": "frank"})
    assert response.headers["Location"] == "/access/teams/"
    assert client.get("/access/teams/").status_code == 403  # no right is left


def test_memberships_of_single_sign_on_have_no_form(teams: Teams) -> None:
    Membership.objects.filter(user=teams.erin).update(source=MembershipSource.OIDC)
    page = client_of(teams.gina).get("/access/teams/ours/").content.decode()
    assert "Single sign-on" in page
    assert "Role of erin here" not in page


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?q=ERI", {"erin"}),
        ("?role=operator", {"alice"}),
        ("?team=ours", {"erin", "frank", "gina"}),
        ("?state=deactivated", {"dora"}),
        ("?state=nothing", {"nora"}),
        ("?q=zzz", set()),
        ("?role=nonsense&team=nonsense&state=nonsense&page=x", set()),
    ],
)
def test_users_are_found(teams: Teams, people: Cast, query: str, names: set[str]) -> None:
    response = client_of(people.ada).get(f"/access/{query}")
    assert {user.username for user in response.context["page"]} == names


def test_admin_lists_and_revokes_all_tokens(teams: Teams, people: Cast) -> None:
    token, _ = token_actions.create_token(teams.erin, "ci", "operator", team="ours", days=30)
    old, _ = token_actions.create_token(people.alice, "old", "viewer")
    ApiToken.objects.filter(pk=old.pk).update(expires_at="2020-01-01T00:00:00Z")
    client = client_of(people.ada)
    html = client.get("/access/tokens/").content.decode()
    assert all(word in html for word in ("ci", "old", token.prefix, "Ours", "expired"))
    found = client.get("/access/tokens/?state=expired").context["page"]
    assert [one.name for one in found] == ["old"]
    client.post(f"/access/tokens/{token.pk}/revoke/")
    assert not ApiToken.objects.filter(pk=token.pk).exists()
    assert client_of(teams.gina).get("/access/tokens/").status_code == 403


def test_new_user_gets_a_hint(teams: Teams) -> None:
    html = client_of(teams.nora).get("/")
    assert html.status_code == 403
    assert "Ask an administrator for a console role" in html.content.decode()
    assert client_of(teams.nora).get("/profile/").status_code == 200


def test_profile_offers_only_grantable_roles(teams: Teams) -> None:
    form = client_of(teams.erin).get("/profile/").context["token_form"]
    assert [value for value, _ in form.fields["role"].choices] == ["viewer", "operator"]
    assert [value for value, _ in form.fields["team"].choices] == ["", "ours"]


def test_new_user_has_no_role_by_default(db: None) -> None:
    assert User.objects.create_user("fresh").role == "member"
