"""Change custom boards: permission, validation, one transaction, audit event.

A personal board is changed by its user, a team's by its operators. Only a user with the operator
role for all endpoints writes queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from console.accounts import selectors as accounts
from console.accounts.gate import OwnedObject
from console.accounts.models import Team, User
from console.accounts.permissions import RANK, allows, require, require_in_any_team
from console.audit.record import diff, record
from console.core.errors import Problem, Refused, expect_generation
from dashboards.boards.panels.declarations import DEFAULT_RANGE
from dashboards.custom_boards import documents, selectors
from dashboards.custom_boards.documents import (
    HIDDEN,
    MAX_PANELS,
    PROMQL,
    WIDTHS,
    BoardDocument,
    BoardPanel,
    parse_board,
    parse_panel,
)
from dashboards.custom_boards.models import CustomBoard
from dashboards.custom_boards.query_panels import fill_in
from dashboards.prometheus.http.user_query import MOST_SERIES, check_series
from dashboards.prometheus.sources import selectors as connections

CONSOLE = "console"
MINE = ""
MAX_BOARDS = 200  # of one owner
_OWNERS = 'Send "user/NAME" with your own name, "team/SLUG" of a team of yours, or "console".'
_NO_QUERIES = "Writing PromQL panels requires the operator role for all endpoints."
Panels = tuple[BoardPanel, ...]


def create(actor: Any, data: Mapping[str, Any], *, owner: Any = MINE, shared: Any = False) -> Any:
    """Create a board from its document. `owner` "" is the actor, or the console itself."""
    document = parse_board(data)
    board = CustomBoard(title=document.title, shared=_parse_flag(shared))
    board.user, board.team = _parse_owner(actor, owner)
    _require_write(actor, board)
    _check_queries(actor, (), document.panels)
    _check_series((), document.panels)
    same = CustomBoard.objects.filter(user=board.user, team=board.team)
    if same.count() >= MAX_BOARDS:
        text, remedy = f"This owner has {MAX_BOARDS} boards.", "Delete a board first."
        raise Refused(Problem("owner", board.owner, text, remedy, "too_many"), status_code=409)
    with transaction.atomic():
        board.panels = [panel.document() for panel in document.panels]
        board.save()
        _record(actor, "create", board, {})
    return board


def replace_board(
    actor: Any,
    board_id: UUID,
    data: Mapping[str, Any],
    *,
    owner: Any = None,
    shared: Any = None,
    expected_generation: int | None = None,
) -> CustomBoard:
    """Replace title and panels; `owner` and `shared` None keep their values."""

    def change(board: CustomBoard) -> BoardDocument:
        expect_generation("The board", board.generation, expected_generation)
        stored = documents.read_stored(board.panels)
        document = parse_board(data, stored)
        _check_queries(actor, stored, document.panels)
        if shared is not None:
            board.shared = _parse_flag(shared)
        if owner is not None and owner != board.owner:
            _require_whole_view(actor, board, owner)
            board.user, board.team = _parse_owner(actor, owner)
            _require_write(actor, board)
        return document

    return _change(actor, board_id, change)


def change_settings(
    actor: Any, board_id: UUID, title: Any, owner: Any, *, shared: bool
) -> CustomBoard:
    board = selectors.get_board(actor, board_id)
    data = {**selectors.export(actor, board), "title": title}
    return replace_board(actor, board_id, data, owner=owner, shared=shared)


def delete(actor: Any, board_id: UUID, *, expected_generation: int | None = None) -> None:
    with transaction.atomic():
        board = _lock(actor, board_id)
        expect_generation("The board", board.generation, expected_generation)
        record(actor, "delete", _target(board), diff(_facts(board), {}), of=_owned(board))
        board.delete()


def add_panel(actor: Any, board_id: UUID, data: Mapping[str, Any]) -> CustomBoard:
    """Append a panel; its id is chosen here."""

    def add(panels: Panels) -> Panels:
        made = parse_panel({**data, "id": documents.make_id({panel.id for panel in panels})})
        if len(panels) >= MAX_PANELS:
            text, remedy = f"A board has at most {MAX_PANELS} panels.", "Remove a panel first."
            raise Refused(Problem("to", None, text, remedy, "too_many"), status_code=409)
        return (*panels, made)

    return _change_panels(actor, board_id, add)


def change_panel(actor: Any, board_id: UUID, panel: str, data: Mapping[str, Any]) -> CustomBoard:
    """Change the fields of a panel."""

    def change(panels: Panels) -> Panels:
        index = _find(panels, panel)
        made = parse_panel({**panels[index].document(), **data})
        return (*panels[:index], made, *panels[index + 1 :])

    return _change_panels(actor, board_id, change)


def resize_panel(actor: Any, board_id: UUID, panel: str, width: str) -> CustomBoard:
    if width not in WIDTHS:
        remedy = f"Choose one of {', '.join(WIDTHS)}."
        raise Refused(Problem("width", width[:80], "Unknown width.", remedy, "invalid"))

    def resize(panels: Panels) -> Panels:
        index = _find(panels, panel)
        return (*panels[:index], replace(panels[index], width=width), *panels[index + 1 :])

    return _change_panels(actor, board_id, resize)


def move_panel(actor: Any, board_id: UUID, panel: str, to: int) -> CustomBoard:
    """Move a panel to a place, counted from 0 without it; out of range is the nearest end."""

    def move(panels: Panels) -> Panels:
        index = _find(panels, panel)
        others = [panel for place, panel in enumerate(panels) if place != index]
        others.insert(max(0, to), panels[index])
        return tuple(others)

    return _change_panels(actor, board_id, move)


def remove_panel(actor: Any, board_id: UUID, panel: str) -> CustomBoard:
    def remove(panels: Panels) -> Panels:
        index = _find(panels, panel)
        return panels[:index] + panels[index + 1 :]

    return _change_panels(actor, board_id, remove)


def _change_panels(actor: Any, board_id: UUID, change: Callable[[Panels], Panels]) -> CustomBoard:
    def apply(board: CustomBoard) -> BoardDocument:
        stored = documents.read_stored(board.panels)
        panels = change(stored)
        _check_queries(actor, stored, panels)
        return BoardDocument(board.title, panels)

    return _change(actor, board_id, apply)


def _change(
    actor: Any, board_id: UUID, change: Callable[[CustomBoard], BoardDocument]
) -> CustomBoard:
    there = selectors.get_board(actor, board_id)
    _require_write(actor, there)
    stored = documents.read_stored(there.panels)
    _check_series(stored, change(there).panels)
    with transaction.atomic():
        board = _lock(actor, board_id)
        before, owner, content = _facts(board), _owned(board), (board.title, list(board.panels))
        document = change(board)
        board.title = document.title
        board.panels = [panel.document() for panel in document.panels]
        if (board.title, board.panels) == content and _facts(board) == before:
            return board
        board.generation += 1
        board.changed_at = timezone.now()
        board.save()
        _record(actor, "update", board, before)
        if _owned(board) != owner:  # recorded for both teams
            changes = diff(before, _facts(board))
            record(actor, "update", _target(board), changes, board.title, of=owner)
    return board


def _lock(actor: Any, board_id: UUID) -> CustomBoard:
    """Return the board, locked; the caller has a transaction."""
    CustomBoard.objects.select_for_update(no_key=True).filter(pk=board_id).values_list("pk").first()
    board = selectors.get_board(actor, board_id)
    _require_write(actor, board)
    return board


def _require_write(actor: Any, board: CustomBoard) -> None:
    cap = actor.role_cap if isinstance(actor, User) else None
    if cap is not None and RANK[cap] < RANK["operator"]:
        raise PermissionDenied("This token reads only. Use one with the operator role.")
    if board.user_id is None:
        require(actor, "operator", of=board)
        return
    require_in_any_team(actor, "viewer")
    if not selectors.may_edit(actor, board):
        raise PermissionDenied("Only its owner changes a personal board. Import a copy of it.")


def _require_whole_view(actor: Any, board: CustomBoard, owner: Any) -> None:
    """Raise if a panel is hidden from the viewer: the new owner would see it."""
    if any(panel.type == HIDDEN for panel in selectors.read_panels(actor, board)):
        text = "The board has panels whose content is hidden from you."
        remedy = "Remove them before you change the owner."
        raise Refused(Problem("owner", owner, text, remedy, "hidden_panels"), status_code=403)


def _check_queries(actor: Any, before: Sequence[BoardPanel], after: Sequence[BoardPanel]) -> None:
    """Require the right to write queries, unless existing ones are moved, resized or removed."""
    for field, panel in _new_queries(before, after):
        if not selectors.may_write_queries(actor):
            remedy = "Ask an administrator for the role, or pin a panel of a built-in board."
            problem = Problem(field, panel.query[:80], _NO_QUERIES, remedy, "not_allowed")
            raise Refused(problem, status_code=403)


def _check_series(before: Sequence[BoardPanel], after: Sequence[BoardPanel]) -> None:
    """Raise `Refused` for queries that Prometheus refuses. Without Prometheus they are saved; what
    is shown is bounded. Not within a transaction, since Prometheus may take seconds.
    """
    for field, panel in _new_queries(before, after):
        try:
            query = fill_in(panel.query, DEFAULT_RANGE)
            check_series(connections.fleet(), query, field, MOST_SERIES, " in a panel")
        except Refused as refusal:
            if refusal.errors[0].code != "not_checked":
                raise
            return


def _new_queries(
    before: Sequence[BoardPanel], after: Sequence[BoardPanel]
) -> Iterator[tuple[str, BoardPanel]]:
    """Yield the queries that `before` has not, with their fields."""
    last_queries = {panel.id: (panel.query, panel.unit, panel.legend) for panel in before}
    for place, panel in enumerate(after):
        written = (panel.query, panel.unit, panel.legend)
        if panel.type == PROMQL and last_queries.get(panel.id) != written:
            yield f"panels[{place}].query" if len(after) > 1 else "query", panel


def _parse_owner(actor: Any, given: Any) -> tuple[User | None, Team | None]:
    account = selectors.get_account(actor)
    if given == MINE and account is None:
        given = CONSOLE
    if given == CONSOLE:
        return None, None
    kind, _, name = given.partition("/") if isinstance(given, str) else ("", "", "")
    if account is not None and given in (MINE, f"user/{account.username}"):
        return account, None
    team = accounts.team(name) if kind == "team" else None
    if team is not None and allows(actor, "viewer", of=team):
        return None, team
    excerpt = given[:80] if isinstance(given, str) else None
    raise Refused(Problem("owner", excerpt, "Unknown owner.", _OWNERS, "unknown"))


def _parse_flag(given: Any) -> bool:
    if not isinstance(given, bool):
        raise Refused(Problem("shared", None, "Not a boolean.", "Send true or false.", "type"))
    return given


def _find(panels: Panels, wanted: str) -> int:
    for place, panel in enumerate(panels):
        if panel.id == wanted:
            return place
    text, remedy = "This board has no such panel.", "Reload the board."
    raise Refused(Problem("panel", wanted[:80], text, remedy, "not_found"), status_code=404)


def _facts(board: CustomBoard) -> dict[str, Any]:
    """Return the audit record, without queries and endpoints, which not every reader may see."""
    names = [
        f"{panel['id']}: {panel['title'] or panel.get('panel', '')} ({panel['width']})"
        for panel in board.panels
    ]
    return {"title": board.title, "owner": board.owner, "shared": board.shared, "panels": names}


def _record(actor: Any, verb: str, board: CustomBoard, before: Mapping[str, Any]) -> None:
    changes = diff(before, _facts(board))
    record(actor, verb, _target(board), changes, board.title, of=_owned(board))


def _target(board: CustomBoard) -> str:
    return f"custom-board/{board.pk}"


def _owned(board: CustomBoard) -> OwnedObject:
    return OwnedObject(board.team_id)
