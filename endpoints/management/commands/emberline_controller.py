"""`manage.py emberline_controller`: reconcile followed namespaces without Celery, until stopped.

Safe beside Celery: claims exclude concurrent passes. `--once` runs one pass over every followed
namespace and exits with 1 if any failed.
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections
from django.utils import timezone

from console.claims import due
from endpoints.controller.models import Follow, FollowStatus
from endpoints.controller.reconciler import follow

_LOOK_S = 0.5


class Command(BaseCommand):
    help = "Follow InferenceEndpointConfig objects of the chosen namespaces."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="run one pass and exit")

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["once"]:
            self._once()
            return
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        while not stop.is_set():
            for pk in due(FollowStatus, timezone.now(), limit=100):
                follow(str(pk))
            close_old_connections()
            stop.wait(_LOOK_S)

    def _once(self) -> None:
        for pk in list(Follow.objects.values_list("pk", flat=True)):
            follow(str(pk))
        failed = FollowStatus.objects.exclude(phase="Ready").select_related("follow")
        lines = [f"{outcome.follow}: {outcome.reason} {outcome.message}" for outcome in failed]
        if lines:
            raise CommandError("\n".join(lines))
