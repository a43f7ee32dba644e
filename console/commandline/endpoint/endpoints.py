"""`endpoint list | get | events | revisions | logs`: read-only verbs."""

from __future__ import annotations

import argparse
from contextlib import suppress
from itertools import islice
from typing import Any

from console.client.documents import Endpoint, EndpointEventDocument, Revision
from console.client.errors import Conflict
from console.client.logs import MAX_LINES, TAIL_LINES, LogEnd
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_verb
from endpoints.choices import STEP_LABELS

_MARKS = {"done": "✓", "active": "…", "waiting": "·", "failed": "✗"}
_HEAD = ("NAME", "MODEL", "ENGINE", "PHASE", "REASON", "READY", "STRATEGY", "URL")
_LABELS = {str(step): step_label for step, step_label in STEP_LABELS.items()}


def add_to(verbs: Any) -> None:
    listed = add_verb(verbs, "list", list_all, "all endpoints")
    for name in ("phase", "cluster", "team", "model", "strategy"):
        listed.add_argument(f"--{name}", default="", help=f"only those of this {name}")
    output.add_output(listed, names=True)
    add_verb(verbs, "get", get, "one endpoint, with its workers", "name", listing=True)
    events = add_verb(verbs, "events", list_events, "what happened, latest last", "name")
    events.add_argument("--limit", type=int, default=50, help="so many of the latest (50)")
    output.add_output(events)
    add_verb(
        verbs,
        "revisions",
        revisions,
        "what was wanted, by whom; latest last",
        "name",
        listing=False,
    )


def list_all(asked: CommandContext) -> str:
    filters = {
        name: asked.options[name] for name in ("phase", "cluster", "team", "model", "strategy")
    }
    none = "There are no endpoints. Create one: emberline endpoint create NAME --model MODEL"
    if any(filters.values()):
        none = "No endpoint is so."
    found = asked.client.endpoints.list(**filters)
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: Endpoint) -> tuple[str, ...]:
    spec = one["spec"]
    routing = spec.get("routing", {})
    return (
        one["name"],
        str(spec.get("model", "")),
        str(spec.get("engine", "")),
        one["phase"],
        one["reason"],
        f"{one['ready_replicas']}/{one['replicas']}",
        # With routing off, the router still forwards requests, round-robin.
        routing.get("strategy", "") if routing.get("enabled", True) else "roundrobin",
        one["url"],
    )


def get(asked: CommandContext) -> str:
    endpoint = asked.client.endpoints.get(asked.name)
    form = asked.options["output"]
    if form == output.NAME:
        return endpoint["name"]
    return format_endpoint(endpoint) if form == output.TABLE else output.format_data(endpoint, form)


def format_endpoint(one: Endpoint) -> str:
    spec = one["spec"]
    lines = [
        f"{one['name']}: {one['phase']} ({one['reason']}). {one['message']}",
        *([f"  {one['remedy']}"] if one["remedy"] else []),
        f"  model {spec.get('model')}, engine {spec.get('engine')}, "
        f"generation {one['generation']} (seen {one['observed_generation']})",
        f"  url {one['url'] or 'not known yet'}",
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
        lines += ["Last lines of its log:", output.strip_control_characters(one["detail"])]
    return "\n".join(lines)


def step_label(step: str) -> str:
    """Return the label of a rollout step; newer consoles may have unknown steps."""
    return _LABELS.get(step, step)


def list_events(asked: CommandContext) -> str:
    latest = list(islice(asked.client.endpoints.events(asked.name), asked.options["limit"]))
    return output.rows(
        reversed(latest),
        asked.options["output"],
        ("WHEN", "REASON", "COUNT", "MESSAGE"),
        _event,
    )


def _event(row: EndpointEventDocument) -> tuple[str, ...]:
    return output.format_time(row["last_at"]), row["reason"], str(row["count"]), row["message"]


def revisions(asked: CommandContext) -> str:
    latest = list(asked.client.endpoints.revisions(asked.name))
    return output.rows(
        reversed(latest),
        asked.options["output"],
        ("REVISION", "WHEN", "WHO", "WHAT", "NOTE"),
        _revision,
    )


def _revision(row: Revision) -> tuple[str, ...]:
    moment = output.format_time(row["created_at"])
    return str(row["number"]), moment, row["author"], row["verb"], str(row.get("note", ""))


def add_logs_to(verbs: Any) -> None:
    parser = add_verb(verbs, "logs", logs, "the log of a worker or a router", "name")
    parser.add_argument("--worker", default="", help="which one; the first if none is named")
    parser.add_argument("--container", default="", help="which of its containers")
    parser.add_argument(
        "--tail", type=_lines, default=TAIL_LINES, help=f"so many lines of its end ({TAIL_LINES})"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")


def logs(asked: CommandContext) -> str:
    """Print the log; its name goes to standard error, so that the log can be piped."""
    options = asked.options
    which = (asked.name, options["worker"], options["container"], options["tail"])
    try:
        of, lines = asked.client.endpoints.logs(*which, follow=options["follow"])
    except Conflict as error:
        if error.code != "no_worker":
            raise
        return f"{asked.name} has no worker yet: emberline endpoint wait {asked.name}"
    asked.say(_log_heading(of))
    with suppress(KeyboardInterrupt):
        for line in lines:
            asked.out.write(f"{output.strip_control_characters(line)}\n")
            asked.out.flush()
    return ""


def _log_heading(of: LogEnd) -> str:
    more = f"; {of['others']} more: --worker, --container" if of["others"] else ""
    return f"# {of['container']} of {of['worker']}, {of['state']}{more}"


def _lines(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= MAX_LINES:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number from 1 to {MAX_LINES}.")
    return int(text)
