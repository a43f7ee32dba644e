"""`endpoint advice NAME`: what to change, in order of money and TTFT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.endpoint.run import LIVE, add_wait, text_or_data, wait_for_end
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT, Verbs, endpoint_verb

_HEAD = ("VERDICT", "CHANGE", "USD/MONTH", "TTFT P90", "HIT RATE", "CONFIDENCE")


def advice(context: CommandContext) -> Any:
    options = context.options
    if options["cancel"] and options["new"]:
        raise CommandError("Use either --new or --cancel.", USAGE)
    if options["fields"] and not options["new"]:
        raise CommandError("Assumptions apply to new advice: add --new.", USAGE)
    path = ("endpoints", context.name, "advice")
    if options["cancel"]:
        run = context.client.post(*path, "cancel")
    elif options["new"]:
        run = context.client.post(*path, data=parse_facts(options["fields"]), once=True)
    else:
        run = context.client.get(*path)
    if options["wait"]:
        cancel = f"advice {context.name} --cancel"
        run = wait_for_end(context, run, path, "computation", cancel)
    return text_or_data(context, run, "\n".join(_lines(run)))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    state = found["state"]
    if state in LIVE:
        yield f"Advice on {found['endpoint']}: {state}, {found['share']:.0%} {found['stage']}"
        return
    yield (
        f"Advice on {found['endpoint']}, revision {found['generation']}: {state}. "
        f"Traffic from {found['begin']} to {found['end']}."
    )
    if found["refusal"]:
        yield f"No answer from the recording. {found['refusal']}"
    rows = [_cells(row) for row in found["rows"]]
    if rows:
        yield output.table(_HEAD, rows)
    for row in found["rows"]:
        if row["text"]:
            yield f"{row['key']}: {row['text']}"
        for url in row["apply"] if row["verdict"] in ("advised", "trade_off") else ():
            yield f"  apply {row['key']}: {url}"
    yield from (f"Note: {note}" for note in found["notes"])
    for entry in found["applied"]:
        by = f", applied by {entry['by']}" if entry["by"] else ""
        yield f"{entry['label']}: {entry['change']}{by}. {entry['text']}"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    changes = ", ".join(f"{c['name']} {c['before']} → {c['after']}" for c in row["changes"])
    return (
        row["verdict"],
        changes or row["key"],
        _interval(row["money"], 1.0, "", 2),
        _interval(row["ttft_p90"], 100.0, " %", 1),
        _interval(row["hit_rate"], 100.0, " points", 1),
        row["confidence"],
    )


def _interval(one: Any, factor: float, unit: str, digits: int) -> str:
    if one is None:
        return "-"
    value, low, high = (f"{factor * one[key]:+.{digits}f}" for key in ("value", "low", "high"))
    return f"{value}{unit}" if low == high else f"{value}{unit} ({low} to {high})"


def add_to(verbs: Verbs) -> None:
    text = "show what to change, in order of money and TTFT"
    verb = endpoint_verb(verbs, "advice", text, call=advice, form=OUTPUT)
    verb.add("--new", action="store_true", help="compute new advice from the recorded traffic")
    text = "assumption of new advice: kv_kib, device_tokens or price_usd_hour"
    options = {"action": "append", "default": [], "metavar": "FIELD=VALUE"}
    verb.add("--set", dest="fields", help=text, **options)
    verb.add("--cancel", action="store_true", help="cancel the computation")
    add_wait(verb)
    verb.output()
