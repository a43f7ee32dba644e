"""`endpoint whatif ...`: predict another configuration from recorded traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import FAILED, TIMEOUT, CommandContext, CommandError
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT, OUTPUT_DATA, Table, Verbs, endpoint_verb

_LIVE = ("queued", "running")
_FIELDS = "for example replicas=6 strategy=kvaware l1_gib=64 rate=2"
_RATES = ("hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate")
_NO_TIMES = ("no answer", "hit rates only")
POLL_S = 1.0


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    result = run["result"] or {}
    change = (result.get("change") or {}).get("ttft_p90_s")
    refusal = result.get("backtest", {}).get("refusal")
    return (
        run["id"],
        output.format_time(run["created_at"]),
        f"{run['state']} {run['share']:.0%}" if run["state"] in _LIVE else run["state"],
        _format_changes(run),
        f"{change['value']:+.1%}"
        if change
        else _NO_TIMES[bool(result["candidate"])]
        if refusal
        else "",
        run["started_by"],
        run["title"],
    )


def _format_changes(run: dict[str, Any]) -> str:
    before, after = run["present_values"], run["candidate_values"]
    changed = [f"{name}={after[name]}" for name in after if after[name] != before.get(name)]
    return " ".join(changed) or "none"


def start(context: CommandContext) -> str:
    fields = parse_facts(context.options["fields"])
    for name in ("begin", "end", "trace", "title"):
        if context.options[name]:
            fields[name] = context.options[name]
    made = context.client.whatifs.start(context.name, fields)
    text = f"What-if analysis {made['id']} of {context.name} started."
    if not context.options["wait"]:
        return _text_or_data(context, made, text)
    context.report(text)
    run = _wait_for_end(context, made)
    return _text_or_data(context, run, "\n".join(_format_run(run)))


def _wait_for_end(context: CommandContext, run: dict[str, Any]) -> dict[str, Any]:
    end, reported = time.monotonic() + context.options["timeout"], ""
    while run["state"] in _LIVE:
        line = f"  {run['share']:.0%} {run['stage']}"
        if line != reported:
            context.report(line)
            reported = line
        if time.monotonic() > end:
            stop = f"emberline endpoint whatif cancel {context.name} {run['id']}"
            text = (
                f"Timed out after {context.options['timeout']:g} s. The analysis continues. "
                f"Cancel: {stop}"
            )
            raise CommandError(text, TIMEOUT)
        context.client.http.pause(POLL_S)
        run = context.client.whatifs.get(context.name, run["id"])
    if run["state"] == "failed":
        raise CommandError(f"The analysis failed. {run['message']}", FAILED)
    return run


def _format_run(run: dict[str, Any]) -> Iterator[str]:
    state = run["message"] or run["stage"]
    yield f"{run['id']} of {run['endpoint']}: {run['state']}. {state}".rstrip()
    yield f"  changes: {_format_changes(run)}"
    result = run["result"]
    if not result:
        return
    tested = result["backtest"]
    for row in tested["rows"]:
        predicted, measured = (
            output.format_figure(row[name]) for name in ("predicted", "measured")
        )
        figures = f"predicted {predicted}, measured {measured}"
        yield f"  backtest {row['name']}: {figures}, error {row['error']:+.1%}"
    if tested["refusal"]:
        answer = "Hit rates only." if result["candidate"] else "No answer."
        yield f"  {answer} {tested['refusal']}"
    elif result.get("canary"):
        yield f"  {result['canary']}"
    if result["candidate"]:
        yield _FIGURES.text(
            [
                (name, result["present"].get(name), metric, result["change"].get(name))
                for name, metric in result["candidate"].items()
            ]
        )
    if result.get("isolation"):
        yield from _format_isolation(result["isolation"])


def _format_isolation(found: dict[str, Any]) -> Iterator[str]:
    yield f"  isolation by {found['isolation']}:"
    yield _SCOPES.text(found["rows"])
    for prefix in found["prefixes"]:
        yield (
            f"  shared prefix: {prefix['tokens']} tokens, {prefix['scopes']} scopes, "
            f"{prefix['requests']} requests"
        )


def _scope(row: dict[str, Any]) -> tuple[str, ...]:
    kind, _, digest = row["scope"].partition(" ")
    return (
        f"{kind} {row.get('name') or digest}".strip() or "all",
        str(row["requests"]),
        _estimate(row["present"].get("hit_rate")),
        _estimate(row["candidate"].get("hit_rate")),
        *(_change(name, row["change"].get(name)) for name in ("ttft_p50_s", "ttft_p90_s")),
        _estimate(row["added_prefill_s_per_hour"]),
        _estimate(row["added_usd_per_month"]),
        str(row["first_sent_elsewhere_tokens"]),
    )


def _figure(row: tuple[str, Any, Any, Any]) -> tuple[str, ...]:
    name, present, candidate, change = row
    return name, _estimate(present), _estimate(candidate), _change(name, change)


def _estimate(one: Any) -> str:
    if one is None:
        return "-"
    value, low, high = (output.format_figure(one[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _change(name: str, one: Any) -> str:
    if one is None:
        return "-"
    unit = " points" if name in _RATES else " %"
    value, low, high = (f"{100 * one[key]:+.1f}" for key in ("value", "low", "high"))
    return f"{value}{unit} ({low} to {high})"


def cancel(context: CommandContext) -> str:
    run = context.client.whatifs.cancel(context.name, context.options["id"])
    return _text_or_data(context, run, f"{run['id']} is {run['state']}.")


def delete(context: CommandContext) -> str:
    context.client.whatifs.delete(context.name, context.options["id"])
    return f"Deleted {context.options['id']}."


def _text_or_data(context: CommandContext, run: dict[str, Any], text: str) -> str:
    form = context.options["output"]
    return text if form == output.TABLE else output.format_data(run, form)


_RUNS = Table(
    ("ID", "STARTED", "STATE", "CHANGES", "TTFT P90", "AUTHOR", "TITLE"),
    _cells,
    "No what-if analyses of {name}.",
)
_SCOPES = Table(
    (
        *("SCOPE", "REQUESTS", "HIT RATE", "ISOLATED", "TTFT P50", "TTFT P90", "PREFILL S/H"),
        *("USD/MONTH", "FIRST SENT BY OTHERS"),
    ),
    _scope,
)
_FIGURES = Table(("METRIC", "PRESENT", "CANDIDATE", "CHANGE (90 % CI)"), _figure)


def add_to(verbs: Verbs) -> None:
    text = "predict another configuration from recorded traffic"
    runs = verbs.group("whatif", text, client="whatifs", dest="what")
    endpoint_verb(runs, "list", "list analyses, latest first", show=_RUNS)
    text = "show the present values"
    endpoint_verb(runs, "present", text, form=OUTPUT_DATA, show=output.format_json)
    verb = endpoint_verb(runs, "start", "start an analysis", call=start, form=OUTPUT)
    verb.fields(_FIELDS, nargs="*")
    verb.add("--begin", default="", metavar="TIME", help="begin of the recorded period")
    verb.add("--end", default="", metavar="TIME", help="end of the recorded period")
    verb.add("--trace", default="", metavar="NAME", help="imported trace to replay instead")
    verb.add("--title", default="", help="title of the analysis")
    verb.add("--wait", action="store_true", help="wait for the end and print the results")
    verb.add("--timeout", type=float, default=3600.0, help="timeout in seconds (3600)")
    verb.output()
    endpoint_verb(runs, "get", "show an analysis", show=_format_run).add("id")
    text = "cancel an analysis; an ended one is unchanged"
    endpoint_verb(runs, "cancel", text, call=cancel, form=OUTPUT).add("id")
    verb = endpoint_verb(runs, "delete", "delete an ended analysis", call=delete)
    verb.add("id")
    verb.ask_first("Analysis {id} and its results are deleted.")
