"""`endpoint whatif ...`: predict another configuration from recorded traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint.run import LIVE, add_wait, text_or_data, wait_for_end
from console.commandline.input import parse_facts
from console.commandline.verbs import OUTPUT, OUTPUT_DATA, Table, Verbs, endpoint_verb

_FIELDS = "for example replicas=6 strategy=kvaware l1_gib=64 rate=2"
_RATES = ("hit_rate", "device_hit_rate", "l1_hit_rate", "l2_hit_rate")
_NO_TIMES = ("no answer", "hit rates only")


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    result = run["result"] or {}
    change = (result.get("change") or {}).get("ttft_p90_s")
    refused = bool(result.get("backtest", {}).get("refusal"))
    answer = f"{change['value']:+.1%}" if change else _NO_TIMES[bool(result.get("candidate"))]
    return (
        run["id"],
        output.format_time(run["created_at"]),
        f"{run['state']} {run['share']:.0%}" if run["state"] in LIVE else run["state"],
        _format_changes(run),
        answer if change or refused else "",
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
    made = context.client.post("endpoints", context.name, "what-if", data=fields, once=True)
    text = f"What-if analysis {made['id']} of {context.name} started."
    if not context.options["wait"]:
        return text_or_data(context, made, text)
    context.report(text)
    run = wait_for_end(
        context,
        made,
        ("endpoints", context.name, "what-if", made["id"]),
        "analysis",
        f"whatif cancel {context.name} {made['id']}",
    )
    return text_or_data(context, run, "\n".join(_format_run(run)))


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
    path = ("endpoints", context.name, "what-if", context.options["id"], "cancel")
    run = context.client.post(*path)
    return text_or_data(context, run, f"{run['id']} is {run['state']}.")


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
    runs, path = verbs.group("whatif", text, dest="what"), "endpoints/{name}/what-if/"
    endpoint_verb(runs, "list", "list analyses, latest first", call=f"GET {path}", show=_RUNS)
    text = "show the present values"
    call = f"GET {path}present/"
    endpoint_verb(runs, "present", text, call=call, form=OUTPUT_DATA, show=output.format_json)
    verb = endpoint_verb(runs, "start", "start an analysis", call=start, form=OUTPUT)
    verb.fields(_FIELDS, nargs="*")
    verb.add("--begin", default="", metavar="TIME", help="begin of the recorded period")
    verb.add("--end", default="", metavar="TIME", help="end of the recorded period")
    verb.add("--trace", default="", metavar="NAME", help="imported trace to replay instead")
    verb.add("--title", default="", help="title of the analysis")
    add_wait(verb)
    verb.output()
    call = f"GET {path}{{id}}/"
    endpoint_verb(runs, "get", "show an analysis", call=call, show=_format_run).add("id")
    text = "cancel an analysis; an ended one is unchanged"
    endpoint_verb(runs, "cancel", text, call=cancel, form=OUTPUT).add("id")
    call = f"DELETE {path}{{id}}/"
    verb = endpoint_verb(
        runs, "delete", "delete an ended analysis", call=call, show="Deleted {id}."
    )
    verb.add("id")
    verb.ask_first("Analysis {id} and its results are deleted.")
