"""Forms of custom boards; `actions` validates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from console.accounts import selectors as accounts
from console.accounts.permissions import allows
from console.core import json_reader
from console.core.errors import Problem, Refused
from console.web.forms import MONOSPACE, ActionForm
from console.web.serializer_form import SerializerForm
from dashboards.custom_boards import selectors
from dashboards.custom_boards.actions import CONSOLE
from dashboards.custom_boards.documents import MAX_TITLE, PROMQL, CustomPanelSerializer
from dashboards.custom_boards.models import CustomBoard
from dashboards.custom_boards.page import WIDTH_CHOICES

_MOST_BYTES = 1_000_000
_SOURCE = ("board", "panel", "endpoint", "worker")


class BoardForm(ActionForm):
    """Title, owner and link of a board."""

    title = forms.CharField(label="Title", max_length=MAX_TITLE, required=False)
    owner = forms.ChoiceField(
        label="Owner",
        required=False,
        help_text="A personal board is changed by you, a team's by its operators.",
    )
    shared = forms.BooleanField(
        label="Open by link: every user with a role may view it", required=False
    )

    def __init__(self, viewer: Any, data: Any = None, initial: Any = None) -> None:
        super().__init__(data, initial=dict(initial or {}))
        self.owner_choices = list_owners(viewer)
        owner: Any = self.fields["owner"]
        owner.choices = self.owner_choices

    def given(self) -> dict[str, Any]:
        return {"owner": self.text_of("owner"), "shared": bool(self.data.get("shared"))}


class ImportForm(BoardForm):
    """A board's JSON, as text or as a file."""

    document = forms.CharField(
        label="JSON",
        required=False,
        widget=forms.Textarea({**MONOSPACE, "rows": "14"}),
        help_text="The export of a board, of this console or of another.",
    )
    file = forms.FileField(label="File", required=False)
    field_order = ("document", "file", "owner", "shared")

    def __init__(self, viewer: Any, data: Any = None, files: Any = None) -> None:
        super().__init__(viewer, data)
        self._file = files.get("file") if files else None
        del self.fields["title"]

    def read(self) -> Any:
        file = self._file
        if file is not None and (file.size or 0) > _MOST_BYTES:
            remedy = f"A board has at most {_MOST_BYTES:,} bytes."
            raise Refused(Problem("file", file.name, "The file is too large.", remedy, "too_large"))
        try:
            text = file.read().decode() if file is not None else self.text_of("document")
            return json_reader.parse(text)
        except ValueError as error:
            field = "file" if file is not None else "document"
            remedy = "Enter the JSON of an exported board."
            raise Refused(Problem(field, None, f"Invalid JSON: {error}.", remedy, "json")) from None

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Name the field in the document: the form has one field for all of it."""
        super().refuse(
            problem
            if problem.field in self.fields
            else Problem(
                "document",
                problem.value,
                f"{problem.field}: {_quote(problem.value)}{problem.message}",
                problem.remedy,
                problem.code,
            )
            for problem in problems
        )


class PinForm(ActionForm):
    """A panel of a built-in board for one of the viewer's boards, or for a new one."""

    to = forms.ChoiceField(label="Board", required=False)
    title = forms.CharField(
        label="Title of the new board",
        max_length=MAX_TITLE,
        required=False,
        initial="My board",
        help_text="With New personal board only.",
    )
    width = forms.ChoiceField(label="Width", choices=WIDTH_CHOICES, required=False, initial="half")

    def __init__(
        self, boards: Iterable[CustomBoard], data: Any = None, initial: Any = None
    ) -> None:
        choices = [(str(board.pk), _name_board(board)) for board in boards]
        super().__init__(data, initial={"to": choices[0][0] if choices else "", **(initial or {})})
        to: Any = self.fields["to"]
        to.choices = [*choices, ("", "New personal board")]
        for name in _SOURCE:
            self.fields[name] = forms.CharField(required=False, widget=forms.HiddenInput)

    def panel(self) -> dict[str, Any]:
        source = {name: self.text_of(name) for name in _SOURCE}
        return {"type": "panel", **source, "width": self.text_of("width") or "half"}


class PanelForm(SerializerForm):
    """Title and width of a panel; of a query also its PromQL, unit and legend."""

    def __init__(
        self, kind: str, data: Any = None, values: Mapping[str, Any] | None = None
    ) -> None:
        of_query = ("query", "unit", "legend") if kind == PROMQL else ()
        super().__init__(CustomPanelSerializer(), data, values, ("title", *of_query, "width"))
        if kind == PROMQL:
            self.fields["title"].help_text = ""

    def panel(self) -> dict[str, Any]:
        return {name: text for name, text in self.typed().items() if text or name != "width"}


def list_owners(viewer: Any) -> list[tuple[str, str]]:
    owners = []
    if (account := selectors.get_account(viewer)) is not None:
        owners.append((f"user/{account.username}", "Personal"))
    teams = accounts.list_teams_with_role(viewer, "operator")
    owners += [(f"team/{team.slug}", f"Team {team.name}") for team in teams]
    if allows(viewer, "operator"):
        owners.append((CONSOLE, "All console-wide roles"))
    return owners


def _name_board(board: CustomBoard) -> str:
    return f"{board.title} ({'personal' if board.user_id else board.owner_label})"


def _quote(value: Any) -> str:
    return "" if value in (None, "") else f"“{value}” rejected. "
