"""HTML context of a custom board: its panels, time controls and links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from console.accounts.permissions import Somebody
from console.core.errors import Problem
from dashboards.boards import page
from dashboards.boards.answers import BoardLocation, BoardQuery, parse_query
from dashboards.boards.panels import BOARDS
from dashboards.custom_boards import selectors
from dashboards.custom_boards.documents import PROMQL, WIDTHS, BoardPanel
from dashboards.custom_boards.models import CustomBoard
from dashboards.custom_boards.query_panels import as_panel
from endpoints import selectors as endpoint_selectors

_COLUMNS = {"third": "col-12 col-md-6 col-xl-4", "half": "col-12 col-lg-6", "full": "col-12"}
WIDTH_CHOICES = list(WIDTHS.items())
_MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class CustomBoardQuery(BoardQuery):
    """Query of a custom board's page. `endpoint` replaces the endpoints of all panels; "" keeps
    them. `edit`: with the controls that arrange panels.
    """

    endpoint: str = ""
    edit: bool = False

    def query(self, **changes: Any) -> str:
        board_query = replace(self, **changes)
        more = {"endpoint": board_query.endpoint} if board_query.endpoint else {}
        more |= {"edit": "1"} if board_query.edit else {}
        return "&".join(filter(None, (BoardQuery.query(board_query), urlencode(more))))

    def select(self, panels: Sequence[BoardPanel]) -> tuple[BoardPanel, ...]:
        """Return the panels to show, of the chosen endpoint."""
        selected = [panel for panel in panels if self.panel in ("", panel.id)]
        if not self.endpoint:
            return tuple(selected)
        return tuple(
            replace(panel, endpoint=self.endpoint, worker="") if panel.endpoint else panel
            for panel in selected
        )

    @property
    def plain(self) -> BoardQuery:
        """Return the query of a built-in board with the same times."""
        return BoardQuery(**{field.name: getattr(self, field.name) for field in fields(BoardQuery)})


def parse_board_query(
    given: Mapping[str, Any], now: float, *, may_edit: bool = False
) -> tuple[CustomBoardQuery, tuple[Problem, ...]]:
    board_query, problems = parse_query(given, now)
    query_fields = {
        field.name: getattr(board_query, field.name) for field in fields(BoardQuery)
    } | {"worker": ""}
    endpoint = str(given.get("endpoint", ""))[:_MAX_NAME]
    edit = may_edit and given.get("edit") == "1"
    return CustomBoardQuery(**query_fields, endpoint=endpoint, edit=edit), problems


def build_context(
    viewer: Somebody, board: CustomBoard, board_query: CustomBoardQuery, problems: Sequence[Problem]
) -> dict[str, Any]:
    panels = selectors.read_panels(viewer, board)
    if board_query.panel and not board_query.select(panels):
        text, remedy = f'This board has no panel "{board_query.panel}".', "All panels are shown."
        problems = (*problems, Problem("panel", board_query.panel, text, remedy, "not_found"))
        board_query = replace(board_query, panel="")
    panels_shown = board_query.select(panels)
    may_edit = selectors.may_edit(viewer, board)
    names: list[str] = []
    if any(panel.endpoint for panel in panels):
        names = list(endpoint_selectors.endpoints(viewer).values_list("name", flat=True))
    entries = [_build_entry(viewer, board, board_query, panel, names) for panel in panels_shown]
    return {
        "custom": board,
        "sections": [{"title": "", "panels": entries}],
        "full": bool(board_query.panel),
        "editing": board_query.edit,
        "may_edit": may_edit,
        "may_write_queries": may_edit and selectors.may_write_queries(viewer),
        "endpoint_names": names,
        "endpoint_url": page.endpoint_url(board_query.plain),
        "edit_url": f"?{board_query.query(edit=not board_query.edit, panel='')}",
        "whole_url": f"?{board_query.query(panel='')}",
        "widths": WIDTH_CHOICES,
        "compare": page.Choice(
            "Compare", f"?{board_query.query(compare=not board_query.compare)}", board_query.compare
        ),
        "problems": problems,
        **page.build_time_controls(
            board_query,
            f"{reverse('custom_boards:data', args=[board.pk])}?{board_query.query(edit=False)}",
        ),
    }


def _build_entry(
    viewer: Somebody,
    board: CustomBoard,
    board_query: CustomBoardQuery,
    item: BoardPanel,
    endpoints: Collection[str],
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "panel": as_panel(item),
        "item": item,
        "columns": _COLUMNS[item.width],
        "full_url": f"?{board_query.query(panel=item.id, edit=False)}",
    }
    if item.source is not None:
        plain = replace(board_query.plain, panel=item.panel, worker=item.worker)
        place = BoardLocation(BOARDS[item.board], item.endpoint)
        entry["source_label"] = " · ".join(
            filter(None, (item.endpoint or "All endpoints", item.worker, BOARDS[item.board].title))
        )
        if item.endpoint and item.endpoint not in endpoints:
            return entry  # nothing to link to
        entry["source_url"] = f"{page.board_url(place)}?{plain.query()}"
        entry["csv_url"] = f"{page.board_url(place, 'csv')}?{plain.query()}"
        entry["pin_url"] = page.pin_url(item.board, item.panel, item.endpoint, item.worker)
    elif item.type == PROMQL and selectors.may_view_queries(viewer):
        entry["source_label"] = "PromQL"
        chosen = board_query.query(panel=item.id, edit=False)
        entry["csv_url"] = f"{reverse('custom_boards:csv', args=[board.pk])}?{chosen}"
    return entry
