"""`manage.py emberline_alertmanager`: write the configuration of the Alertmanager of this pod.

Runs beside Alertmanager in the chart's pod and shares a folder with it; on one machine the
console's worker does the same.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, close_old_connections

from console.launcher.alertmanager import write_configuration
from dashboards.alerts.alertmanager import api_client, config_file

PERIOD_S = 5.0


class Command(BaseCommand):
    help = "Write Alertmanager's configuration when receivers or routes change."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="write the first files and end")

    def handle(self, *_args: Any, once: bool = False, **_options: Any) -> None:
        path = settings.EMBERLINE.alertmanager_file
        if path is None:
            raise CommandError("EMBERLINE_ALERTMANAGER_FILE names no file.")
        if once:
            write_configuration(Path(path).parent, api_client.own_password())
            return
        while True:
            close_old_connections()
            try:
                if config_file.has_work():
                    config_file.sync()
            except Error as error:  # the database is away; Alertmanager keeps its configuration
                self.stderr.write(f"Database not available: {type(error).__name__}")
            time.sleep(PERIOD_S)
