"""The strategy of one endpoint: what each would do with its latest requests, and the switch."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from console.accounts.permissions import role_required
from endpoints import actions
from endpoints.models import Endpoint
from endpoints.refusals import RefusalError
from endpoints.spec.endpoint_spec import SpecErrors
from endpoints.spec.fields import BY_PATH
from routing import choices, preview
from routing.pages.views import endpoint_or_404, shell

FIELDS = ("routing.strategy", "routing.session_key", "routing.enabled")


@require_http_methods(["GET", "HEAD", "POST"])
def strategy(request: HttpRequest, name: str) -> HttpResponseBase:
    found = endpoint_or_404(name)
    if request.method == "POST":
        return _switch(request, found)
    return _shown(request, found)


def _shown(
    request: HttpRequest, found: Endpoint, problems: Any = (), status: int = 200
) -> HttpResponse:
    routing = found.parsed.routing
    seen = preview.of(found)
    context: dict[str, Any] = {
        **shell(found, "strategy"),
        "seen": seen,
        "rows": [(one, choices.STRATEGIES[one.strategy]) for one in seen.outcomes],
        "words": {path.partition(".")[2]: BY_PATH[path] for path in FIELDS},
        "typed": {
            "strategy": request.POST.get("strategy", routing.strategy),
            "session_key": request.POST.get("session_key", routing.session_key),
            "enabled": bool(request.POST.get("enabled")) if request.POST else routing.enabled,
            "note": request.POST.get("note", ""),
        },
        "problems": problems,
    }
    return render(request, "routing/strategy.html", context, status=status)


@role_required("operator")
def _switch(request: HttpRequest, found: Endpoint) -> HttpResponseBase:
    changes = {
        "strategy": request.POST.get("strategy", ""),
        "session_key": request.POST.get("session_key", ""),
        "enabled": bool(request.POST.get("enabled")),
    }
    generation = request.POST.get("generation", "")
    expected = int(generation) if generation.isdecimal() and len(generation) < 10 else None
    try:
        changed = actions.patch(
            request.user,
            found.name,
            {"routing": changes},
            expected_generation=expected,
            note=request.POST.get("note", ""),
        )
    except (SpecErrors, RefusalError) as error:
        status = getattr(error, "status_code", 400)
        return _shown(request, found, problems=error.errors, status=status)
    if changed.generation == found.generation:
        messages.info(request, "That is how it is already; nothing was changed.")
    else:
        now = changed.parsed.routing.effective_strategy
        messages.success(request, f"Asked for {now}. Routers take it over without a restart.")
    return redirect("routing:strategy", found.name)
