"""`emberline dashboards ...`: export dashboards and rules for Grafana."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from console.client.documents import ExportedFile, GrafanaDashboard
from console.commandline import output
from console.commandline.context import FAILED, CommandContext, CommandError
from console.commandline.verbs import add_group, add_verb

_HEAD = ("UID", "PANELS", "TITLE")


def add_to(rooms: Any) -> None:
    text = "boards and rules for a Grafana of your own"
    verbs = add_group(rooms, "dashboards", text)
    add_verb(verbs, "list", list_all, "all dashboards", listing=True)
    one = add_verb(verbs, "get", get, "one dashboard, as Grafana imports it")
    one.add_argument("uid")
    out = add_verb(verbs, "export", export, "write dashboards, alert rules and recording rules")
    out.add_argument("--to", required=True, metavar="FOLDER", help="made when it is not there")
    out.add_argument("--recorded", action="store_true", help="for fleets of hundreds of workers")


def list_all(asked: CommandContext) -> str:
    found = asked.client.grafana.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells, key="uid")


def get(asked: CommandContext) -> str:
    return output.format_data(asked.client.grafana.get(asked.options["uid"]), output.JSON)


def export(asked: CommandContext) -> str:
    """Write the files, replacing those of the same name."""
    folder = Path(asked.options["to"])
    files = asked.client.grafana.export(recorded=asked.options["recorded"])
    try:
        for file in files:
            _write(folder, file)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}", FAILED) from None
    return "\n".join(str(folder / file["path"]) for file in files)


def _write(folder: Path, file: ExportedFile) -> None:
    path = PurePosixPath(file["path"])
    if path.is_absolute() or ".." in path.parts:  # reject paths outside the folder
        raise CommandError(f"The console names a file outside the folder: {path}.", FAILED)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(file["text"], encoding="utf-8")


def _cells(one: GrafanaDashboard) -> tuple[str, ...]:
    return one["uid"], str(one["panels"]), one["title"]
