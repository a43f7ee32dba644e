"""`endpoint fit | preview`: resources and processes of a spec; creates nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from console.client import NotFound
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import FAILED, OK, CommandContext, CommandResult
from console.commandline.endpoint.changes import add_spec_file
from console.commandline.verbs import add_verb

_MARKS = {"fits": "✓", "tight": "!", "no": "✗"}


def add_to(verbs: Any) -> None:
    for verb, run, text in (
        ("fit", fit, "whether it fits on what it asks for; exit 1 where it does not"),
        ("preview", preview, "the command, environment and objects of its workers"),
    ):
        parser = add_verb(verbs, verb, run, text)
        parser.add_argument("name", nargs="?", default="", help="an endpoint, to start from")
        add_spec_file(parser)
        parser.add_argument("--model", default="", help="short for --set model=...")
        output.add_output(parser)


def _spec(asked: CommandContext) -> dict[str, Any]:
    options = asked.options
    known: dict[str, Any] = {}
    if options["name"]:
        try:
            known = dict(asked.client.endpoints.get(asked.name)["spec"])
        except NotFound:  # the endpoint does not exist yet
            if not (options["file"] or options["model"]):
                raise
            known = {"name": options["name"]}
    file = commandline_input.read_document(options["file"]) if options["file"] else {}
    model = {"model": options["model"]} if options["model"] else {}
    return commandline_input.merge(
        known, file, model, commandline_input.parse_settings(options["fields"])
    )


def fit(asked: CommandContext) -> CommandResult:
    found = asked.client.endpoints.fit(_spec(asked))
    judged = found["judged"]
    good = any(not any(one["blocks"] for one in each["findings"]) for each in judged)
    form = asked.options["output"]
    lines = [*_format_fit(judged), *_routers(found["routers"])]
    text = "\n".join(lines) if form == output.TABLE else output.format_data(found, form)
    return CommandResult(text, OK if good or not judged else FAILED)


def _format_fit(judged: list[dict[str, Any]]) -> Iterator[str]:
    for each in judged:
        price = each["price_usd_hour"]
        cost = f", ${price:.2f} an hour" if price is not None else ""
        yield f"{each['machine'] or 'any machine'}: {each['verdict']}{cost}"
        for line in each["lines"]:
            formula = f"  ({line['formula']})" if line["formula"] else ""
            yield f"  {line['name']}: {_amount(line)}{formula}"
        for one in each["findings"]:
            mark = "✗" if one["blocks"] else "!"
            yield f"  {mark} {one['field']}: {one['message']} {one['remedy']}".rstrip()


def _routers(found: dict[str, Any] | None) -> Iterator[str]:
    if found is not None:
        price = found["usd_hour"]
        cost = f", ${price:.3f} an hour" if price is not None else ""
        size = output.size(found["memory_bytes"])
        yield f"{found['replicas']} routers: {found['cpus']:g} CPU, {size}{cost}"


def _amount(line: dict[str, Any]) -> str:
    value, unit = line["value"], line["unit"]
    amount = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return output.size(value) if unit == "bytes" else f"{amount} {unit}".rstrip()


def preview(asked: CommandContext) -> str:
    found = asked.client.endpoints.preview(_spec(asked))
    form = asked.options["output"]
    if form != output.TABLE:
        return output.format_data(found, form)
    lines = [f"# {note}" for note in found["notes"]]
    lines += [f"# refused: {found['refused']}"] if found["refused"] else []
    lines += [f"{name}={shlex.quote(value)} \\" for name, value in found["env"].items()]
    lines.append(shlex.join(found["command"]))
    if found["objects"]:
        lines += [
            "---",
            "\n---\n".join(output.format_data(one, output.YAML) for one in found["objects"]),
        ]
    return "\n".join(lines)
