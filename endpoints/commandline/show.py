"""list, get, events: reading only."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from django.core.serializers.json import DjangoJSONEncoder

from endpoints import selectors
from endpoints.choices import STEP_LABELS, Step
from endpoints.models import Endpoint

_MARKS = {"done": "✓", "active": "…", "waiting": "·", "failed": "✗"}


def add_to(verbs: Any) -> None:
    listed = verbs.add_parser("list", help="all endpoints")
    add_output(listed)
    listed.set_defaults(run=list_all)
    one = verbs.add_parser("get", help="one endpoint, with its workers")
    one.add_argument("name")
    add_output(one)
    one.set_defaults(run=get)
    events = verbs.add_parser("events", help="what happened, latest last")
    events.add_argument("name")
    events.add_argument("--limit", type=int, default=50)
    events.set_defaults(run=list_events)


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text")


def list_all(options: dict[str, Any]) -> str:
    rows = list(selectors.with_workers())
    if options["output"] != "text":
        return written([selectors.document(row) for row in rows], options["output"])
    if not rows:
        return "There are no endpoints. Create one: emberline endpoint create NAME --model MODEL"
    return table(
        ("NAME", "MODEL", "ENGINE", "PHASE", "REASON", "READY", "STRATEGY", "URL"),
        [
            (
                row.name,
                row.spec["model"],
                row.spec["engine"],
                str(row.shown_phase),
                row.status.reason,
                f"{row.status.ready_replicas}/{row.spec['replicas']}",
                row.parsed.routing.effective_strategy,
                row.status.url,
            )
            for row in rows
        ],
    )


def get(options: dict[str, Any]) -> str:
    endpoint = selectors.one(options["name"])
    if options["output"] != "text":
        return written(selectors.document(endpoint), options["output"])
    return described(endpoint)


def described(endpoint: Endpoint) -> str:
    status = endpoint.status
    lines = [
        f"{endpoint.name}: {endpoint.shown_phase} ({status.reason}). {status.message}",
        *([f"  {status.remedy}"] if status.remedy else []),
        f"  model {endpoint.spec['model']}, engine {endpoint.spec['engine']}, "
        f"generation {endpoint.generation} (seen {status.observed_generation})",
        f"  url {status.url or 'not known yet'}",
        *(_step(step) for step in status.steps),
    ]
    workers = [
        (worker.name, worker.state, worker.url, str(worker.pid or ""), str(worker.restarts))
        for worker in endpoint.replicas.all()
    ]
    if workers:
        lines.append(table(("WORKER", "STATE", "URL", "PID", "RESTARTS"), workers))
    if status.detail:
        lines += ["Last lines of its log:", status.detail]
    return "\n".join(lines)


def _step(step: dict[str, str]) -> str:
    label = STEP_LABELS[Step(step["code"])]
    return f"  {_MARKS[step['state']]} {label} {step['message']}".rstrip()


def list_events(options: dict[str, Any]) -> str:
    rows = list(selectors.events(selectors.get(options["name"]))[: options["limit"]])
    return table(
        ("WHEN", "REASON", "COUNT", "MESSAGE"),
        [
            (row.last_at.strftime("%Y-%m-%d %H:%M:%S"), row.kind, str(row.count), row.message)
            for row in reversed(rows)
        ],
    )


def written(data: Any, form: str) -> str:
    text = json.dumps(data, cls=DjangoJSONEncoder, indent=2)
    return text if form == "json" else yaml.safe_dump(json.loads(text), sort_keys=False).rstrip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
