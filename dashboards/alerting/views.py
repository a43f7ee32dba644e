"""Pages of alerts: what fires now, and the rules that say so."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards import alerts, scopes, sources
from dashboards.firing import active


@never_cache
@require_safe
def firing(request: HttpRequest) -> HttpResponse:
    found = active(sources.fleet(), scopes.fleet(request.user))
    return render(request, "alerts/firing.html", {"found": found})


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts/rules.html", {"groups": alerts.GROUPS.items()})
