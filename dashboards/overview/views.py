"""Overview page: fleet status, key figures and the cache proof. It never waits for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.db.models import Case, Q, When
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    JsonResponse,
    QueryDict,
)
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.web import preferences, responses
from dashboards import actions, selectors
from dashboards.boards import answers, page
from dashboards.boards.panels import FIRST, FLEET
from dashboards.boards.queries import Scope
from dashboards.boards.results import board
from dashboards.boards.results.fleet_summary import summarize_fleet
from dashboards.costs.reports.endpoints import DEFAULT_RANGE as DEFAULT_COSTS
from dashboards.costs.reports.endpoints import report
from dashboards.overview import fleet_status
from dashboards.overview.key_figures import load_key_figures
from dashboards.prometheus.sources import selectors as connections
from dashboards.proof import cache_proof
from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from endpoints.refusals import NotFoundError, RefusalError
from endpoints.selectors import FleetFacts

GUIDE = "overview.guide"
AWAY = "away"
SHOWN = tuple(panel for panel in FLEET if panel.id in ("sources", "ttft"))


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    chosen, problems = answers.parse_query(_default_to_hour(request.GET), time.time())
    fleet = endpoint_selectors.read_fleet(request.user)
    context: dict[str, Any] = {
        **_build_status_context(request, fleet),
        **_build_guide_context(request, fleet),
        "sections": [
            {
                "title": "",
                "panels": [
                    {"panel": panel, "pin_url": page.pin_url(FIRST, panel.id)} for panel in SHOWN
                ],
            }
        ],
        "problems": problems,
        **page.build_time_controls(
            chosen, f"{reverse('dashboards:overview_data')}?{chosen.query()}"
        ),
        **_proof_context(request, _select_endpoint(request), fleet.names),
    }
    return render(request, "dashboards/overview.html", context)


@never_cache
@require_safe
def now(request: HttpRequest) -> HttpResponse:
    """Render the part that comes from the database and refreshes itself."""
    fleet = endpoint_selectors.read_fleet(request.user)
    context = {**_build_status_context(request, fleet), "partial": True}
    return render(request, "dashboards/htmx/now.html", context)


@never_cache
@require_safe
def money(request: HttpRequest) -> HttpResponse:
    """Render what caches save, or the cached tokens where their value is unknown."""
    prometheus = connections.fleet()
    costs = report(prometheus, DEFAULT_COSTS, time.time(), request.user)
    cached = sum(sum(row.usage.cached.values()) for row in costs.rows)
    return render(request, "dashboards/htmx/money.html", {"report": costs, "cached_tokens": cached})


@require_POST
def guide(request: HttpRequest) -> HttpResponseBase:
    preferences.set_preference(request.user, GUIDE, None if "show" in request.POST else AWAY)
    return redirect("dashboards:overview")


def _build_status_context(request: HttpRequest, fleet: FleetFacts) -> dict[str, Any]:
    phases = fleet_status.count_phases(fleet)
    rows, number = fleet_status.list_unhealthy(request.user, fleet)
    return {
        "phases": phases,
        "always_shown": fleet_status.ALWAYS_SHOWN,
        "total": sum(count for _, count in phases),
        "troubled": rows,
        "troubled_count": number,
        "changes": fleet_status.list_recent_changes(request.user, fleet),
        "not_seen_since": fleet_status.find_overdue_reconcile(fleet),
    }


def _build_guide_context(request: HttpRequest, fleet: FleetFacts) -> dict[str, Any]:
    """Return no steps when all are done or the user hid them."""
    if preferences.get_preference(request.user, GUIDE) == AWAY:
        return {"steps": (), "guide_hidden": True}
    steps = fleet_status.list_setup_steps(request.user, fleet)
    left = [step for step in steps if not step.done]
    if not left:
        return {"steps": ()}
    return {"steps": steps, "steps_done": len(steps) - len(left), "next_step": left[0]}


def _default_to_hour(query: QueryDict) -> Mapping[str, Any]:
    """Return the query with the range of the key figures if it names no times."""
    named = any(key in query for key in ("range", "from", "to"))
    return query if named else {**query.dict(), "range": "1h"}


@never_cache
@require_safe
def overview_data(request: HttpRequest) -> JsonResponse:
    prometheus = connections.fleet()
    chosen, _ = answers.parse_query(request.GET, time.time())
    scope, now = selectors.get_fleet_scope(request.user), chosen.end(time.time())
    return JsonResponse(board.collect(prometheus, SHOWN, scope, chosen.range, now))


@never_cache
@require_safe
def numbers(request: HttpRequest) -> HttpResponse:
    scope = selectors.get_fleet_scope(request.user)
    key_figures = load_key_figures(connections.fleet(), scope, request.user)
    return render(request, "dashboards/htmx/key_figures.html", {"found": key_figures})


@never_cache
@require_safe
def endpoint_key_figures(request: HttpRequest, name: str) -> HttpResponse:
    scope = Scope(_endpoint(request, name).name, endpoint_selectors.NAMESPACE)
    key_figures = load_key_figures(connections.connect_endpoint(name), scope, request.user)
    return render(request, "dashboards/htmx/key_figures.html", {"found": key_figures, "one": name})


@never_cache
@require_safe
def endpoint_numbers(request: HttpRequest, name: str) -> HttpResponse:
    scope = Scope(_endpoint(request, name).name, endpoint_selectors.NAMESPACE)
    fleet = summarize_fleet(connections.connect_endpoint(name), scope)
    return render(request, "dashboards/htmx/numbers.html", {"summary": fleet, "one": name})


@never_cache
@require_safe
def proof(request: HttpRequest, name: str) -> HttpResponse:
    actions.fail_abandoned_runs()
    context = _proof_context(request, _endpoint(request, name))
    return responses.render(request, "dashboards/proof.html", "dashboards/htmx/proof.html", context)


@require_POST
@role_required("operator", somewhere=True)
def start_proof(request: HttpRequest) -> HttpResponseBase:
    name = request.POST.get("endpoint", "")
    refused = ""
    try:
        actions.start_proof(request.user, name)
    except RefusalError as error:
        refused = str(error)
    if responses.wants_partial(request) and not refused:
        return render(
            request, "dashboards/htmx/proof.html", _proof_context(request, _endpoint(request, name))
        )
    if refused:
        messages.error(request, refused)
    target = f"{reverse('dashboards:overview')}?{urlencode({'endpoint': name})}"
    if responses.wants_partial(request):
        return HttpResponse(headers={"HX-Redirect": target})
    return redirect(target)


def _select_endpoint(request: HttpRequest) -> Endpoint | None:
    """Return the named endpoint, else the first that is Ready, else the first."""
    ready = Q(status__phase="Ready", deleted_at__isnull=True)
    name = request.GET.get("endpoint", "")
    rank = Case(When(name=name, then=0), When(ready, then=1), default=2)
    return endpoint_selectors.endpoints(request.user).order_by(rank, "name").first()


def _proof_context(
    request: HttpRequest, endpoint: Endpoint | None, names: Sequence[str] | None = None
) -> dict[str, Any]:
    if names is None:
        names = endpoint_selectors.read_fleet(request.user).names
    run = selectors.get_latest_proof(endpoint) if endpoint is not None else None
    return {
        "proof_names": list(names),
        "proof_endpoint": endpoint,
        "of_one": "one" in request.GET or "one" in request.POST,  # on the endpoint's own page
        "run": run,
        "rows": cache_proof.make_rows(run.shots) if run is not None else [],
    }


def _endpoint(request: HttpRequest, name: str) -> Endpoint:
    try:
        return endpoint_selectors.get(name, request.user)
    except NotFoundError as error:
        raise Http404 from error
