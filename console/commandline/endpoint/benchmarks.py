"""`endpoint benchmark ...`: load an endpoint, watch the measurements, compare two runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint.run import add_wait, text_or_data, wait_for_end
from console.commandline.input import parse_facts, read_text
from console.commandline.verbs import OUTPUT, Table, Verb, Verbs, endpoint_verb

_TIMES = ("ttft", "tpot", "itl", "duration", "lag")
_FIELDS = "for example workload=chat mode=rate rate=4 duration_s=60"


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    numbers = _numbers(run)
    ttft = numbers.get("ttft") or {}
    return (
        run["id"],
        output.format_time(run["created_at"]),
        run["state"],
        f"{run['job'].get('workload', '')}, {run['job'].get('mode', '')}",
        str(numbers.get("requests", "")),
        _ms(ttft.get("p50")),
        _ms(ttft.get("p90")),
        run["started_by"],
        run["title"],
    )


def _numbers(run: dict[str, Any]) -> dict[str, Any]:
    """Return the totals of a finished run, or those of the latest requests."""
    result = run["result"] or run["progress"].get("now") or {}
    return result if isinstance(result, dict) else {}


def _ms(seconds: Any) -> str:
    return f"{seconds * 1000:,.0f} ms" if isinstance(seconds, (int, float)) else ""


def _run_parameters(context: CommandContext) -> dict[str, Any]:
    fields = parse_facts(context.options["fields"])
    if context.options["trace"]:
        fields["trace"] = read_text(context.options["trace"])
    return fields


def _format_plan(found: dict[str, Any]) -> Iterator[str]:
    most = "at most " if found["at_most"] else ""
    yield (
        f"Planned load: {most}{output.count(found['requests'], 'request')} "
        f"({found['requests_s']:.4g} requests/s), {found['prompt_tokens']:,} prompt tokens and "
        f"{found['answer_tokens']:,} output tokens in {found['seconds']:,.0f} s. "
        f"Ends by: {found['ends_by']}."
    )
    for row in found["endpoints"]:
        others = "unknown" if row["in_flight"] is None else row["in_flight"]
        yield (
            f"  {row['name']} ({row['phase']}, {row['strategy']}) on {row['where']}: "
            f"{output.count(len(row['workers']), 'worker')}, other requests in flight: {others}"
        )


def plan(context: CommandContext) -> Any:
    path = ("endpoints", context.name, "benchmarks", "plan")
    return context.client.post(*path, data=_run_parameters(context))


def start(context: CommandContext) -> str:
    path, data = ("endpoints", context.name, "benchmarks"), _run_parameters(context)
    made = context.client.post(*path, data=data, once=True)
    text = f"Benchmark {made['id']} of {context.name} started."
    if not context.options["wait"]:
        return text_or_data(context, made, text)
    context.report(text)
    cancel = f"benchmark abort {context.name} {made['id']}"
    run = wait_for_end(context, made, (*path, made["id"]), "benchmark", cancel)
    return text_or_data(context, run, _format_run(run))


def abort(context: CommandContext) -> str:
    path = ("endpoints", context.name, "benchmarks", context.options["id"], "abort")
    run = context.client.post(*path)
    return text_or_data(context, run, f"{run['id']} is {run['state']}.")


def _format_run(run: dict[str, Any]) -> str:
    text = run["message"] or run["stage"]
    lines = [
        f"{run['id']} of {run['endpoint']}: {run['state']}. {text}".rstrip(),
        *(["  Simulated workers: times are not representative."] if run["simulated"] else []),
        f"  job: {' '.join(f'{key}={value}' for key, value in run['job'].items())}",
    ]
    for key, value in _numbers(run).items():
        if not isinstance(value, list):
            lines.append(f"  {key}: {_format_value(key, value)}")
    return "\n".join(lines)


def _format_value(name: str, value: Any) -> str:
    """Format times in milliseconds and quantiles without their count, which `requests` shows."""
    if isinstance(value, dict) and name in _TIMES:
        return ", ".join(
            f"{key} {_ms(number)}"
            for key, number in value.items()
            if key != "count" and number is not None
        )
    return output.cell(value)


def _format_comparison(found: dict[str, Any]) -> Iterator[str]:
    yield found["verdict"]
    yield from (f"  Caveat: {caveat}" for caveat in found["caveats"])
    yield _COMPARISON.text(found["rows"])


def _comparison(row: dict[str, Any]) -> tuple[str, ...]:
    a, b = ("-" if row[key] is None else f"{row[key]:,.4g}" for key in ("a", "b"))
    verdict = ("better" if row["better"] else "worse") if row["sure"] else "inconclusive"
    return row["label"], a, b, _format_change(row), verdict


def _format_change(row: dict[str, Any]) -> str:
    if row["change"] is None or row["low"] is None or row["high"] is None:
        return "-"
    return f"{row['change']:+.1%} ({row['low']:+.1%} to {row['high']:+.1%})"


_RUNS = Table(
    ("ID", "STARTED", "STATE", "WORKLOAD", "REQUESTS", "TTFT P50", "TTFT P90", "AUTHOR", "TITLE"),
    _cells,
    "No benchmark runs of {name}.",
)
_COMPARISON = Table(("METRIC", "A", "B", "CHANGE (95 % CI)", "B IS"), _comparison)


def add_to(verbs: Verbs) -> None:
    text = "load an endpoint and measure latency and throughput"
    runs = verbs.group("benchmark", text, dest="what")
    call = "GET endpoints/{name}/benchmarks/"
    endpoint_verb(runs, "list", "list runs, latest first", call=call, show=_RUNS)
    text = "show the planned load; sends nothing"
    _add_run(endpoint_verb(runs, "plan", text, call=plan, show=_format_plan))
    text = "start a run; the load affects other requests"
    verb = endpoint_verb(runs, "start", text, call=start, form=OUTPUT)
    _add_run(verb)
    add_wait(verb)
    call = "GET endpoints/{name}/benchmarks/{id}/"
    endpoint_verb(runs, "get", "show a run", call=call, show=_format_run).add("id")
    text = "stop a run; finished runs are unchanged"
    endpoint_verb(runs, "abort", text, call=abort, form=OUTPUT).add("id")
    text, call = "compare two runs, A before B", "GET benchmarks/compare/"
    runs.verb("compare", text, "a", "b", call=call, show=_format_comparison)


def _add_run(verb: Verb) -> None:
    verb.fields(_FIELDS, nargs="*")
    verb.add("--trace", default="", metavar="FILE", help="trace in Mooncake format")
    verb.output()
