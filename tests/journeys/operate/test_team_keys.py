"""Key groups are visible only to users with access to all their endpoints."""

from __future__ import annotations

import pytest

from console.accounts.models import Role
from endpoints.actions import SYSTEM
from endpoints.keys import actions, selectors
from endpoints.models import KeyGroup
from endpoints.refusals import NotFoundError
from tests.support.people import client_of
from tests.support.teams import CANARY, OURS, Teams

MINE = {"name": "mine", "endpoints": [OURS]}


@pytest.fixture
def mixed(two_teams: Teams) -> KeyGroup:
    return actions.save_group(SYSTEM, None, {"name": "everything", "endpoints": [OURS, CANARY]})


def test_team_groups_only_its_own_endpoints(two_teams: Teams) -> None:
    actions.save_group(two_teams.erin, None, MINE)
    for stolen in ([CANARY], [OURS, CANARY]):
        with pytest.raises(NotFoundError):
            actions.save_group(two_teams.erin, None, {"name": "stolen", "endpoints": stolen})
    assert [group.name for group in selectors.groups(two_teams.erin)] == ["mine"]
    assert not selectors.groups(two_teams.hugo).exists()


def test_group_with_a_foreign_endpoint_is_404(two_teams: Teams, mixed: KeyGroup) -> None:
    made = actions.create_in_group(SYSTEM, str(mixed.pk), {"name": "master"})
    assert not selectors.groups(two_teams.erin).exists()
    assert not selectors.visible_keys(two_teams.erin).exists()
    acts = (
        lambda: actions.create_in_group(two_teams.erin, str(mixed.pk), {"name": "mine"}),
        lambda: actions.rotate(two_teams.erin, str(made.key.pk)),
        lambda: actions.revoke(two_teams.erin, str(made.key.pk)),
        lambda: actions.change(two_teams.erin, str(made.key.pk), {"pin": True}),
        lambda: actions.save_group(two_teams.erin, str(mixed.pk), MINE),
        lambda: actions.delete_group(two_teams.erin, str(mixed.pk)),
    )
    for act in acts:
        with pytest.raises(NotFoundError):
            act()
    assert client_of(two_teams.erin).get(f"/keys/groups/{mixed.pk}/").status_code == 404
    assert list(mixed.keys.values_list("name", "pin", "revoked_at")) == [("master", False, None)]


def test_member_of_both_teams_can_group_their_endpoints(two_teams: Teams, mixed: KeyGroup) -> None:
    two_teams.theirs.memberships.create(user=two_teams.erin, role=Role.OPERATOR)
    assert actions.create_in_group(two_teams.erin, str(mixed.pk), {"name": "mine"}).clear
