"""Permissions on custom boards, and audit events."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from console.audit.models import AuditEvent
from console.core.errors import Refused
from dashboards.custom_boards import actions, selectors
from dashboards.custom_boards.models import CustomBoard
from tests.support.people import Cast, cast
from tests.support.teams import CANARY, OURS, Teams, teams, their_endpoints

pytestmark = pytest.mark.django_db

TTFT = {"type": "panel", "board": "overview", "panel": "ttft"}
QUERY = {"type": "promql", "title": "Up", "query": "up"}
BOARD: dict[str, Any] = {"version": 1, "title": "Mine", "panels": [TTFT]}


@pytest.fixture
def people() -> Cast:
    return cast()


@pytest.fixture
def team_members() -> Teams:
    found = teams()
    their_endpoints(found)
    return found


def ids(board: CustomBoard) -> list[str]:
    return [panel["id"] for panel in CustomBoard.objects.get(pk=board.pk).panels]


def open_by(viewer: Any, board: CustomBoard) -> bool:
    try:
        return selectors.get_board(viewer, board.pk) == board
    except Refused as refused:
        assert refused.status_code == 404
        return False


def test_personal_board_is_private_until_shared(people: Cast, team_members: Teams) -> None:
    board = actions.create(team_members.frank, BOARD)
    others = (people.ada, team_members.erin, team_members.hugo)
    assert open_by(team_members.frank, board)
    assert not any(open_by(one, board) for one in others)
    actions.change_settings(team_members.frank, board.pk, "Mine", "user/frank", shared=True)
    assert all(open_by(one, board) for one in others)
    assert not open_by(team_members.nora, board), "an account without a role"
    assert board not in selectors.list_boards(people.ada)
    with pytest.raises(PermissionDenied):
        actions.remove_panel(people.ada, board.pk, "p1")


def test_team_board_is_edited_by_team_operators(people: Cast, team_members: Teams) -> None:
    board = actions.create(team_members.erin, BOARD, owner="team/ours")
    assert open_by(team_members.frank, board)
    assert open_by(people.charlie, board)
    assert not open_by(team_members.hugo, board)
    actions.resize_panel(people.alice, board.pk, "p1", "full")
    for reader in (team_members.frank, people.charlie):
        with pytest.raises(PermissionDenied):
            actions.resize_panel(reader, board.pk, "p1", "third")
    with pytest.raises(Refused) as refused:
        actions.resize_panel(team_members.hugo, board.pk, "p1", "third")
    assert refused.value.status_code == 404
    with pytest.raises(PermissionDenied):
        actions.create(team_members.frank, BOARD, owner="team/ours")


def test_board_of_another_team_cannot_be_created(team_members: Teams) -> None:
    for owner in ("team/theirs", "team/none", "user/gina", "x", 7):
        with pytest.raises(Refused) as refused:
            actions.create(team_members.erin, BOARD, owner=owner)
        assert refused.value.errors[0].field == "owner"
    with pytest.raises(PermissionDenied):
        actions.create(team_members.erin, BOARD, owner="console")


def test_panels_are_moved_resized_and_removed(people: Cast) -> None:
    board = actions.create(people.alice, {**BOARD, "panels": [TTFT, TTFT, TTFT]})
    actions.move_panel(people.alice, board.pk, "p1", 1)
    assert ids(board) == ["p2", "p1", "p3"]
    actions.move_panel(people.alice, board.pk, "p3", -1)
    assert ids(board) == ["p3", "p2", "p1"]
    actions.move_panel(people.alice, board.pk, "p3", 99)
    assert ids(board) == ["p2", "p1", "p3"]
    actions.remove_panel(people.alice, board.pk, "p1")
    board = actions.add_panel(people.alice, board.pk, TTFT)
    assert ids(board) == ["p2", "p3", "p1"]
    with pytest.raises(Refused) as refused:
        actions.move_panel(people.alice, board.pk, "p9", 0)
    assert refused.value.errors[0].value == "p9"


def test_change_based_on_an_older_board_is_rejected(people: Cast) -> None:
    board = actions.create(people.alice, BOARD)
    actions.resize_panel(people.alice, board.pk, "p1", "full")
    with pytest.raises(Refused) as refused:
        actions.replace_board(people.alice, board.pk, BOARD, expected_generation=1)
    assert refused.value.status_code == 409


def test_unchanged_board_leaves_no_audit_event(people: Cast) -> None:
    board = actions.create(people.alice, BOARD)
    events = AuditEvent.objects.count()
    assert actions.resize_panel(people.alice, board.pk, "p1", "half").generation == 1
    assert AuditEvent.objects.count() == events


def test_every_change_is_recorded_for_the_team_without_queries(
    team_members: Teams, people: Cast
) -> None:
    board = actions.create(people.alice, {**BOARD, "panels": [QUERY]}, owner="team/ours")
    actions.resize_panel(team_members.erin, board.pk, "p1", "third")
    actions.change_settings(people.alice, board.pk, "Other", "console", shared=True)
    actions.delete(people.alice, board.pk)
    events = AuditEvent.objects.filter(target=f"custom-board/{board.pk}").order_by("at", "pk")
    verbs = [event.verb.removeprefix("custom-board.") for event in events]
    assert verbs == ["create", "update", "update", "update", "delete"]
    assert events[1].changes == {"panels": [["p1: Up (half)"], ["p1: Up (third)"]]}
    assert events[1].team_id == team_members.ours.pk
    assert {events[2].team_id, events[3].team_id} == {team_members.ours.pk, None}
    assert all('"up"' not in str(event.changes) for event in events)


def test_query_panels_need_a_console_wide_role(team_members: Teams, people: Cast) -> None:
    with_query = {**BOARD, "panels": [{**QUERY, "id": "q"}]}
    for writer in (team_members.erin, people.charlie):
        with pytest.raises(Refused) as refused:
            actions.create(writer, with_query)
        assert refused.value.status_code == 403
        assert refused.value.errors[0].field == "query"
    board = actions.create(people.alice, with_query, owner="team/ours")
    hidden = selectors.export(team_members.erin, board)["panels"]
    assert hidden == [{"id": "q", "type": "hidden", "title": "Up", "width": "half"}]
    moved = {**BOARD, "panels": [TTFT, {**hidden[0], "width": "full"}]}
    board = actions.replace_board(team_members.erin, board.pk, moved)
    assert (board.panels[1]["query"], board.panels[1]["width"]) == ("up", "full")
    with pytest.raises(Refused):
        actions.change_panel(
            team_members.erin, board.pk, "q", {"query": f"up{{endpoint='{CANARY}'}}"}
        )


def test_hidden_panels_are_not_taken_over_by_a_new_owner(team_members: Teams, people: Cast) -> None:
    theirs = {**TTFT, "endpoint": CANARY}
    board = actions.create(people.alice, {**BOARD, "panels": [theirs]}, owner="team/ours")
    assert CANARY not in str(selectors.export(team_members.erin, board))
    with pytest.raises(Refused) as refused:
        actions.change_settings(team_members.erin, board.pk, "Mine", "user/erin", shared=False)
    assert refused.value.errors[0].code == "hidden_panels"
    actions.change_settings(people.alice, board.pk, "Mine", "user/alice", shared=True)
    assert CANARY not in str(selectors.export(team_members.erin, board))


def test_owner_exports_the_imported_board(team_members: Teams) -> None:
    """Also panels of an endpoint that does not exist here."""
    panels = [{**TTFT, "id": name, "endpoint": name} for name in (OURS, "elsewhere")]
    board = actions.create(team_members.erin, {**BOARD, "panels": panels})
    again = actions.create(team_members.erin, selectors.export(team_members.erin, board))
    assert selectors.export(team_members.erin, again) == selectors.export(team_members.erin, board)
    assert [panel["endpoint"] for panel in again.panels] == [OURS, "elsewhere"]


def test_team_token_has_no_personal_boards(people: Cast, team_members: Teams) -> None:
    board = actions.create(people.ada, BOARD)
    shared = actions.create(people.alice, BOARD, shared=True)
    people.ada.team_cap = team_members.ours.pk
    assert not open_by(people.ada, board)
    assert not open_by(people.ada, shared)
    assert not selectors.list_boards(people.ada).exists()


def test_read_only_token_changes_nothing(people: Cast) -> None:
    board = actions.create(people.ada, BOARD)
    people.ada.role_cap = "viewer"
    with pytest.raises(PermissionDenied):
        actions.delete(people.ada, board.pk)


def test_boards_have_limits(people: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_BOARDS", 1)
    monkeypatch.setattr(actions, "MAX_PANELS", 1)
    board = actions.create(people.alice, BOARD)
    for change in (
        lambda: actions.create(people.alice, BOARD),
        lambda: actions.add_panel(people.alice, board.pk, TTFT),
    ):
        with pytest.raises(Refused) as refused:
            change()
        assert refused.value.errors[0].code == "too_many"
