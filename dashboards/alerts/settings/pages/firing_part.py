"""Fragment with firing alerts for other pages, and download of the rule file.

If Prometheus fails, the fragment states that the alerts are unknown.
"""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards import selectors as dashboards_selectors
from dashboards.alerts import rules as alerts_rules
from dashboards.alerts.evaluation.firing_alerts import query_firing
from dashboards.alerts.settings.documents import settings_for
from dashboards.boards.queries import Scope
from dashboards.prometheus import connections
from endpoints import selectors


@never_cache
@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    return _shown(request, dashboards_selectors.get_fleet_scope(request.user))


@never_cache
@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    if not selectors.endpoints().filter(name=name).exists():
        raise Http404(name)
    return _shown(request, Scope(name, selectors.NAMESPACE))


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    return HttpResponse(
        alerts_rules.render(settings_for(request.user)),
        content_type="application/yaml",
        headers={"Content-Disposition": 'attachment; filename="emberline-alerts.yml"'},
    )


def _shown(request: HttpRequest, scope: Scope) -> HttpResponse:
    asker = connections.connect_endpoint(scope.endpoint) if scope.endpoint else connections.fleet()
    found = query_firing(asker, scope)
    existing = selectors.existing((one.endpoint for one in found.alerts), request.user)
    context = {"firing": found, "one": bool(scope.endpoint), "existing": existing}
    return render(request, "dashboards/htmx/alerts.html", context)
