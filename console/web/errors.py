"""Error pages for 400, 403, 404, 405, 500, 503 and CSRF failures; JSON under /api/.

None queries the database, which may be the cause of the error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.middleware.csrf import REASON_BAD_ORIGIN, REASON_NO_CSRF_COOKIE
from django.template.loader import render_to_string
from django.urls import is_valid_path

from console.core import disk, request_log
from console.core.counters import increment
from console.core.errors import error_document
from console.database import database_unavailable, is_conflict

log = logging.getLogger(__name__)
_API = "/api/"
# Retry-After in seconds; SQLite's write lock is held for less.
RETRY_AFTER_S = 5
_UNAVAILABLE = {
    "locked": "The database is locked by another writer.",
    "read_only": "The database is read-only.",
    "io": "The database cannot read from or write to its disk.",
    "full": "The disk of the database is full.",
    "timeout": "The database did not respond in time.",
    "unreachable": "The database is not reachable.",
}
TITLES = {
    "bad_request": "Bad request",
    "unknown_host": "Unknown host name",
    "permission_denied": "Permission denied",
    "not_found": "Not found",
    "method_not_allowed": "Not a page",
    "server_error": "Internal error",
    "disk_unavailable": "Disk full or failing",
    "csrf_failed": "Form expired",
    "no_cookie": "Cookie missing",
    "not_secure": "HTTPS required",
    "unknown_origin": "Unknown origin",
    "conflict": "Conflict",
    "database_unavailable": "Database unavailable",
}
_DISK_RETRY_S = 30


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a page is not found: the deletion of its object."""

    text: str
    at: datetime
    by: str
    url: str


_explain: list[Callable[[HttpRequest], Explanation | None]] = []
register_explanation = _explain.append


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        host = request.META.get("HTTP_HOST", "")[:253]
        log.warning("Request for host %r refused: not in EMBERLINE_ALLOWED_HOSTS", host)
        detail = f"This console is not configured for the host name {host}."
        remedy = "Open a configured host name, or add this one to EMBERLINE_ALLOWED_HOSTS."
        return _answer(request, 400, "unknown_host", detail, remedy)
    return _answer(request, 400, "bad_request", "The request is malformed.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    detail = (
        str(exception) or "Your role does not permit this action. Ask an administrator for access."
    )
    return _answer(request, 403, "permission_denied", detail)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    detail = "This page or object does not exist, or you have no access to it."
    return _answer(request, 404, "not_found", detail, deletion=_find_deletion(request))


def _find_deletion(request: HttpRequest) -> Explanation | None:
    if request.path.startswith(_API) or getattr(request, "user", None) is None:
        return None
    try:
        return next((text for explain in _explain if (text := explain(request))), None)
    except Exception:
        log.exception("Not-found explanation failed; the page is shown without it")
        return None


def method_not_allowed(request: HttpRequest) -> HttpResponse:
    detail = "This address only receives submitted forms. Nothing was submitted."
    return _answer(request, 405, "method_not_allowed", detail, parent=_find_parent(request.path))


def _find_parent(path: str) -> str:
    """Return the nearest path above that is an address of the console."""
    while path != "/":
        path = path.rstrip("/").rpartition("/")[0] + "/"
        if is_valid_path(path):
            break
    return path


def server_error(request: HttpRequest) -> HttpResponse:
    error = sys.exc_info()[1]
    if is_conflict(error):
        detail = "Another request changed the same objects meanwhile. Nothing was changed."
        return _answer(request, 409, "conflict", detail, "Reload, then try again.")
    if fault := disk.disk_fault(error):
        return _disk_unavailable(request, fault)
    reason = database_unavailable(error)
    if reason:
        increment("database_unavailable", reason=reason)
        detail = f"{_UNAVAILABLE[reason]} The request was not completed."
        remedy = (
            f"Retry in {RETRY_AFTER_S} s. If the error persists, ask an administrator to check "
            "/readyz."
        )
        answer = _answer(request, 503, "database_unavailable", detail, remedy)
        answer["Retry-After"] = str(RETRY_AFTER_S)
        return answer
    detail = "Internal error. The web log contains the cause under the request ID below."
    return _answer(request, 500, "server_error", detail)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    origin = request.headers.get("Origin", "")
    if settings.CSRF_COOKIE_SECURE and not request.is_secure():
        detail = (
            "The console is set up for HTTPS (EMBERLINE_HTTPS), but this request came over HTTP."
        )
        remedy = "Open its https:// address. A TLS proxy must send X-Forwarded-Proto: https."
        return _answer(request, 403, "not_secure", detail, remedy)
    if reason == REASON_BAD_ORIGIN % origin:
        detail = f"The form was sent from {origin}, which is not an address of this console."
        remedy = (
            "Behind a TLS proxy set EMBERLINE_HTTPS=1; add other addresses to "
            "EMBERLINE_TRUSTED_ORIGINS."
        )
        return _answer(request, 403, "unknown_origin", detail, remedy)
    if reason == REASON_NO_CSRF_COOKIE:
        detail = "The browser sent no cookie, or has deleted it since the form was opened."
        remedy = "Allow cookies for this console, reload the page and submit the form again."
        return _answer(request, 403, "no_cookie", detail, remedy)
    detail = "You logged in or out in another tab since the form was opened."
    remedy = "Go back, reload the page and submit the form again."
    return _answer(request, 403, "csrf_failed", detail, remedy)


def _disk_unavailable(request: HttpRequest, fault: str) -> HttpResponse:
    try:
        space = disk.read_disk(settings.EMBERLINE.var)
        message, remedy = (
            space.text,
            space.remedy or "Retry. If the error persists, see the web log.",
        )
    except OSError as error:
        message, remedy = f"not responding ({error.strerror})", "Check the mount and the hardware."
    detail = (
        f"The console's disk (EMBERLINE_VAR) is not usable: {fault}. Disk: {message}. "
        "The request was not completed; endpoints keep serving."
    )
    response = _answer(request, 503, "disk_unavailable", detail, remedy)
    response["Retry-After"] = str(_DISK_RETRY_S)
    return response


def _answer(
    request: HttpRequest,
    status: int,
    code: str,
    detail: str,
    remedy: str = "",
    deletion: Explanation | None = None,
    parent: str = "",
) -> HttpResponse:
    shown_id = getattr(request, "request_id", "") or request_log.current_id()
    if request.path.startswith(_API):
        return JsonResponse(error_document(code, detail, remedy, shown_id), status=status)
    context = {
        "status": status,
        "title": "Deleted" if deletion else TITLES[code],
        "detail": detail,
        "deletion": deletion,
        "parent": parent,
        "remedy": remedy,
        "request_id": shown_id,
    }
    return HttpResponse(render_to_string("console/error.html", context), status=status)
