"""`endpoint advice NAME`: what to change, in order of money and TTFT."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import FAILED, TIMEOUT, USAGE, CommandContext, CommandError
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT, Verbs, endpoint_verb

_LIVE = ("queued", "running")
_HEAD = ("VERDICT", "CHANGE", "USD/MONTH", "TTFT P90", "HIT RATE", "CONFIDENCE")
POLL_S = 1.0


def advice(context: CommandContext) -> Any:
    options = context.options
    if options["cancel"] and options["new"]:
        raise CommandError("Use either --new or --cancel.", USAGE)
    if options["fields"] and not options["new"]:
        raise CommandError("Assumptions apply to new advice: add --new.", USAGE)
    client = context.client.advice
    if options["cancel"]:
        run = client.cancel(context.name)
    elif options["new"]:
        run = client.start(context.name, parse_facts(options["fields"]))
    else:
        run = client.get(context.name)
    if options["wait"]:
        run = _wait_for_end(context, run)
    form = options["output"]
    return "\n".join(_lines(run)) if form == output.TABLE else output.format_data(run, form)


def _wait_for_end(context: CommandContext, found: dict[str, Any]) -> dict[str, Any]:
    end, reported = time.monotonic() + context.options["timeout"], ""
    while found["state"] in _LIVE:
        line = f"  {found['share']:.0%} {found['stage']}"
        if line != reported:
            context.report(line)
            reported = line
        if time.monotonic() > end:
            text = (
                f"Timed out after {context.options['timeout']:g} s. The computation continues. "
                f"Cancel: emberline endpoint advice {context.name} --cancel"
            )
            raise CommandError(text, TIMEOUT)
        context.client.http.pause(POLL_S)
        found = context.client.advice.get(context.name)
    if found["state"] == "failed":
        raise CommandError(f"There is no advice. {found['message']}", FAILED)
    return found


def _lines(found: dict[str, Any]) -> Iterator[str]:
    state = found["state"]
    if state in _LIVE:
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
    verb.add("--wait", action="store_true", help="wait for the end of the computation")
    verb.add("--timeout", type=float, default=3600.0, help="timeout in seconds (3600)")
    verb.output()
