"""Argument parser with every `emberline` verb, for the script and for `manage.py`."""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import session
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.endpoint import (
    benchmarks,
    changes,
    decisions,
    doctor,
    drift,
    endpoints,
    keys,
    manifests,
    preview,
    wait,
)
from console.commandline.platform import (
    alerts,
    audit,
    budgets,
    cache_tiers,
    clusters,
    costs,
    dashboards,
    follows,
    instance_types,
    metrics_sources,
    notifications,
    people,
)
from console.commandline.verbs import add_group, add_verb

ENDPOINT_VERBS = (
    *(endpoints.add_to, endpoints.add_logs_to, changes.add_to, drift.add_to, keys.add_to),
    *(manifests.add_to, wait.add_to, doctor.add_to, decisions.add_to, decisions.add_explain_to),
    *(preview.add_to, benchmarks.add_to),
)
COMMANDS = (
    *(clusters, metrics_sources, follows, cache_tiers, instance_types, costs, budgets),
    *(dashboards, alerts, notifications, people, audit),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the `emberline` script, with console selection options."""
    parser = argparse.ArgumentParser(
        prog="emberline",
        description="Create, change, watch and delete endpoints, here or on a console far away.",
        epilog="Without a login it asks the console of this machine. Exit codes: 0 done, 1 failed, "
        "2 usage, 3 refused, 4 not found, 5 not allowed, 6 conflict, 7 timeout, 8 unreachable.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--profile", default="", help="a saved login, or its name to be")
    where.add_argument("--local", action="store_true", help="the console of this machine")
    rooms = add_commands(parser)
    session.add_to(rooms)
    return parser


def add_commands(parser: argparse.ArgumentParser) -> Any:
    rooms = parser.add_subparsers(dest="room", required=True, metavar="COMMAND")
    text = "create the demo endpoint if there is none (on the console's own machine)"
    add_verb(rooms, "seed-demo", seed_demo, text)
    verbs = add_group(rooms, "endpoint", "endpoints")
    for add_to in ENDPOINT_VERBS:
        add_to(verbs)
    for room in COMMANDS:
        room.add_to(rooms)
    doctor.add_room(rooms)
    clusters.add_rekey(rooms)
    return rooms


def seed_demo(asked: CommandContext) -> str:
    if asked.here is None:
        raise CommandError("The demo is made to the measure of the console's own machine.", USAGE)
    return asked.here.seed_demo()
