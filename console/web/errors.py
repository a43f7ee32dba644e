"""The pages for 403, 404, 500 and a failed CSRF check; the REST shape for paths under /api/.

Promises never to query the database: these answer when much else is broken.
"""

from __future__ import annotations

import sys

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from console import disk
from console.web import request_id

_API = "/api/"
_RETRY_S = 30


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, 400, "bad_request", "This request cannot be understood.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    detail = str(exception) or "Your role does not allow this. Ask an admin of this console."
    return _answer(request, 403, "permission_denied", detail)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, 404, "not_found", "Nothing is here. It may have been deleted.")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django calls it while the exception is being handled, whichever layer it came from."""
    if fault := disk.fault(sys.exc_info()[1]):
        return _disk_unavailable(request, fault)
    detail = "Something failed on our side. The log has it under the request id below."
    return _answer(request, 500, "server_error", detail)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001
    detail = (
        "This form was open too long, or another tab logged in or out meanwhile. "
        "Go back, reload the page and send it again."
    )
    return _answer(request, 403, "csrf_failed", detail)


def _disk_unavailable(request: HttpRequest, fault: str) -> HttpResponse:
    try:
        found = disk.look(settings.EMBERLINE.var)
        facts, remedy = found.text, found.remedy or "Try again; if it stays, see the web log."
    except OSError as error:
        facts, remedy = f"does not answer ({error.strerror})", "Check the mount and the hardware."
    detail = (
        f"The disk of this console (EMBERLINE_VAR) cannot be used for this request: {fault}. "
        f"Disk: {facts}. The request was not completed; endpoints serve."
    )
    response = _answer(request, 503, "disk_unavailable", detail, remedy)
    response["Retry-After"] = str(_RETRY_S)
    return response


def _answer(
    request: HttpRequest, status: int, code: str, detail: str, remedy: str = ""
) -> HttpResponse:
    shown_id = getattr(request, "request_id", "") or request_id.current()
    if request.path.startswith(_API):
        body: dict[str, object] = {
            "code": code,
            "detail": detail,
            "field": None,
            "value": None,
            "remedy": remedy,
            "errors": [],
            "request_id": shown_id,
        }
        return JsonResponse(body, status=status)
    titles = {
        "bad_request": "Bad request",
        "permission_denied": "Not allowed",
        "not_found": "Not found",
        "server_error": "Something went wrong",
        "disk_unavailable": "Disk full or failing",
        "csrf_failed": "Please send it again",
    }
    facts = {
        "status": status,
        "title": titles[code],
        "detail": detail,
        "remedy": remedy,
        "request_id": shown_id,
    }
    return HttpResponse(render_to_string("console/error.html", facts), status=status)
