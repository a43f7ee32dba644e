"""The Overview: the fleet at a glance, and the proof that the cache does what it should.

Promises that the page is there at once: what Prometheus must be asked for comes later.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from console.web import htmx
from dashboards import actions, boards, prom, proof_chart, scopes, selectors
from dashboards.panels import DEFAULT_RANGE, FLEET, RANGES
from dashboards.queries import Scope
from dashboards.summary import summary
from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError, RefusalError

SHOWN = tuple(panel for panel in FLEET if panel.id in ("sources", "ttft"))


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    listed = list(endpoint_selectors.endpoints(request.user))
    chosen = RANGES.get(request.GET.get("range", ""), DEFAULT_RANGE)
    context: dict[str, Any] = {
        "endpoints": listed,
        "phases": sorted(endpoint_selectors.phase_counts(request.user).items()),
        "panels": SHOWN,
        "ranges": RANGES.values(),
        "chosen": chosen,
        "data_url": f"{reverse('dashboards:overview_data')}?range={chosen.key}",
        **_proof_context(request, _picked(listed, request.GET.get("endpoint", ""))),
    }
    return render(request, "dashboards/overview.html", context)


@never_cache
@require_safe
def overview_data(request: HttpRequest) -> JsonResponse:
    prometheus = prom.connect(settings.EMBERLINE.prometheus_url)
    chosen = RANGES.get(request.GET.get("range", ""), DEFAULT_RANGE)
    return JsonResponse(
        boards.collect(prometheus, SHOWN, scopes.fleet(request.user), chosen, time.time())
    )


@never_cache
@require_safe
def numbers(request: HttpRequest) -> HttpResponse:
    found = summary(prom.connect(settings.EMBERLINE.prometheus_url), scopes.fleet(request.user))
    return render(request, "dashboards/htmx/numbers.html", {"summary": found})


@never_cache
@require_safe
def endpoint_numbers(request: HttpRequest, name: str) -> HttpResponse:
    """The same of one endpoint, for the pages about it."""
    scope = Scope(_endpoint(request, name).name, endpoint_selectors.NAMESPACE)
    found = summary(prom.connect(settings.EMBERLINE.prometheus_url), scope)
    return render(request, "dashboards/htmx/numbers.html", {"summary": found, "one": name})


@never_cache
@require_safe
def proof(request: HttpRequest, name: str) -> HttpResponse:
    """The proof's card by itself: htmx asks for it while a run is live."""
    actions.give_up_abandoned()
    context = _proof_context(request, _endpoint(request, name))
    return htmx.render(request, "dashboards/proof.html", "dashboards/htmx/proof.html", context)


@require_POST
@role_required("operator", somewhere=True)
def start_proof(request: HttpRequest) -> HttpResponseBase:
    name = request.POST.get("endpoint", "")
    refused = ""
    try:
        actions.start_proof(request.user, name)
    except RefusalError as error:
        refused = str(error)
    if htmx.asked(request) and not refused:
        return render(
            request, "dashboards/htmx/proof.html", _proof_context(request, _endpoint(request, name))
        )
    if refused:
        messages.error(request, refused)
    target = f"{reverse('dashboards:overview')}?{urlencode({'endpoint': name})}"
    if htmx.asked(request):
        return HttpResponse(headers={"HX-Redirect": target})
    return redirect(target)


def _picked(listed: list[Endpoint], name: str) -> Endpoint | None:
    """The endpoint asked for; else the first that is Ready, else the first."""
    by_name = {endpoint.name: endpoint for endpoint in listed}
    ready = next((one for one in listed if one.shown_phase == "Ready"), None)
    return by_name.get(name) or ready or (listed[0] if listed else None)


def _proof_context(request: HttpRequest, endpoint: Endpoint | None) -> dict[str, Any]:
    names = endpoint_selectors.endpoints(request.user).values_list("name", flat=True)
    run = selectors.latest_proof(endpoint) if endpoint is not None else None
    return {
        "proof_names": list(names),
        "proof_endpoint": endpoint,
        "run": run,
        "rows": proof_chart.rows(run.shots) if run is not None else [],
    }


def _endpoint(request: HttpRequest, name: str) -> Endpoint:
    try:
        return endpoint_selectors.get(name, request.user)
    except NotFoundError as error:
        raise Http404 from error
