"""JSON format of a custom board and its panels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, get_args

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail

from console.api.bodies import read_body
from console.validators import plain_text
from console.web.forms import MONOSPACE
from dashboards.boards.panels import BOARDS, Panel
from dashboards.boards.panels.declarations import Unit
from dashboards.prometheus.http.user_query import refuse_unselective

FORMAT: Final = "emberline/custom-board"
VERSION: Final = 1
WIDTHS: Final = {"third": "One third", "half": "Half", "full": "Full width"}
UNITS: Final[tuple[str, ...]] = get_args(Unit)
_UNIT_LABELS: Final = {
    "per_s": "Events/s",
    "seconds": "Seconds",
    "share": "Share (0 to 1, shown in %)",
    "count": "Count",
    "tokens": "Tokens",
    "tokens_per_s": "Tokens/s",
    "bytes": "Bytes",
    "bytes_per_s": "Bytes/s",
    "usd": "USD",
    "usd_hour": "USD/h",
    "celsius": "°C",
    "watts": "Watts",
}
PANEL, PROMQL, HIDDEN = "panel", "promql", "hidden"
MAX_PANELS: Final = 40
MAX_TITLE: Final = 100
MAX_QUERY: Final = 4000
_NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\Z"
_COMMON: Final = ("id", "type", "title", "width")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    PANEL: (*_COMMON, "board", "panel", "endpoint", "worker"),
    PROMQL: (*_COMMON, "query", "unit", "legend"),
    HIDDEN: _COMMON,
}


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


def _text(longest: int, help_text: str) -> serializers.CharField:
    return serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=longest,
        validators=[plain_text],
        help_text=help_text,
    )


def _check_version(version: int) -> None:
    if version != VERSION:
        text = f"This console reads version {VERSION}. Export the board again."
        raise serializers.ValidationError(text, "version")


class CustomPanelSerializer(serializers.Serializer[BoardPanel]):
    """Of the context, `stored` has the panels whose content hidden ones keep, by id."""

    id = serializers.RegexField(
        r"^[a-z0-9][a-z0-9-]{0,19}\Z",
        required=False,
        allow_blank=True,
        help_text="Up to 20 lower-case letters, digits and hyphens, unique in the board; "
        "default: chosen.",
    )
    type = serializers.ChoiceField(
        choices=(PANEL, PROMQL, HIDDEN),
        help_text="Panel of a built-in board, query, or content that you may not see.",
    )
    title = _text(MAX_TITLE, "Leave empty for the title of the built-in panel.")
    width = serializers.ChoiceField(choices=list(WIDTHS.items()), required=False, initial="half")
    board = serializers.ChoiceField(
        choices=list(BOARDS), required=False, help_text="Key of the built-in board."
    )
    panel = _text(253, "Id of the built-in panel.")
    endpoint = serializers.RegexField(
        _NAME, required=False, allow_blank=True, help_text='"": all endpoints the viewer may see.'
    )
    worker = serializers.RegexField(
        _NAME, required=False, allow_blank=True, help_text="One worker of the endpoint."
    )
    query = serializers.CharField(
        required=False,
        max_length=MAX_QUERY,
        trim_whitespace=False,
        label="PromQL query",
        help_text="Such as sum(rate(vllm:prompt_tokens_total[5m])). $__interval, $__rate_interval "
        "and $__range follow the time range.",
        style={"rows": 4, **MONOSPACE},
    )
    unit = serializers.ChoiceField(
        choices=[(unit, _UNIT_LABELS[unit]) for unit in UNITS], required=False, initial="count"
    )
    legend = _text(
        MAX_TITLE, "Labels in braces, such as {{endpoint_name}} {{pod}}; empty: all labels."
    )

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        values: dict[str, Any] = super().to_internal_value(data)
        fields = _FIELDS[values["type"]]
        unknown = {
            str(name)[:80]: [f"Unknown field. Fields of this type: {', '.join(fields)}."]
            for name in data
            if name not in fields
        }
        if unknown:
            raise serializers.ValidationError(unknown, "unknown_field")
        return values

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        panel = BoardPanel(**{"id": "", **values})
        if panel.type == HIDDEN:
            stored = self.context.get("stored", {}).get(panel.id)
            if stored is None:
                text = "The content of this panel is hidden. Remove the panel, or use the export "
                text += "of a user who may see it."
                raise serializers.ValidationError({"type": text})
            return asdict(replace(stored, title=panel.title, width=panel.width))
        errors = _check_source(panel) if panel.type == PANEL else _check_query(panel)
        if errors:
            raise serializers.ValidationError(errors)
        return values


class BoardDocumentSerializer(serializers.Serializer[Any]):
    format = serializers.ChoiceField(choices=(FORMAT,), required=False)
    version = serializers.IntegerField(
        validators=[_check_version], help_text=f"Version of the format: {VERSION}."
    )
    title = serializers.CharField(
        max_length=MAX_TITLE,
        validators=[plain_text],
        help_text=f"1 to {MAX_TITLE} characters, without line breaks.",
    )
    panels = serializers.ListField(
        child=CustomPanelSerializer(),
        required=False,
        max_length=MAX_PANELS,
        help_text=f"In order, at most {MAX_PANELS}.",
    )

    def validate_panels(self, panels: list[dict[str, Any]]) -> tuple[BoardPanel, ...]:
        taken = {panel.get("id", "") for panel in panels}
        numbered: dict[str, BoardPanel] = {}
        for place, panel in enumerate(panels):
            panel_id = panel.get("id") or make_id(taken)
            if panel_id in numbered:
                text = "Two panels have this id. Give each panel its own id, or omit the ids."
                raise serializers.ValidationError({str(place): {"id": [text]}})
            taken.add(panel_id)
            numbered[panel_id] = BoardPanel(**{**panel, "id": panel_id})
        return tuple(numbered.values())


def parse_board(data: Any, stored: Sequence[BoardPanel] = ()) -> BoardDocument:
    """Return the board of a document; hidden panels keep the content of `stored` by their id.
    Raise `Refused` with every problem.
    """
    context = {"stored": {panel.id: panel for panel in stored}}
    values = read_body(BoardDocumentSerializer, data, context=context)
    return BoardDocument(values["title"], values.get("panels", ()))


def parse_panel(data: Mapping[str, Any]) -> BoardPanel:
    """Return one panel; raise `Refused` with problems named by its fields."""
    return BoardPanel(**read_body(CustomPanelSerializer, data))


def make_id(taken: Collection[str]) -> str:
    return next(name for number in range(1, 2 + len(taken)) if (name := f"p{number}") not in taken)


def _check_source(panel: BoardPanel) -> dict[str, str]:
    if panel.board not in BOARDS:
        return {"board": f"Choose one of {', '.join(BOARDS)}."}
    if panel.worker and not panel.endpoint:
        return {"worker": "A worker belongs to an endpoint. Name its endpoint, too."}
    if panel.source is None:
        ids = [item.id for item in BOARDS[panel.board].panels(one=bool(panel.endpoint))]
        scope = "one endpoint" if panel.endpoint else "all endpoints"
        choice = f"Choose one of {', '.join(ids)}." if ids else "Choose another board."
        return {"panel": f"The board {panel.board} of {scope} has no such panel. {choice}"}
    return {}


def _check_query(panel: BoardPanel) -> dict[str, str]:
    errors: dict[str, str] = {
        name: "This field is required."
        for name in ("title", "query")
        if not getattr(panel, name).strip()
    }
    vague = refuse_unselective(panel.query, "query")
    if vague:
        errors["query"] = ErrorDetail(f"{vague.message} {vague.remedy}", vague.code)
    return errors
