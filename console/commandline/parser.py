"""Argument parser with every `emberline` verb, for the script and for `manage.py`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from console.commandline import session
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.endpoint import (
    advice,
    analysis,
    benchmarks,
    canary,
    changes,
    endpoints,
    keys,
    manifests,
    misses,
    traces,
    wait,
    whatif,
)
from console.commandline.platform import (
    alerts,
    cache_tiers,
    clusters,
    costs,
    dashboards,
    metrics_sources,
    models,
    people,
    receivers,
    top,
)
from console.commandline.verbs import Verbs

_COMMANDS = (
    *(clusters.add_clusters, metrics_sources.add_metrics_sources, clusters.add_follows),
    *(cache_tiers.add_cache_tiers, costs.add_instance_types, models.add_models),
    *(costs.add_cost, costs.add_budgets, costs.add_prices, costs.add_calibrations),
    *(
        costs.add_tier_prices,
        dashboards.add_dashboards,
        dashboards.add_boards,
        alerts.add_alerts,
        alerts.add_silences,
    ),
    *(receivers.add_receivers, people.add_users, people.add_teams, people.add_tokens),
    *(people.add_audit, analysis.add_preflight, misses.add_misses, clusters.add_rekey),
    top.add_top,
)


class LatePositionals(argparse.ArgumentParser):
    """Takes optional positionals after options, too: `start NAME --begin 1h replicas=3`, and fields
    on both sides of one.

    Before Python 3.13, argparse assigns nothing to `replicas=3`'s argument as soon as NAME is read,
    and then refuses the word.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parsed, rest = super().parse_known_args(args, namespace)
        fields = getattr(parsed, "fields", None)
        if isinstance(fields, list) and not any(word.startswith("-") for word in rest):
            parsed.fields, rest = [*fields, *rest], []
        return parsed, rest

    def _match_arguments_partial(
        self, actions: Sequence[argparse.Action], arg_strings_pattern: str
    ) -> list[int]:
        counts: list[int] = super()._match_arguments_partial(actions, arg_strings_pattern)
        while counts and counts[-1] == 0 and "A" in arg_strings_pattern[sum(counts) :]:
            counts.pop()
        return counts


def build_parser(*more: Callable[[Verbs], None]) -> argparse.ArgumentParser:
    """Return the parser of the `emberline` script, with console selection options; `more` adds its
    own commands.
    """
    parser = argparse.ArgumentParser(
        prog="emberline",
        description="Operate inference endpoints on this machine's console or a remote one.",
        epilog="Without a login, commands use the console of this machine. Exit codes: 0 done, "
        "1 failed, 2 usage, 3 refused, 4 not found, 5 not allowed, 6 conflict, 7 timeout, "
        "8 unreachable.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--profile", default="", help="saved login to use, or to create with login")
    where.add_argument("--local", action="store_true", help="use the console of this machine")
    add_commands(parser, session.add_to, *more)
    return parser


def add_commands(parser: argparse.ArgumentParser, *more: Callable[[Verbs], None]) -> None:
    late: type[argparse.ArgumentParser] = type("VerbParser", (LatePositionals, type(parser)), {})
    rooms = Verbs(
        parser.add_subparsers(dest="room", required=True, metavar="COMMAND", parser_class=late)
    )
    text = "create the demo endpoint if it does not exist (on the console's machine)"
    rooms.verb("seed-demo", text, call=seed_demo)
    verbs = rooms.group("endpoint", "manage endpoints")
    modules = (endpoints, changes, keys, manifests, wait, analysis, benchmarks)
    for module in (*modules, canary, traces, whatif, advice):
        module.add_to(verbs)
    for add_to in (*_COMMANDS, *more):
        add_to(rooms)
    rooms.finish()


def seed_demo(context: CommandContext) -> str:
    if context.here is None:
        raise CommandError("seed-demo runs on the console's machine only.", USAGE)
    return context.here.seed_demo()
