"""`emberline dashboards ...`: export dashboards and rules for Grafana."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from console.client.documents import ExportedFile
from console.commandline import output
from console.commandline.context import FAILED, CommandContext, CommandError
from console.commandline.verbs import Table, Verbs


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
        raise CommandError(f"Rejected a file outside the folder: {path}.", FAILED)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(file["text"], encoding="utf-8")


_DASHBOARDS = Table(
    ("UID", "PANELS", "TITLE"), lambda one: (one["uid"], str(one["panels"]), one["title"])
)


def add_dashboards(rooms: Verbs) -> None:
    verbs = rooms.group("dashboards", "export dashboards and rules for Grafana", client="grafana")
    verbs.verb("list", "list dashboards", show=_DASHBOARDS)
    verbs.verb("get", "print a dashboard as Grafana JSON", "uid", form={}, show=output.format_json)
    verb = verbs.verb("export", "write dashboards, alert rules and recording rules", call=export)
    verb.add("--to", required=True, metavar="FOLDER", help="target folder, created if missing")
    verb.add("--recorded", action="store_true", help="use recording rules, for hundreds of workers")
