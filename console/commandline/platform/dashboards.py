"""`emberline dashboards ...`, Grafana exports, and `emberline board ...`, custom boards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from console.commandline import output
from console.commandline.context import FAILED, CommandContext, CommandError
from console.commandline.input import confirm, find_row, read_document
from console.commandline.verbs import OUTPUT_DATA, Table, Verb, Verbs


def export(context: CommandContext) -> str:
    """Write the files, replacing those of the same name."""
    folder = Path(context.options["to"])
    files = context.client.get("grafana", "export")["files"]
    try:
        for file in files:
            _write(folder, file)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", FAILED) from None
    return "\n".join(str(folder / file["path"]) for file in files)


def _write(folder: Path, file: Mapping[str, Any]) -> None:
    path = PurePosixPath(file["path"])
    if path.is_absolute() or ".." in path.parts:  # reject paths outside the folder
        raise CommandError(f"Rejected a file outside the folder: {path}.", FAILED)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(file["text"], encoding="utf-8")


_DASHBOARDS = Table(
    ("UID", "PANELS", "TITLE"), lambda one: (one["uid"], str(one["panels"]), one["title"])
)


def add_dashboards(rooms: Verbs) -> None:
    verbs = rooms.group("dashboards", "export dashboards and rules for Grafana")
    path = "grafana/dashboards/"
    verbs.verb("list", "list dashboards", call=f"GET {path}", show=_DASHBOARDS)
    text, call = "print a dashboard as Grafana JSON", f"GET {path}{{uid}}/"
    verbs.verb("get", text, "uid", call=call, form={}, show=output.format_json)
    verb = verbs.verb("export", "write dashboards, alert rules and recording rules", call=export)
    verb.add("--to", required=True, metavar="FOLDER", help="target folder, created if missing")


def _find_board(context: CommandContext) -> Mapping[str, Any]:
    rows = ({**board, "name": board["title"]} for board in context.client.pages("custom-boards"))
    return find_row(rows, context.name, "custom board", "emberline board list")


def get_board(context: CommandContext) -> Any:
    return context.client.get("custom-boards", _find_board(context)["id"])


def export_board(context: CommandContext) -> Any:
    return context.client.get("custom-boards", _find_board(context)["id"], "export")


def create_board(context: CommandContext) -> Any:
    return context.client.post("custom-boards", data=_read_board(context), once=True)


def replace_board(context: CommandContext) -> Any:
    path = ("custom-boards", _find_board(context)["id"])
    return context.client.put(*path, data=_read_board(context))


def delete_board(context: CommandContext) -> None:
    board = _find_board(context)
    text = f"Board {board['title']} of {board['owner']} is removed for everyone who uses it."
    confirm(context, board["title"], text)
    context.client.delete("custom-boards", board["id"])


def _read_board(context: CommandContext) -> dict[str, Any]:
    shared = {"shared": context.options["shared"] == "yes"} if context.options["shared"] else {}
    return {**read_document(context.options["file"]), **context.given("owner"), **shared}


def _board(one: Mapping[str, Any]) -> tuple[str, ...]:
    shared = "yes" if one["shared"] else "no"
    return one["title"], one["id"], one["owner"], str(len(one["panels"])), shared


_BOARDS = Table(
    ("TITLE", "ID", "OWNER", "PANELS", "SHARED"),
    _board,
    "No custom boards. Create one: emberline board create -f FILE",
)


def add_boards(rooms: Verbs) -> None:
    verbs = rooms.group("board", "manage custom boards")
    text = "list your boards and those of your teams"
    verbs.verb("list", text, call="GET custom-boards/", show=_BOARDS)
    verb = verbs.verb(
        "get", "show a board", call=get_board, form=OUTPUT_DATA, show=output.format_json
    )
    _add_name(verb)
    verb = verbs.verb(
        "create",
        "create a board from an export",
        call=create_board,
        form={},
        show="Board {title} created: {url}",
    )
    _add_document(verb)
    verb = verbs.verb(
        "replace",
        "replace title and panels of a board",
        call=replace_board,
        form={},
        show="Board {title} replaced.",
    )
    _add_name(verb)
    _add_document(verb)
    text = "print title and panels, for create"
    verb = verbs.verb(
        "export",
        text,
        call=export_board,
        form=OUTPUT_DATA | {"default": output.JSON},
        show=output.format_json,
    )
    _add_name(verb)
    verb = verbs.verb("delete", "delete a board", call=delete_board, show="Board {name} deleted.")
    _add_name(verb)
    verb.add("--yes", action="store_true", help="delete without confirmation")


def _add_name(verb: Verb) -> None:
    verb.add("name", help="title or id of the board")


def _add_document(verb: Verb) -> None:
    text = "JSON or YAML file of the board; - reads standard input"
    verb.add("-f", "--file", required=True, help=text)
    verb.add("--owner", help="user/NAME, team/SLUG or console (default: you)")
    verb.add("--shared", choices=("yes", "no"), help="every user with a role may open its link")
