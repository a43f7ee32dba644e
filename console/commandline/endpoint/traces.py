"""`endpoint traces ...`: recorded traffic of an endpoint, export and import of traces."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.verbs import OUTPUT, Verb, Verbs, endpoint_verb

_FORMATS = ("mooncake", "dynamo", "agentic")


def _format_traces(found: dict[str, Any]) -> str:
    state = "on" if found["recording"] else "off"
    retention = f"{found['record_days']} days, {found['record_mib']} MiB"
    parts = [f"Recording is {state}. Kept: {retention}."]
    hours = [
        (
            output.format_time(hour["hour"]),
            f"{hour['requests']:,}",
            f"{hour['prompt_tokens']:,}",
            "-" if hour["hit_rate"] is None else f"{hour['hit_rate']:.1%}",
            f"{hour['lost_requests']:,}",
            f"{hour['bytes']:,}",
        )
        for hour in found["hours"]
    ]
    if hours:
        head = ("HOUR", "REQUESTS", "PROMPT TOKENS", "HIT RATE", "LOST", "BYTES")
        parts += ["", output.table(head, hours)]
    imports = [
        (
            trace["name"],
            trace["trace_format"],
            f"{trace['requests']:,}",
            f"{trace['sessions']:,}",
            f"{trace['duration_s']:,.0f} s",
        )
        for trace in found["imports"]
    ]
    if imports:
        names = ("TRACE", "FORMAT", "REQUESTS", "SESSIONS", "DURATION")
        parts += ["", output.table(names, imports)]
    return "\n".join(parts)


def _switch(context: CommandContext) -> str:
    enabled = context.options["state"] == "on"
    context.client.patch("endpoints", context.name, data={"routing.record_traffic": enabled})
    return f"Recording of {context.name} is switched {context.options['state']}."


def _export(context: CommandContext) -> str:
    options = context.options
    query = {"name": options["trace"], "begin": options["begin"], "end": options["end"]}
    query |= {"trace_format": options["format"], "block_tokens": options["block_tokens"]}
    parts = _parts(context, {key: value for key, value in query.items() if value})
    try:
        if options["file"] == "-":
            return b"".join(parts).decode().rstrip()
        first = next(parts, b"")  # a refusal leaves an existing file alone
        with Path(options["file"]).open("wb") as file:
            size = file.write(first)
            for part in parts:
                size += file.write(part)
    except OSError as error:
        text = f"{options['file']} cannot be written: {error.strerror}."
        raise CommandError(text, USAGE) from error
    return f"{size:,} bytes written to {options['file']}."


def _parts(context: CommandContext, query: dict[str, Any]) -> Iterator[bytes]:
    path = ("endpoints", context.name, "traces", "export")
    with context.client.stream(*path, query=query) as answer:
        yield from answer.iter_bytes()


def _import(context: CommandContext) -> Any:
    options = context.options
    path = options["file"]
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", USAGE) from error
    query = {"name": options["trace"], "trace_format": options["format"]}
    query |= {"block_tokens": options["block_tokens"] or None}
    place = ("endpoints", context.name, "traces", "imports")
    return context.client.send("POST", *place, file=data, query=query).body


def _format_import(made: dict[str, Any]) -> str:
    return f"Trace {made['name']} imported: {output.count(made['requests'], 'request')}."


def _delete(context: CommandContext) -> str:
    options, path = context.options, ("endpoints", context.name, "traces")
    if options["trace"]:
        context.client.delete(*path, "imports", options["trace"])
        return f"Trace {options['trace']} deleted."
    if not (options["begin"] and options["end"]):
        raise CommandError("Give --begin and --end, or --trace.", USAGE)
    deleted = context.client.delete(*path, begin=options["begin"], end=options["end"])
    return f"{output.count(deleted['deleted_hours'], 'recorded hour')} deleted."


def add_to(verbs: Verbs) -> None:
    text = "recorded traffic: list, export, import, delete"
    traces = verbs.group("traces", text, dest="what")
    text = "list recorded hours and imported traces"
    call = "GET endpoints/{name}/traces/"
    endpoint_verb(traces, "list", text, call=call, show=_format_traces)
    text = "switch recording; routers reload without a restart"
    endpoint_verb(traces, "record", text, call=_switch).add("state", choices=("on", "off"))
    text = "write recorded requests or an imported trace to a file (JSON lines)"
    verb = endpoint_verb(traces, "export", text, call=_export)
    verb.add("-f", "--file", default="-", help="file to write; - writes standard output")
    _add_source(verb)
    _add_format(verb)
    text = "import a trace file, plain or gzip"
    verb = endpoint_verb(traces, "import", text, call=_import, show=_format_import, form=OUTPUT)
    verb.add("trace", help="name of the trace")
    verb.add("-f", "--file", required=True, help="file; - reads standard input")
    _add_format(verb)
    text = "delete recorded hours or an imported trace"
    verb = endpoint_verb(traces, "delete", text, call=_delete)
    _add_source(verb)
    verb.ask_first("Delete recorded traffic of {name}?")


def _add_source(verb: Verb) -> None:
    verb.add("--begin", default="", help="first arrival, such as 2026-11-23T10:00Z")
    verb.add("--end", default="", help="end of the arrivals (exclusive)")
    verb.add("--trace", default="", help="imported trace instead of a range")


def _add_format(verb: Verb) -> None:
    verb.add("--format", default="mooncake", choices=_FORMATS, help="file format (mooncake)")
    text = "block size of the format dynamo (512)"
    verb.add("--block-tokens", type=int, default=0, help=text)
