"""`/healthz`: this process answers. `/readyz`: what it needs answers too, and which does not.

Promises no secret in the answer and a deadline on every question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import current_app
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

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
    ready = all(verdict == "ok" for verdict in results.values())
    return JsonResponse({"ready": ready, "checks": results}, status=200 if ready else 503)


def verdicts() -> dict[str, str]:
    """Of database and broker, asked now: "ok", or what failed."""
    checks: dict[str, Callable[[], None]] = {"database": _database, "broker": _broker}
    return {name: _verdict(name, check) for name, check in checks.items()}


def _verdict(name: str, check: Callable[[], None]) -> str:
    """The error's class only: its text may hold an address with a password."""
    try:
        check()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is not ready)
        log.warning("readyz: %s: %s", name, type(error).__name__)
        return f"failed: {type(error).__name__}"
    return "ok"


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


def _broker() -> None:
    with current_app.connection_for_write(transport_options=PUBLISH_OPTIONS) as broker:
        broker.ensure_connection(max_retries=1, timeout=1, interval_start=0, interval_step=0)
