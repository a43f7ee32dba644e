"""Custom boards by viewer: which are listed, opened, changed, and which panels have content."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.urls import reverse

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import Somebody, allows, allows_in_any_team, team_ids_with_role
from console.core.errors import Problem, Refused
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit
from dashboards.custom_boards.documents import PANEL, PROMQL, BoardDocument, BoardPanel, read_stored
from dashboards.custom_boards.models import CustomBoard
from endpoints import teams


def list_boards(viewer: Somebody) -> QuerySet[CustomBoard]:
    """Return the viewer's boards, those of the viewer's teams and, with a console-wide role, those
    of all teams. Boards that others share are opened by their link only.
    """
    of_teams = team_ids_with_role(viewer, "viewer")
    owned = Q(user=None) if of_teams is None else Q(team__in=of_teams)
    if (account := get_account(viewer)) is not None:
        owned |= Q(user=account)
    rows = CustomBoard.objects.filter(owned).select_related("user", "team")
    return rows.order_by("title", "pk")


def get_board(viewer: Somebody, board_id: UUID | str) -> CustomBoard:
    """Return a listed or shared board; raise `Refused` (404)."""
    rows = CustomBoard.objects.select_related("user", "team")
    board = rows.filter(pk=board_id).first()
    if board is None or not _may_open(viewer, board):
        text, remedy = "This board does not exist or is not shared with you.", "List the boards."
        raise Refused(Problem("id", str(board_id), text, remedy, "not_found"), status_code=404)
    return board


def get_account(viewer: Somebody) -> User | None:
    """Return the owner of personal boards; None for the console itself and tokens of a team."""
    account = stored_actor(viewer)
    return account if account is not None and account.team_cap is None else None


def _may_open(viewer: Somebody, board: CustomBoard) -> bool:
    if board.user_id is not None:
        mine = get_account(viewer)
        if mine is not None and mine.pk == board.user_id:
            return True
    elif allows(viewer, "viewer", of=board):
        return True
    capped = isinstance(viewer, User) and viewer.team_cap is not None
    return board.shared and not capped and allows_in_any_team(viewer, "viewer")


def may_edit(viewer: Somebody, board: CustomBoard) -> bool:
    if board.user_id is None:
        return allows(viewer, "operator", of=board)
    mine = get_account(viewer)
    return mine is not None and mine.pk == board.user_id


def may_view_queries(viewer: Somebody) -> bool:
    """A query may select the series of any endpoint, so it takes a role for all of them."""
    return allows(viewer, "viewer")


def may_write_queries(actor: Somebody) -> bool:
    return allows(actor, "operator")


def read_panels(
    viewer: Somebody, board: CustomBoard, endpoints: Collection[str] | None = None
) -> tuple[BoardPanel, ...]:
    """Return the panels, without the content of those that the viewer may not see; the owner of a
    personal board reads all that was written there. `endpoints`: the visible ones, if known.
    """
    panels = read_stored(board.panels)
    mine = get_account(viewer)
    if allows(viewer, "viewer") or (mine is not None and mine.pk == board.user_id):
        return panels
    visible = list_visible_endpoints(viewer, panels) if endpoints is None else endpoints
    return tuple(panel if can_see(viewer, panel, visible) else panel.hide() for panel in panels)


def list_visible_endpoints(viewer: Somebody, panels: Sequence[BoardPanel]) -> Collection[str]:
    return teams.names(viewer) if any(panel.endpoint for panel in panels) else ()


def can_see(viewer: Somebody, panel: BoardPanel, endpoints: Collection[str]) -> bool:
    if panel.type == PROMQL:
        return may_view_queries(viewer)
    return panel.type == PANEL and (not panel.endpoint or panel.endpoint in endpoints)


def export(
    viewer: Somebody, board: CustomBoard, endpoints: Collection[str] | None = None
) -> dict[str, Any]:
    return BoardDocument(board.title, read_panels(viewer, board, endpoints)).export()


def list_editable(viewer: Somebody) -> list[CustomBoard]:
    """Return the boards the viewer may change, the latest changed first."""
    rows = list_boards(viewer).order_by("-changed_at", "pk")
    return [board for board in rows if may_edit(viewer, board)]


def find(viewer: Any, text: str) -> Sequence[Hit]:
    rows = list_boards(viewer).filter(title__icontains=text)[:MAX_HITS_PER_FINDER]
    return [
        Hit(
            "custom board",
            board.title,
            reverse("custom_boards:board", args=[board.pk]),
            "layout-dashboard",
            board.owner_label,
        )
        for board in rows
    ]


def existing(ids: Collection[str], viewer: Any) -> Collection[str]:
    try:
        rows = list_boards(viewer).filter(pk__in=ids)
    except ValidationError:  # not an id of this console
        return ()
    return {str(key) for key in rows.values_list("pk", flat=True)}
