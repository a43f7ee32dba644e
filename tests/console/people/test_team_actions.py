"""Teams, members and tokens: rejected changes, and no grants above the own role."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.utils import timezone

from console.accounts.models import ApiToken, Membership, MembershipSource, Team, User
from console.accounts.permissions import allows, allows_in_any_team, filter_visible, get_role_on
from console.audit.models import AuditEvent
from console.core.errors import Refused
from console.people import actions, team_actions, token_actions
from endpoints.models import Endpoint
from tests.support.people import Cast
from tests.support.teams import CANARY, OURS, Teams


def code(caught: Any) -> str:
    return str(caught.value.errors[0].code)


def limited(user: User, role: str, team: Team | None = None) -> User:
    """The user as a token of theirs acts."""
    found = User.objects.get(pk=user.pk)
    found.role_cap, found.team_cap = role, team.pk if team else None
    return found


def test_role_order_globally_and_in_a_team(teams: Teams, people: Cast) -> None:
    assert [get_role_on(user, teams.ours) for user in (teams.erin, teams.hugo, people.alice)] == [
        "operator",
        "member",
        "operator",
    ]
    assert allows(teams.gina, "admin", of=teams.ours)
    assert not allows(teams.gina, "viewer", of=teams.theirs)
    assert not allows(teams.gina, "viewer")
    assert allows_in_any_team(teams.gina, "admin")
    assert not allows_in_any_team(teams.nora, "viewer")
    # An object without an owner needs a role in every team.
    assert not allows(teams.gina, "viewer", of=Endpoint())
    assert allows(people.charlie, "viewer", of=Endpoint())


def test_higher_of_both_roles_wins(teams: Teams, people: Cast) -> None:
    team_actions.set_member(people.ada, "ours", "charlie", "operator")
    assert get_role_on(User.objects.get(username="charlie"), teams.ours) == "operator"
    team_actions.set_member(people.ada, "ours", "alice", "viewer")
    assert get_role_on(User.objects.get(username="alice"), teams.ours) == "operator"


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_token_limits_and_grants_nothing(teams: Teams, people: Cast, role: str) -> None:
    ada = limited(people.ada, role, teams.ours)
    assert get_role_on(ada, teams.ours) == role
    assert get_role_on(ada, teams.theirs) == "member"
    assert not allows(ada, "viewer")
    frank = limited(teams.frank, role)
    assert get_role_on(frank, teams.ours) == "viewer"
    assert not allows(frank, "viewer")


def test_inactive_user_has_no_permission(teams: Teams) -> None:
    teams.erin.is_active = False
    assert not allows(teams.erin, "viewer", of=teams.ours)
    assert not allows_in_any_team(teams.erin, "viewer")
    assert not filter_visible(Team.objects.all(), teams.erin, "pk").exists()


def test_only_console_admins_create_and_change_teams(teams: Teams, people: Cast) -> None:
    for who in (people.alice, teams.gina, teams.nora):
        for call in (
            lambda who=who: team_actions.create(who, {"name": "Mine"}),
            lambda who=who: team_actions.change(who, "ours", {"namespaces": ["kube-system"]}),
            lambda who=who: team_actions.delete(who, "ours"),
        ):
            with pytest.raises(PermissionDenied):
                call()
    assert set(Team.objects.values_list("slug", flat=True)) == {"ours", "theirs"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, "required"),
        ({"name": "  "}, "required"),
        ({"name": "x" * 61}, "max_length"),
        ({"name": 7}, "invalid"),
        ({"name": "ours"}, "taken"),
        ({"name": "Other", "slug": "ours"}, "taken"),
        ({"name": "Other", "slug": "-x"}, "invalid"),
        ({"name": "日本"}, "required"),
        ({"name": "Other", "namespaces": "a"}, "type"),
        ({"name": "Other", "namespaces": ["A b"]}, "invalid"),
        ({"name": "Other", "namespaces": ["a/b/c"]}, "invalid"),
        ({"name": "Other", "role": "admin"}, "unknown_field"),
        ([], "type"),
    ],
)
def test_team_error_has_a_code(teams: Teams, people: Cast, data: Any, expected: str) -> None:
    with pytest.raises(Refused) as caught:
        team_actions.create(people.ada, data)
    assert code(caught) == expected
    assert all(error.remedy for error in caught.value.errors)


def test_team_lifecycle(people: Cast) -> None:
    team = team_actions.create(people.ada, {"name": "Search Team", "namespaces": ["b", "a", "b"]})
    assert (team.slug, team.namespaces) == ("search-team", ["a", "b"])
    team_actions.change(people.ada, "search-team", {"description": "finds"})
    team_actions.delete(people.ada, "search-team")
    verbs = AuditEvent.objects.filter(target="team/search-team").order_by("at")
    assert [event.verb for event in verbs] == ["team.create", "team.update", "team.delete"]
    assert verbs[1].changes == {"description": ["", "finds"]}


def test_slug_is_immutable(teams: Teams, people: Cast) -> None:
    with pytest.raises(Refused) as caught:
        team_actions.change(people.ada, "ours", {"slug": "new"})
    assert code(caught) == "fixed"


def test_team_with_endpoints_is_not_deleted(two_teams: Teams, people: Cast) -> None:
    with pytest.raises(Refused, match=f"endpoint {OURS}") as caught:
        team_actions.delete(people.ada, "ours")
    assert code(caught) == "in_use"


def test_team_admin_adds_and_removes_members(teams: Teams) -> None:
    team_actions.set_member(teams.gina, "ours", "nora", "admin")
    assert allows(User.objects.get(username="nora"), "admin", of=teams.ours)
    team_actions.remove_member(teams.gina, "ours", "nora")
    assert not allows_in_any_team(User.objects.get(username="nora"), "viewer")
    events = AuditEvent.objects.filter(target="team/ours/member/nora").order_by("at")
    assert [(one.verb, one.changes["role"], one.team) for one in events] == [
        ("team.member", [None, "admin"], teams.ours),
        ("team.leave", ["admin", None], teams.ours),
    ]


def test_nobody_grants_a_role_above_their_own(teams: Teams, people: Cast) -> None:
    """Each of these would be a way up."""
    attempts = [
        lambda: team_actions.set_member(teams.gina, "theirs", "gina", "viewer"),
        lambda: team_actions.set_member(teams.erin, "ours", "erin", "admin"),
        lambda: team_actions.set_member(people.alice, "ours", "alice", "admin"),
        lambda: team_actions.remove_member(teams.hugo, "ours", "erin"),
        lambda: actions.set_role(teams.gina, teams.gina, "admin"),
        lambda: actions.create_user(teams.gina, "second", "admin"),
        lambda: actions.reset_password(teams.gina, people.ada),
        lambda: actions.set_active(teams.gina, people.ada, False),
        # By a token of an admin which may less.
        lambda: actions.set_role(limited(people.ada, "operator"), teams.erin, "admin"),
        lambda: actions.set_role(limited(people.ada, "admin", teams.ours), teams.erin, "admin"),
        lambda: team_actions.set_member(
            limited(people.ada, "admin", teams.theirs), "ours", "erin", "admin"
        ),
        lambda: team_actions.set_member(limited(teams.gina, "operator"), "ours", "erin", "admin"),
    ]
    before = sorted(Membership.objects.values_list("team__slug", "user__username", "role"))
    for attempt in attempts:
        with pytest.raises(PermissionDenied):
            attempt()
    assert sorted(Membership.objects.values_list("team__slug", "user__username", "role")) == before
    assert User.objects.get(username="gina").role == "member"


def test_single_sign_on_membership_is_not_changed_here(teams: Teams) -> None:
    Membership.objects.filter(user=teams.erin).update(source=MembershipSource.OIDC)
    for attempt in (
        lambda: team_actions.set_member(teams.gina, "ours", "erin", "admin"),
        lambda: team_actions.remove_member(teams.gina, "ours", "erin"),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert code(caught) == "from_sign_on"


def test_members_leave_a_team_but_tokens_cannot(teams: Teams) -> None:
    with pytest.raises(PermissionDenied):
        team_actions.remove_member(limited(teams.frank, "viewer"), "ours", "frank")
    team_actions.remove_member(teams.frank, "ours", "frank")
    assert not allows_in_any_team(teams.frank, "viewer")


def test_token_never_exceeds_its_creator(teams: Teams, people: Cast) -> None:
    mine = ApiToken.objects
    soon = timezone.now() + timedelta(days=1)
    short = limited(people.ada, "admin")
    short.expires_cap = soon
    attempts: list[tuple[User, dict[str, Any]]] = [
        (teams.erin, {"role": "admin"}),
        (teams.erin, {"role": "viewer", "team": "theirs"}),
        (teams.erin, {"role": "member"}),
        (teams.frank, {"role": "operator", "team": "ours"}),
        (people.charlie, {"role": "operator"}),
        (limited(people.ada, "viewer"), {"role": "admin"}),
        (limited(people.ada, "admin", teams.ours), {"role": "viewer"}),
        (limited(people.ada, "admin", teams.ours), {"role": "viewer", "team": "theirs"}),
        (short, {"role": "viewer"}),
        (short, {"role": "viewer", "days": 30}),
    ]
    for who, facts in attempts:
        with pytest.raises(ValidationError):
            token_actions.create_token(who, "t", **facts)
    assert not mine.exists()
    token, _ = token_actions.create_token(teams.erin, "t", "operator", team="ours")
    assert (token.role, token.team) == ("operator", teams.ours)


def test_user_without_a_role_creates_no_token(teams: Teams) -> None:
    with pytest.raises(PermissionDenied):
        token_actions.create_token(teams.nora, "t", "viewer")


def test_token_is_deleted_with_its_team(teams: Teams, people: Cast) -> None:
    """One without a team could do more."""
    token_actions.create_token(teams.erin, "t", "operator", team="ours")
    team_actions.delete(people.ada, "ours")
    assert not ApiToken.objects.exists()


def test_token_loses_permissions_with_its_user(two_teams: Teams, client: Any) -> None:
    _, clear = token_actions.create_token(two_teams.erin, "t", "operator")
    headers = {"authorization": f"Bearer {clear}"}
    url = f"/api/v1/endpoints/{OURS}/"
    assert client.get(url, headers=headers).status_code == 200
    team_actions.remove_member(two_teams.gina, "ours", "erin")
    assert client.get(url, headers=headers).status_code == 401


def test_audit_log_records_the_team(two_teams: Teams, people: Cast) -> None:
    from endpoints import actions as endpoint_actions

    endpoint_actions.scale(two_teams.erin, OURS, 2)
    endpoint_actions.scale(people.ada, CANARY, 2)
    from console.audit import selectors as audit

    assert {event.target for event in audit.list_events(viewer=two_teams.frank)} == {
        f"endpoint/{OURS}"
    }
    assert {event.actor_name for event in audit.list_events(viewer=two_teams.hugo)} == {"ada"}
    assert not audit.list_events(viewer=two_teams.nora).exists()
    seen = {event.target for event in audit.list_events(viewer=people.charlie)}
    assert {f"endpoint/{OURS}", f"endpoint/{CANARY}"} <= seen
