"""JSON format of a custom board: panels and their validation, field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, get_args

from console.core.errors import Problem, Refused, expect_object
from dashboards.boards.panels import BOARDS, Panel
from dashboards.boards.panels.declarations import Unit
from dashboards.prometheus.http.user_query import refuse_unselective

FORMAT: Final = "emberline/custom-board"
VERSION: Final = 1
WIDTHS: Final = ("third", "half", "full")
UNITS: Final[tuple[str, ...]] = get_args(Unit)
PANEL, PROMQL, HIDDEN = "panel", "promql", "hidden"
MAX_PANELS: Final = 40
MAX_TITLE: Final = 100
MAX_QUERY: Final = 4000
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_COMMON: Final = ("id", "type", "title", "width")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    PANEL: (*_COMMON, "board", "panel", "endpoint", "worker"),
    PROMQL: (*_COMMON, "query", "unit", "legend"),
    HIDDEN: _COMMON,
}
_DEFAULTS: Final = {"width": "half", "unit": "count"}
_BOARD_FIELDS: Final = ("format", "version", "title", "panels")


@dataclass(frozen=True, slots=True)
class BoardPanel:
    """A panel of a built-in board (`type` "panel"), a PromQL query ("promql"), or a panel whose
    content the reader may not see ("hidden").

    `title` "" is the title of the built-in panel; `endpoint` "" is all endpoints the viewer may
    see. `legend`: name of a series with its labels, such as "{{pod}}".
    """

    id: str
    type: str
    title: str = ""
    width: str = "half"
    board: str = ""
    panel: str = ""
    endpoint: str = ""
    worker: str = ""
    query: str = ""
    unit: str = "count"
    legend: str = ""

    @property
    def source(self) -> Panel | None:
        """Return the built-in panel; None if this version has none of that name."""
        board = BOARDS.get(self.board)
        panels = board.panels(one=bool(self.endpoint)) if board else ()
        return next((panel for panel in panels if panel.id == self.panel), None)

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS[self.type]}

    def hide(self) -> BoardPanel:
        return BoardPanel(self.id, HIDDEN, self.title, self.width)


@dataclass(frozen=True, slots=True)
class BoardDocument:
    title: str
    panels: tuple[BoardPanel, ...]

    def export(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "title": self.title,
            "panels": [panel.document() for panel in self.panels],
        }


def read_stored(panels: Sequence[Mapping[str, Any]]) -> tuple[BoardPanel, ...]:
    names = {field.name for field in fields(BoardPanel)}
    return tuple(BoardPanel(**{k: v for k, v in panel.items() if k in names}) for panel in panels)


def parse_board(data: Any, stored: Sequence[BoardPanel] = ()) -> BoardDocument:
    """Return the board of a document; hidden panels keep the content of `stored` by their id.
    Raise `Refused` with every problem.
    """
    document, problems = expect_object(data), []
    problems += _find_unknown("", document, _BOARD_FIELDS)
    if document.get("format", FORMAT) != FORMAT:
        problems.append(_bad("format", document["format"], "Unknown format.", f'Use "{FORMAT}".'))
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        remedy = f"This console reads version {VERSION}. Export the board again."
        problems.append(_bad("version", version, "Unsupported version.", remedy))
    title = parse_title(document.get("title"), problems)
    panels = document.get("panels", [])
    if not isinstance(panels, list) or len(panels) > MAX_PANELS:
        remedy = f"Send a list of at most {MAX_PANELS} panels."
        problems.append(_bad("panels", None, "Not a list of panels, or too many.", remedy))
        panels = []
    taken = {
        panel["id"]
        for panel in panels
        if isinstance(panel, dict) and isinstance(panel.get("id"), str)
    }
    board_panels: list[BoardPanel] = []
    for place, item in enumerate(panels):
        field = f"panels[{place}]"
        if isinstance(item, dict) and item.get("id", "") == "":
            item = {**item, "id": make_id(taken)}
            taken.add(item["id"])
        panel = _parse_panel(field, item, {panel.id: panel for panel in stored}, problems)
        if panel is not None and panel.id in {panel.id for panel in board_panels}:
            remedy = "Give each panel its own id, or omit the ids."
            problems.append(_bad(f"{field}.id", panel.id, "Two panels have this id.", remedy))
        if panel is not None:
            board_panels.append(panel)
    if problems:
        raise Refused(*problems)
    return BoardDocument(title, tuple(board_panels))


def parse_panel(data: Mapping[str, Any]) -> BoardPanel:
    """Return one panel; raise `Refused` with problems named by its fields."""
    problems: list[Problem] = []
    panel = _parse_panel("", data, {}, problems)
    if problems or panel is None:
        raise Refused(*problems)
    return panel


def parse_title(given: Any, problems: list[Problem]) -> str:
    if not isinstance(given, str) or not given.strip() or not _is_text(given, MAX_TITLE):
        remedy = f"Enter 1 to {MAX_TITLE} characters, without line breaks."
        problems.append(_bad("title", given, "Invalid title.", remedy))
        return ""
    return given.strip()


def make_id(taken: set[str]) -> str:
    return next(name for number in range(1, 2 + len(taken)) if (name := f"p{number}") not in taken)


def _parse_panel(
    field: str, given: Any, stored: Mapping[str, BoardPanel], problems: list[Problem]
) -> BoardPanel | None:
    begin, count = f"{field}." if field else "", len(problems)
    if not isinstance(given, dict):
        problems.append(_bad(field, None, "Not a JSON object.", "Send an object with its fields."))
        return None
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        remedy = f"Choose one of {', '.join(_FIELDS)}."
        problems.append(_bad(f"{begin}type", kind, "Unknown type of panel.", remedy))
        return None
    problems += _find_unknown(begin, given, _FIELDS[kind])
    texts = {name: given.get(name, _DEFAULTS.get(name, "")) for name in _FIELDS[kind]}
    width = texts.pop("width")
    for name, text in texts.items():
        longest = (
            MAX_QUERY if name == "query" else MAX_TITLE if name in ("title", "legend") else 253
        )
        many = name == "query"  # lines
        if not isinstance(text, str) or not _is_text(text, longest, many_lines=many):
            lines = "" if many else ", without line breaks"
            remedy = f"Send a text of at most {longest} characters{lines}."
            problems.append(_bad(f"{begin}{name}", text, "Invalid text.", remedy))
    if width not in WIDTHS:
        remedy = f"Choose one of {', '.join(WIDTHS)}."
        problems.append(_bad(f"{begin}width", width, "Unknown width.", remedy))
    if len(problems) > count:
        return None
    panel = BoardPanel(**{**texts, "width": width})
    if not _ID.fullmatch(panel.id):
        remedy = "Use up to 20 lower-case letters, digits and hyphens, or omit the id."
        problems.append(_bad(f"{begin}id", panel.id, "Invalid id.", remedy))
    if kind == HIDDEN:
        return _restore(begin, panel, stored, problems)
    problems += _check_source(begin, panel) if kind == PANEL else _check_query(begin, panel)
    return panel if len(problems) == count else None


def _restore(
    begin: str, panel: BoardPanel, stored: Mapping[str, BoardPanel], problems: list[Problem]
) -> BoardPanel | None:
    if panel.id not in stored:
        remedy = "Remove this panel, or use the export of a user who may see it."
        text = "The content of this panel is hidden."
        problems.append(_bad(f"{begin}type", HIDDEN, text, remedy))
        return None
    return replace(stored[panel.id], title=panel.title, width=panel.width)


def _check_source(begin: str, panel: BoardPanel) -> list[Problem]:
    if panel.board not in BOARDS:
        remedy = f"Choose one of {', '.join(BOARDS)}."
        return [_bad(f"{begin}board", panel.board, "Unknown board.", remedy)]
    problems = []
    if panel.source is None:
        ids = [item.id for item in BOARDS[panel.board].panels(one=bool(panel.endpoint))]
        scope = "one endpoint" if panel.endpoint else "all endpoints"
        remedy = f"Choose one of {', '.join(ids)}." if ids else "Choose another board."
        text = f"The board {panel.board} of {scope} has no such panel."
        problems.append(_bad(f"{begin}panel", panel.panel, text, remedy))
    for name in ("endpoint", "worker"):
        value = getattr(panel, name)
        if value and not _NAME.fullmatch(value):
            remedy = "Use lower-case letters, digits and hyphens."
            problems.append(_bad(f"{begin}{name}", value, f"Invalid name of an {name}.", remedy))
    if panel.worker and not panel.endpoint:
        text, remedy = "A worker belongs to an endpoint.", "Name its endpoint, too."
        problems.append(_bad(f"{begin}worker", panel.worker, text, remedy))
    return problems


def _check_query(begin: str, panel: BoardPanel) -> list[Problem]:
    problems = []
    if not panel.query.strip():
        remedy = "Enter a PromQL query, such as sum(rate(vllm:prompt_tokens_total[5m]))."
        problems.append(_bad(f"{begin}query", panel.query, "A query is required.", remedy))
    vague = refuse_unselective(panel.query, f"{begin}query")
    if vague:
        problems.append(vague)
    if not panel.title.strip():
        remedy = f"Enter 1 to {MAX_TITLE} characters."
        problems.append(_bad(f"{begin}title", panel.title, "A title is required.", remedy))
    if panel.unit not in UNITS:
        remedy = f"Choose one of {', '.join(UNITS)}."
        problems.append(_bad(f"{begin}unit", panel.unit, "Unknown unit.", remedy))
    return problems


def _find_unknown(begin: str, given: Mapping[str, Any], known: Sequence[str]) -> list[Problem]:
    remedy = f"Known fields: {', '.join(known)}."
    return [
        _bad(f"{begin}{str(name)[:80]}", None, "Unknown field.", remedy)
        for name in given
        if name not in known
    ]


def _is_text(text: str, longest: int, *, many_lines: bool = False) -> bool:
    plain = re.sub(r"[\r\n\t]", " ", text) if many_lines else text
    return len(text) <= longest and plain.isprintable()


def _bad(field: str, value: Any, text: str, remedy: str) -> Problem:
    excerpt = value[:80] if isinstance(value, str) else value
    if not isinstance(excerpt, str | int | float | bool | None):
        excerpt = None
    return Problem(field, excerpt, text, remedy, "invalid")
