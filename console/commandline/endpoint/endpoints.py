"""`endpoint list | get | events | revisions | logs`: state and history of endpoints."""

from __future__ import annotations

import argparse
from contextlib import suppress
from itertools import islice
from typing import Any

from console.client.errors import Conflict
from console.client.logs import MAX_LINES, TAIL_LINES, read_log
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import OUTPUT_NAMES, Table, Verbs
from endpoints.choices import STEP_LABELS

_MARKS = {"done": "✓", "active": "…", "waiting": "·", "failed": "✗"}
_LABELS = {str(step): step_label for step, step_label in STEP_LABELS.items()}


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    spec = one["spec"]
    routing = spec.get("routing", {})
    return (
        one["name"],
        str(spec.get("model", "")),
        str(spec.get("engine", "")),
        one["phase"],
        one["reason"],
        f"{one['ready_replicas']}/{one['wanted_replicas']}",
        # With routing off, the router still forwards requests, round-robin.
        routing.get("strategy", "") if routing.get("enabled", True) else "roundrobin",
        one["public_url"] or one["url"],
    )


def _reason(one: dict[str, Any]) -> str:
    return "" if one["reason"] == one["phase"] else f" ({one['reason']})"


def format_endpoint(one: dict[str, Any]) -> str:
    spec = one["spec"]
    lines = [
        f"{one['name']}: {one['phase']}{_reason(one)}. {one['message']}",
        *([f"  {one['remedy']}"] if one["remedy"] else []),
        f"  model {spec.get('model')}, engine {spec.get('engine')}, "
        f"generation {one['generation']} (observed {one['observed_generation']})",
        f"  url {one['url'] or 'not assigned yet'}",
        *([f"  outside the cluster {one['public_url']}"] if one["public_url"] else []),
        *(
            f"  {_MARKS.get(step['state'], '?')} {step_label(step['code'])} "
            f"{step['message']}".rstrip()
            for step in one["steps"]
        ),
    ]
    workers = [
        (row["name"], row["state"], row["url"], str(row["pid"] or ""), str(row["restarts"]))
        for row in one["workers"]
    ]
    if workers:
        lines.append(output.table(("WORKER", "STATE", "URL", "PID", "RESTARTS"), workers))
    if one["detail"]:
        lines.append(f"Last log lines: emberline endpoint logs {one['name']}")
    return "\n".join(lines)


def step_label(step: str) -> str:
    """Return the label of a rollout step; newer consoles may have unknown steps."""
    return _LABELS.get(step, step)


def _event(row: dict[str, Any]) -> tuple[str, ...]:
    return output.format_time(row["last_at"]), row["reason"], str(row["count"]), row["message"]


def _revision(row: dict[str, Any]) -> tuple[str, ...]:
    moment = output.format_time(row["created_at"])
    return str(row["number"]), moment, row["author"], row["verb"], str(row.get("note", ""))


def list_events(context: CommandContext) -> Any:
    rows = context.client.pages("endpoints", context.name, "events")
    return reversed(list(islice(rows, context.options["limit"])))


def list_revisions(context: CommandContext) -> Any:
    return reversed(list(context.client.pages("endpoints", context.name, "revisions")))


def logs(context: CommandContext) -> str:
    """Print the log; its name goes to standard error, so that the log can be piped."""
    options = context.options
    which = (context.name, options["worker"], options["container"], options["tail"])
    try:
        of, lines = read_log(context.client, *which, follow=options["follow"])
    except Conflict as error:
        if error.code != "no_worker":
            raise
        name = context.name
        return f"{name} has no workers yet. Wait for them: emberline endpoint wait {name}"
    context.report(_log_heading(of))
    with suppress(KeyboardInterrupt):
        for line in lines:
            context.out.write(f"{output.strip_control_characters(line)}\n")
            context.out.flush()
    return ""


def _log_heading(of: dict[str, Any]) -> str:
    more = f"; {of['others']} more: --worker, --container" if of["others"] else ""
    return f"# {of['container']} of {of['worker']}, {of['state']}{more}"


def _lines(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= MAX_LINES:
        raise argparse.ArgumentTypeError(f"{text!r}: enter an integer from 1 to {MAX_LINES}.")
    return int(text)


_HEAD = ("NAME", "MODEL", "ENGINE", "PHASE", "REASON", "READY", "STRATEGY", "URL")
_NONE = "No endpoints. Create one: emberline endpoint create NAME --model MODEL"
_FILTERS = ("phase", "cluster", "team", "model", "strategy")
_EVENTS = Table(("TIME", "REASON", "COUNT", "MESSAGE"), _event, names=False)
_REVISIONS = Table(("REVISION", "TIME", "AUTHOR", "ACTION", "NOTE"), _revision, names=False)


def list_all(context: CommandContext) -> str:
    filters = {name: context.options[name] for name in _FILTERS}
    table = Table(_HEAD, _cells, "No endpoint matches." if any(filters.values()) else _NONE)
    return table.format(context.client.pages("endpoints", **filters), context.options)


def add_to(verbs: Verbs) -> None:
    verb = verbs.verb("list", "list endpoints", call=list_all, form=OUTPUT_NAMES)
    for name in _FILTERS:
        verb.add(f"--{name}", default="", help=f"filter by {name}")
    verbs.verb(
        "get",
        "show an endpoint with its workers",
        "name",
        call="GET endpoints/{name}/",
        form=OUTPUT_NAMES,
        show=format_endpoint,
    )
    verb = verbs.verb("events", "list events, latest last", "name", call=list_events, show=_EVENTS)
    verb.add("--limit", type=int, default=50, help="number of latest events (50)")
    text = "list revisions, latest last"
    verbs.verb("revisions", text, "name", call=list_revisions, show=_REVISIONS)
    verb = verbs.verb("logs", "print the log of a worker or router", "name", call=logs)
    verb.add("--worker", default="", help="worker or router (the first worker)")
    verb.add("--container", default="", help="container (the first)")
    text = f"number of last lines ({TAIL_LINES})"
    verb.add("--tail", type=_lines, default=TAIL_LINES, help=text)
    verb.add("-f", "--follow", action="store_true", help="follow new lines until Ctrl-C")
