"""The System page: programs, periodic jobs and, for operators, log tails. Read only."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from console.accounts.gate import role_required
from console.system import rounds, selectors
from console.web import responses


@require_safe
def processes(request: HttpRequest) -> HttpResponse:
    context: dict[str, Any] = {"system": selectors.load_system(), "disk": selectors.disk_usage()}
    if not responses.wants_partial(request):
        context["rounds"] = rounds.list_rounds()
    return responses.render(request, "system/processes.html", "system/htmx/processes.html", context)


@require_safe
def rounds_seen(request: HttpRequest) -> HttpResponse:
    """Render the jobs separately: they refresh less often than the programs."""
    context: dict[str, Any] = {"rounds": rounds.list_rounds()}
    if not responses.wants_partial(request):
        context |= {"system": selectors.load_system(), "disk": selectors.disk_usage()}
    return responses.render(request, "system/processes.html", "system/htmx/rounds.html", context)


@require_safe
@role_required("operator")
def log(request: HttpRequest, name: str) -> HttpResponse:
    if not selectors.is_known(name):
        raise Http404(f"Process {name} does not exist.")
    context = {"name": name, "text": selectors.log_tail(name), "lines": selectors.LOG_LINES}
    return responses.render(request, "system/log.html", "system/htmx/log.html", context)
