"""Page of an endpoint's computed prompt tokens by cause."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.web import responses
from dashboards.costs.reports import misses
from endpoints.pages.head import find_endpoint
from routing.analysis.label_names import get_name
from routing.engine.misses.attribution import CAUSES
from routing.pages.views import build_shell


@never_cache
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """`?range=`: 1h, 6h or 24h; `?cause=`: with example decisions of this cause."""
    found = find_endpoint(name)
    key = request.GET.get("range", "")
    key = key if key in misses.RANGES else misses.DEFAULT_RANGE
    cause = request.GET.get("cause", "")
    cause = cause if cause in CAUSES else ""
    seen = misses.report(found, key)
    context: dict[str, Any] = {
        **build_shell(found, "misses"),
        "seen": seen,
        "ranges": list(misses.RANGES),
        "cause": cause,
        "cause_label": get_name("cause", cause) if cause else "",
        "examples": misses.examples(found, cause) if cause and not seen.error else [],
    }
    return responses.render(request, "money/misses.html", "money/inc/misses.html", context)
