"""`manage.py emberline ...`, or `emberline`: endpoints and clusters from the command line.

Runs on the console's own machine, as the console: it needs no account. Every refusal names the
field, the value and the remedy, in the same words as the form and the API.
"""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console.clusters import commandline as clusters
from console.refusals import Refused
from console.system import commandline as system
from endpoints.commandline import (
    create,
    drift,
    follow,
    keys,
    logs,
    manifests,
    parts,
    read,
    show,
    wait,
)
from endpoints.commandline.demo import seed_demo
from endpoints.refusals import RefusalError
from endpoints.spec import SpecErrors


class Command(BaseCommand):
    help = "Create, change, watch and delete endpoints, and say which clusters they may use."
    # What the installation lacks is told where it is asked for (`emberline doctor`, `check`), and
    # not in front of every answer.
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        # As the script `emberline` it is called once, not twice.
        parser.prog = parser.prog.replace("emberline emberline", "emberline")
        rooms = parser.add_subparsers(dest="room", required=True, metavar="COMMAND")
        rooms.add_parser(
            "seed-demo", help="create the demo endpoint if there is none"
        ).set_defaults(run=seed_demo)
        endpoint = rooms.add_parser("endpoint", help="endpoints")
        verbs = endpoint.add_subparsers(dest="verb", required=True, metavar="VERB")
        for part in (show, logs, create, drift, keys, manifests, wait, *parts.registered()):
            part.add_to(verbs)
        clusters.add_to(rooms)
        follow.add_to(rooms)
        system.add_to(rooms)

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            answer = options["run"](options)
        except (SpecErrors, RefusalError, Refused) as error:
            raise CommandError("\n".join(read.explained(item) for item in error.errors)) from error
        text, code = (
            (answer.text, answer.exit_code) if isinstance(answer, parts.Answer) else (answer, 0)
        )
        if text:
            self.stdout.write(text)
        if code:
            raise SystemExit(code)
