"""`manage.py emberline ...`: the command line on the console's own machine, without an account.

Requests go through the REST API in this process, so that errors are the same everywhere.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from console import local_api
from console.commandline import context
from console.commandline import parser as commandline
from endpoints.commandline.local_machine import ThisMachine


class Command(BaseCommand):
    help = "Operate endpoints, cache tiers, clusters and the console."
    # `emberline doctor` and `check` report installation problems; other commands skip the checks.
    requires_system_checks = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        commandline.add_commands(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        with local_api.without_request_log():
            ended = context.run(options, local_api.client, self.stdout, sys.stderr, ThisMachine())
        if not ended.ok:
            raise CommandError(ended.text, returncode=ended.exit_code)
        if ended.text:
            self.stdout.write(ended.text)
        if ended.exit_code:
            raise SystemExit(ended.exit_code)
