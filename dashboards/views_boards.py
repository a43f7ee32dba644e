"""The dashboards of all endpoints and of one, and the JSON both pages ask for every few seconds.

Promises that a page is there at once, whatever Prometheus does: numbers come by the second request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from dashboards import boards, scopes, sources
from dashboards.panels import DEFAULT_RANGE, ENDPOINT, FLEET, RANGES, Panel, Range
from dashboards.queries import Scope
from endpoints import selectors
from endpoints.refusals import NotFoundError


@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    names = selectors.endpoints(request.user).values_list("name", flat=True)
    context = _page(request, FLEET, reverse("dashboards:fleet_data"))
    return render(request, "dashboards/fleet.html", context | {"names": list(names)})


@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    try:
        shown = selectors.get(name)
    except NotFoundError as error:
        raise Http404(name) from error
    context = _page(request, ENDPOINT, reverse("dashboards:endpoint_data", args=[name]))
    return render(request, "dashboards/endpoint.html", context | {"endpoint": shown})


@never_cache
@require_safe
def fleet_data(request: HttpRequest) -> JsonResponse:
    return _data(request, FLEET, scopes.fleet(request.user))


@never_cache
@require_safe
def endpoint_data(request: HttpRequest, name: str) -> JsonResponse:
    return _data(request, ENDPOINT, _scope(name))


def _data(request: HttpRequest, panels: Sequence[Panel], scope: Scope) -> JsonResponse:
    asker = sources.of_endpoint(scope.endpoint) if scope.endpoint else sources.fleet()
    return JsonResponse(boards.collect(asker, panels, scope, _range(request), time.time()))


def _page(request: HttpRequest, panels: Sequence[Panel], data_url: str) -> dict[str, Any]:
    chosen = _range(request)
    return {
        "panels": panels,
        "ranges": RANGES.values(),
        "chosen": chosen,
        "data_url": f"{data_url}?range={chosen.key}",
    }


def _range(request: HttpRequest) -> Range:
    """The one in the URL; an unknown one is read as the default."""
    return RANGES.get(request.GET.get("range", ""), DEFAULT_RANGE)


def _scope(name: str) -> Scope:
    if not selectors.endpoints().filter(name=name).exists():
        raise Http404(name)
    return Scope(name, selectors.NAMESPACE)
