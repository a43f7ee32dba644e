"""`endpoint benchmark ...`: load an endpoint, watch the measurements, compare two runs."""

from __future__ import annotations

import time
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import FAILED, TIMEOUT, CommandContext, CommandError
from console.commandline.verbs import add_endpoint_verb, add_group, add_verb

_HEAD = ("ID", "WHEN", "STATE", "WORKLOAD", "REQUESTS", "TTFT P50", "TTFT P90", "BY", "TITLE")
_LIVE = ("queued", "running")
_TIMES = ("ttft", "tpot", "itl", "duration", "lag")
_FIELDS = "such as workload=chat mode=rate rate=4 duration_s=60"
POLL_S = 1.0


def add_to(verbs: Any) -> None:
    text = "load an endpoint and measure what comes back"
    what = add_group(verbs, "benchmark", text, dest="what")
    output.add_output(
        add_endpoint_verb(what, "list", "its runs, the latest first", list_all), names=True
    )
    for verb, text, run in (
        ("plan", "what a run would send, and whom it would load; sends nothing", plan),
        ("start", "load it: whoever uses it feels that", start),
    ):
        made = add_endpoint_verb(what, verb, text, run)
        made.add_argument("fields", nargs="*", metavar="FIELD=VALUE", help=_FIELDS)
        made.add_argument("--trace", default="", metavar="FILE", help="lines in Mooncake's format")
        output.add_output(made)
    made.add_argument("--wait", action="store_true", help="until it has ended, with its numbers")
    made.add_argument("--timeout", type=float, default=3600.0, help="seconds to wait (3600)")
    for verb, text, run in (
        ("get", "one run", get),
        ("abort", "at once; one that has ended stays as it is", abort),
    ):
        one = add_endpoint_verb(what, verb, text, run)
        one.add_argument("id")
        output.add_output(one)
    add_verb(what, "compare", compare, "two runs, A before B", "a", "b", listing=False)


def list_all(asked: CommandContext) -> str:
    found = asked.client.benchmarks.list(asked.name)
    none = f"Nobody has measured {asked.name} yet."
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none, key="id")


def _cells(run: dict[str, Any]) -> tuple[str, ...]:
    seen = _numbers(run)
    ttft = seen.get("ttft") or {}
    return (
        run["id"],
        output.format_time(run["created_at"]),
        run["state"],
        f"{run['job'].get('workload', '')}, {run['job'].get('mode', '')}",
        str(seen.get("requests", "")),
        _ms(ttft.get("p50")),
        _ms(ttft.get("p90")),
        run["started_by"],
        run["title"],
    )


def _numbers(run: dict[str, Any]) -> dict[str, Any]:
    """Return the totals of a finished run, or those of the latest requests."""
    found = run["result"] or run["progress"].get("now") or {}
    return found if isinstance(found, dict) else {}


def _ms(seconds: Any) -> str:
    return f"{seconds * 1000:,.0f} ms" if isinstance(seconds, (int, float)) else ""


def _run_parameters(asked: CommandContext) -> dict[str, Any]:
    wish = commandline_input.parse_facts(asked.options["fields"])
    if asked.options["trace"]:
        wish["trace"] = commandline_input.read_text(asked.options["trace"])
    return wish


def plan(asked: CommandContext) -> str:
    found = asked.client.benchmarks.plan(asked.name, _run_parameters(asked))
    if asked.options["output"] != output.TABLE:
        return output.format_data(found, asked.options["output"])
    most = "at most " if found["at_most"] else ""
    lines = [
        f"It would send {most}{found['requests']:,} requests ({found['requests_s']:.4g} a second) "
        f"of {found['prompt_tokens']:,} prompt and {found['answer_tokens']:,} answer tokens "
        f"in all, for {found['seconds']:,.0f} s; {found['ends_by']} ends it."
    ]
    for one in found["endpoints"]:
        others = "?" if one["in_flight"] is None else one["in_flight"]
        lines.append(
            f"  {one['name']} ({one['phase']}, {one['strategy']}) on {one['where']}: "
            f"{len(one['workers'])} workers, {others} requests of others in flight"
        )
    return "\n".join(lines)


def start(asked: CommandContext) -> str:
    made = asked.client.benchmarks.start(asked.name, _run_parameters(asked))
    text = f"Benchmark {made['id']} of {asked.name} is accepted."
    if not asked.options["wait"]:
        return _format_run(asked, made, text)
    asked.say(text)
    return _format_run(asked, _wait_for_end(asked, made), None)


def _wait_for_end(asked: CommandContext, run: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end; a timeout reports that the run continues."""
    end, told = time.monotonic() + asked.options["timeout"], ""
    while run["state"] in _LIVE:
        line = f"  {run['state']} {run['stage']}".rstrip()
        if line != told:
            asked.say(line)
            told = line
        if time.monotonic() > end:
            stop = f"emberline endpoint benchmark abort {asked.name} {run['id']}"
            text = f"Not within {asked.options['timeout']:g} s, and it goes on. Stop it: {stop}"
            raise CommandError(text, TIMEOUT)
        asked.client.http.pause(POLL_S)
        run = asked.client.benchmarks.get(asked.name, run["id"])
    if run["state"] == "failed":
        raise CommandError(f"It has failed. {run['message']}", FAILED)
    return run


def get(asked: CommandContext) -> str:
    return _format_run(asked, asked.client.benchmarks.get(asked.name, asked.options["id"]), None)


def abort(asked: CommandContext) -> str:
    found = asked.client.benchmarks.abort(asked.name, asked.options["id"])
    return _format_run(asked, found, f"{found['id']} is {found['state']}.")


def _format_run(asked: CommandContext, run: dict[str, Any], text: str | None) -> str:
    if asked.options["output"] != output.TABLE:
        return output.format_data(run, asked.options["output"])
    if text is not None:
        return text
    told = run["message"] or run["stage"]
    lines = [
        f"{run['id']} of {run['endpoint']}: {run['state']}. {told}".rstrip(),
        *(["  Its workers are simulated: times are made up."] if run["simulated"] else []),
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
            f"{key} {_ms(one)}" for key, one in value.items() if key != "count" and one is not None
        )
    return output.cell(value)


def compare(asked: CommandContext) -> str:
    found = asked.client.benchmarks.compare(asked.options["a"], asked.options["b"])
    if asked.options["output"] != output.TABLE:
        return output.format_data(found, asked.options["output"])
    rows = [
        (
            row["label"],
            _number(row["a"]),
            _number(row["b"]),
            _format_change(row),
            ("better" if row["better"] else "worse") if row["sure"] else "not sure",
        )
        for row in found["rows"]
    ]
    lines = [found["verdict"], *(f"  But: {caveat}" for caveat in found["caveats"])]
    return "\n".join([*lines, output.table(("", "A", "B", "CHANGE (95 %)", "B IS"), rows)])


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.4g}"


def _format_change(row: dict[str, Any]) -> str:
    if row["change"] is None or row["low"] is None or row["high"] is None:
        return "?"
    return f"{row['change']:+.1%} ({row['low']:+.1%} to {row['high']:+.1%})"
