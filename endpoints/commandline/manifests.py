"""apply and export: endpoints from and to InferenceEndpointConfig objects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from endpoints import applying
from endpoints.actions import SYSTEM
from endpoints.applying import Does, Planned, Where
from endpoints.commandline.show import written
from endpoints.manifests import documents
from endpoints.manifests.notes import Mark
from endpoints.spec_words import showable

_ENDINGS = (".yaml", ".yml", ".json")
_SAID = {Does.CREATE: "created", Does.UPDATE: "changed", Does.NOTHING: "unchanged"}


def add_to(verbs: Any) -> None:
    parser = verbs.add_parser("apply", help="make endpoints as objects in files say")
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        dest="files",
        help="YAML or JSON; a folder stands for its files; - for standard input",
    )
    parser.add_argument("--cluster", default="", help="where they go")
    parser.add_argument("-n", "--namespace", default="", help="for objects which name none")
    parser.add_argument("--dry-run", action="store_true", help="say what would change")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")
    parser.set_defaults(run=apply)
    out = verbs.add_parser("export", help="an endpoint as an InferenceEndpointConfig")
    out.add_argument("name")
    out.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    out.set_defaults(run=export)


def apply(options: dict[str, Any]) -> str:
    found = [item for path in options["files"] for item in _read(path)]
    where = Where(options["cluster"], options["namespace"])
    dry = options["dry_run"]
    planned = (applying.plan if dry else applying.apply)(SYSTEM, found, where)
    if options["output"] != "text":
        results = [applying.document(one) for one in planned]
        return written({"dry_run": dry, "results": results}, options["output"])
    return "\n".join(line for one in planned for line in _lines(one, dry))


def export(options: dict[str, Any]) -> str:
    whole = applying.exported(options["name"])
    if options["output"] == "json":
        return json.dumps(whole, indent=2, ensure_ascii=False)
    return documents.written(whole).rstrip()


def _read(path: str) -> list[dict[str, Any]]:
    if path == "-":
        return documents.read(sys.stdin.read())
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = sorted(one for one in place.iterdir() if one.suffix in _ENDINGS)
        if not files:
            raise CommandError(f"{path} holds no file that ends with {', '.join(_ENDINGS)}.")
    try:
        return [item for one in files for item in documents.read(one.read_text(encoding="utf-8"))]
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8.") from error


def _lines(one: Planned, dry: bool) -> list[str]:
    shown = f"endpoint/{one.name} {_SAID[one.does]}{' (dry run)' if dry else ''}"
    lines = [shown]
    if one.does is Does.UPDATE or dry:
        for change in applying.shown_changes(one):
            before = json.dumps(showable(change.path, change.before), default=str)
            after = json.dumps(showable(change.path, change.after), default=str)
            lines.append(f"  {change.path}: {before} -> {after} ({change.effect})")
    for note in one.notes:
        word = "kept" if note.mark is Mark.KEPT else "warning"
        lines.append(f"  {word}: {note.path}: {note.message} {note.remedy}".rstrip())
    return lines
