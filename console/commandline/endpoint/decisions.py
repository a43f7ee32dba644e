"""`endpoint decisions | decision | explain`: routing decisions recorded by the router."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import FAILED, USAGE, CommandContext, CommandError
from console.commandline.verbs import add_verb

_HEAD = ("ID", "TIME", "STRATEGY", "CHOSEN", "REASON", "PROMPT", "CACHED", "TTFT", "STATUS")


def add_to(verbs: Any) -> None:
    listed = add_verb(verbs, "decisions", decisions, "the router's latest, latest first", "name")
    listed.add_argument("--limit", type=int, default=50, help="1 to 500 (50)")
    output.add_output(listed)
    one = add_verb(verbs, "decision", decision, "one with its candidates and their scores", "name")
    one.add_argument("id", help="as decisions shows it, or an answer's x-emberline-decision")
    output.add_output(one)


def decisions(asked: CommandContext) -> str:
    found = asked.client.endpoints.decisions(asked.name, asked.options["limit"])
    none = f"The router of {asked.name} has decided nothing yet."
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    ttft, cached = one.get("ttft_s"), one.get("cached_tokens")
    return tuple(
        str(cell) if cell is not None else ""
        for cell in (
            one.get("id"),
            _format_time(one.get("time")),
            one.get("strategy"),
            one.get("chosen"),
            one.get("reason"),
            one.get("prompt_tokens"),
            one.get("predicted_cached_tokens") if cached is None else cached,
            f"{ttft * 1000:.0f} ms" if isinstance(ttft, (int, float)) else "",
            one.get("status"),
        )
    )


def decision(asked: CommandContext) -> str:
    found = asked.client.endpoints.decision(asked.name, asked.options["id"])
    form = asked.options["output"]
    return format_decision(found) if form == output.TABLE else output.format_data(found, form)


def format_decision(found: dict[str, Any]) -> str:
    """Format a decision record, its candidates as a table."""
    candidates = found.get("candidates") or []
    facts = [
        f"{key}: {value if isinstance(value, str) else output.truncate(value, 200)}"
        for key, value in found.items()
        if key != "candidates" and value not in (None, "", [], {})
    ]
    return "\n".join([*facts, *_candidates(candidates, found.get("chosen"))])


def _candidates(found: list[dict[str, Any]], chosen: Any) -> list[str]:
    if not found:
        return []
    columns = list(dict.fromkeys(key for one in found for key in one))
    rows = [
        [
            "→" if chosen in (one.get("worker"), one.get("id")) else "",
            *(output.cell(one.get(key)) for key in columns),
        ]
        for one in found
    ]
    return [output.table(["", *(key.upper() for key in columns)], rows)]


def _format_time(epoch: Any) -> str:
    if not isinstance(epoch, (int, float)):
        return str(epoch or "")
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M:%S")


def add_explain_to(verbs: Any) -> None:
    parser = add_verb(verbs, "explain", explain, "where a request would go now, and why", "name")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="one user's message; - reads standard input")
    what.add_argument("-f", "--file", help="a request's body as JSON or YAML; - standard input")
    parser.add_argument("--strategy", default="", help="another than the one in force")
    parser.add_argument("--session", default="", help="as callers name theirs")
    parser.add_argument("--key", default="", help="id of the key it is sent with")
    output.add_output(parser)


def explain(asked: CommandContext) -> str:
    options = asked.options
    found = asked.client.endpoints.explain(
        asked.name,
        _body(options),
        strategy=options["strategy"],
        session=options["session"],
        key=options["key"],
    )
    if options["output"] != output.TABLE:
        return output.format_data(found, options["output"])
    return "\n\n".join(_routers(found["routers"]))


def _body(options: dict[str, Any]) -> dict[str, Any]:
    if options["file"] is not None:
        return commandline_input.read_document(options["file"])
    prompt = (
        commandline_input.read_text("-") if options["prompt"] == "-" else str(options["prompt"])
    )
    if not prompt.strip():
        raise CommandError("The prompt is empty.", USAGE)
    return {"messages": [{"role": "user", "content": prompt}]}


def _routers(routers: list[dict[str, Any]]) -> Iterator[str]:
    """Format the result of each router; raise if none returned one."""
    if routers and all(one["error"] for one in routers):
        raise CommandError("\n".join(dict.fromkeys(one["error"] for one in routers)), FAILED)
    for number, one in enumerate(routers, 1):
        head = [f"Router {number} of {len(routers)}:"] if len(routers) > 1 else []
        yield "\n".join([*head, one["error"] or format_decision(one["ranking"] or {})])
