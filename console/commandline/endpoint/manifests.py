"""`endpoint apply | export`: convert from and to InferenceEndpointConfig objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint import wait
from console.commandline.input import read_objects
from console.commandline.verbs import OUTPUT_DATA, OUTPUT_NAMES, Verbs

_RESULTS = {"create": "created", "update": "changed", "unchanged": "unchanged"}


def apply(context: CommandContext) -> str:
    options = context.options
    objects = [item for path in options["files"] for item in read_objects(path)]
    answer = context.client.post(
        *("endpoints", "apply"),
        data=objects,
        cluster=options["cluster"],
        namespace=options["namespace"],
        dry_run=options["dry_run"] or None,
    )
    text = _format_result(answer, options["output"])
    if options["wait"] and not options["dry_run"]:
        context.report(text)
        for result in answer["results"]:
            endpoint = context.client.get("endpoints", result["name"])
            context.report(wait.wait_after_change(context, endpoint, f"{result['name']}:"))
        return "" if options["output"] == output.TABLE else text
    return text


def _format_result(answer: dict[str, Any], form: str) -> str:
    if form == output.NAME:
        return "\n".join(result["name"] for result in answer["results"])
    if form != output.TABLE:
        return output.format_data(answer, form)
    return "\n".join(
        line for result in answer["results"] for line in _lines(result, answer["dry_run"])
    )


def _lines(one: dict[str, Any], dry: bool) -> Iterator[str]:
    did = _RESULTS.get(one["action"], one["action"])
    yield f"endpoint/{one['name']} {did}{' (dry run)' if dry else ''}"
    if one["action"] == "update" or dry:
        for change in one["changes"]:
            before, after = (json.dumps(change[key], default=str) for key in ("before", "after"))
            yield f"  {change['field']}: {before} -> {after} ({change['effect']})"
    for note in one["notes"]:
        word = "kept" if note["kind"] == "kept" else "warning"
        yield f"  {word}: {note['field']}: {note['message']} {note['remedy']}".rstrip()


def export(context: CommandContext) -> str:
    path = ("endpoints", context.name, "export")
    if context.options["output"] == "json":
        return output.format_data(context.client.get(*path, output="json"), output.JSON)
    return context.client.text(*path).rstrip()


def add_to(verbs: Verbs) -> None:
    verb = verbs.verb(
        "apply", "create or update endpoints from objects in files", call=apply, form=OUTPUT_NAMES
    )
    text = "YAML or JSON file or folder; - reads standard input"
    verb.add("-f", "--file", action="append", required=True, dest="files", help=text)
    verb.add("--cluster", default="", help="target cluster")
    verb.add("-n", "--namespace", default="", help="namespace for objects without one")
    verb.add("--dry-run", action="store_true", help="show the changes without applying them")
    wait.add_wait(verb)
    text = "print an endpoint as an InferenceEndpointConfig"
    verbs.verb("export", text, "name", call=export, form=OUTPUT_DATA)
