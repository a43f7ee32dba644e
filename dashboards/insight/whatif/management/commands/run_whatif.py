"""`run_whatif ID`: run a claimed what-if analysis; started by the sweep."""

from __future__ import annotations

import argparse
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand

from dashboards.insight.whatif.lifecycle import execute, lower_priority


class Command(BaseCommand):
    help = "Run a what-if analysis that the console has claimed."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("run", type=UUID)

    def handle(self, *_args: Any, **options: Any) -> None:
        lower_priority()
        execute(options["run"])
