"""The System page: every managed program, and the end of its log for operators. Read only."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.accounts.permissions import role_required
from console.system import selectors
from console.web import htmx


@require_safe
def processes(request: HttpRequest) -> HttpResponse:
    context = {"system": selectors.system()}
    return htmx.render(request, "system/processes.html", "system/htmx/processes.html", context)


@require_safe
@role_required("operator")
def log(request: HttpRequest, name: str) -> HttpResponse:
    if not selectors.is_known(name):
        raise Http404(f"There is no program {name}.")
    context = {"name": name, "text": selectors.log_tail(name), "lines": selectors.LOG_LINES}
    return htmx.render(request, "system/log.html", "system/htmx/log.html", context)
