"""`/healthz` (process) and `/readyz` (database, broker, disk).

Checks have deadlines; responses contain no secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import current_app
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.core import disk
from console.tasks import PUBLISH_OPTIONS

log = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def healthz(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    results = verdicts()
    ready = not any(verdict.startswith("failed") for verdict in results.values())
    return JsonResponse({"ready": ready, "checks": results}, status=200 if ready else 503)


def verdicts() -> dict[str, str]:
    """Return "ok", or "failed: " or "low: " with the cause, for database, broker and disk."""
    checks: dict[str, Callable[[], None]] = {"database": _database, "broker": _broker}
    states = {name: _verdict(name, check) for name, check in checks.items()}
    return states | {"disk": _disk()}


def _disk() -> str:
    """Check the disk; a full one fails readiness only if it holds the database."""
    try:
        space = disk.read_disk(settings.EMBERLINE.var)
    except OSError as error:
        return f"failed: {error.strerror}"
    if space.state is disk.DiskState.OK:
        return "ok"
    failed = space.state is disk.DiskState.FULL and connection.vendor == "sqlite"
    return f"{'failed: full' if failed else space.state}: {space.text}"


def _verdict(name: str, check: Callable[[], None]) -> str:
    """Return the error's class only: its text may contain a password."""
    try:
        check()
    except Exception as error:  # noqa: BLE001  (any error means not ready)
        log.warning("Readiness check %s failed: %s", name, type(error).__name__)
        return f"failed: {type(error).__name__}"
    return "ok"


def _database() -> None:
    """Raise if the database cannot be written either: a read-only volume or server, a held lock."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE django_migrations SET name = name WHERE id < 0")


def _broker() -> None:
    with current_app.connection_for_write(transport_options=PUBLISH_OPTIONS) as broker:
        broker.ensure_connection(max_retries=1, timeout=1, interval_start=0, interval_step=0)
