"""The pages for 403, 404, 500 and a failed CSRF check; the REST shape for paths under /api/.

Promises never to query the database: these answer when much else is broken.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from console.web import request_id

_API = "/api/"


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, 400, "bad_request", "This request cannot be understood.")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    detail = str(exception) or "Your role does not allow this. Ask an admin of this console."
    return _answer(request, 403, "permission_denied", detail)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    return _answer(request, 404, "not_found", "Nothing is here. It may have been deleted.")


def server_error(request: HttpRequest) -> HttpResponse:
    detail = "Something failed on our side. The log has it under the request id below."
    return _answer(request, 500, "server_error", detail)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001
    detail = (
        "This form was open too long, or another tab logged in or out meanwhile. "
        "Go back, reload the page and send it again."
    )
    return _answer(request, 403, "csrf_failed", detail)


def _answer(request: HttpRequest, status: int, code: str, detail: str) -> HttpResponse:
    shown_id = getattr(request, "request_id", "") or request_id.current()
    if request.path.startswith(_API):
        body: dict[str, object] = {
            "code": code,
            "detail": detail,
            "field": None,
            "value": None,
            "remedy": "",
            "errors": [],
            "request_id": shown_id,
        }
        return JsonResponse(body, status=status)
    titles = {
        "bad_request": "Bad request",
        "permission_denied": "Not allowed",
        "not_found": "Not found",
        "server_error": "Something went wrong",
        "csrf_failed": "Please send it again",
    }
    facts = {"status": status, "title": titles[code], "detail": detail, "request_id": shown_id}
    return HttpResponse(render_to_string("console/error.html", facts), status=status)
