"""Pages of alerts: firing alerts, rules and the rule file; firing alerts as part of other pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts.permissions import allows
from console.web import responses
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.alertmanager import silences
from dashboards.alerts.cluster_objects import selectors as cluster_objects_selectors
from dashboards.alerts.evaluation.firing_alerts import (
    FIRING,
    FiringAlert,
    FiringAlerts,
    describe,
    query_active,
    query_firing,
)
from dashboards.alerts.page_forms import yaml_file
from dashboards.alerts.rules import rule_file as alerts_rules
from dashboards.alerts.settings import documents, selectors
from dashboards.alerts.settings.pages.timeline import silence_url
from dashboards.boards.queries import Scope
from dashboards.prometheus.http.client import Asker
from dashboards.prometheus.sources import selectors as connections
from endpoints import selectors as endpoints

ALERTS_PER_PAGE: Final = 50
RULES_PER_PAGE: Final = 15
_BEFORE_S = 1800  # board range before the alert, to show how it began


@never_cache
@require_safe
def firing(request: HttpRequest) -> HttpResponse:
    alerts = _active(request)
    page = Paginator(alerts.alerts, ALERTS_PER_PAGE).get_page(request.GET.get("page"))
    existing = endpoints.existing((alert.endpoint for alert in page), request.user)
    listed = silences.list_silences(request.user) if alerts.alerts else silences.SilenceList()
    mine = frozenset(selectors.changeable_endpoints(request.user)) if alerts.alerts else frozenset()
    context = {
        "why": alerts.why,
        "rows": [
            {
                **_row(alert, existing, request.user),
                "muting": listed.muting(alert.labels),
                "may": alert.endpoint in mine or allows(request.user, "operator"),
            }
            for alert in page
        ],
        "page": page,
        "existing": existing,
        "firing": sum(alert.state == FIRING for alert in alerts.alerts),
    }
    return responses.render(request, "alerts/firing.html", "alerts/htmx/firing.html", context)


def _active(request: HttpRequest) -> FiringAlerts:
    scope = dashboards_selectors.get_fleet_scope(request.user)
    return query_active(connections.fleet(), scope, documents.settings_for(request.user))


def _row(one: FiringAlert, existing: frozenset[str], viewer: Any) -> dict[str, Any]:
    is_own = one.name in documents.GROUP_OF or (
        bool(one.summary) and documents.can_see_user_rules(viewer)
    )
    return {
        "alert": one,
        "known": is_own,
        "value": documents.format_measured(one.name, one.value),
        "board": _board(one) if one.endpoint in existing else "",
        "silence": silence_url(one.name, one.endpoint),
        "acknowledge": urlencode({"alert": one.name, "endpoint": one.endpoint}),
        "history": urlencode({"rule": one.name, "endpoint": one.endpoint}),
    }


def _board(one: FiringAlert) -> str:
    """Return the board URL of the alert's endpoint, from before the alert began."""
    if one.since is None:
        return ""
    page = reverse("dashboards:endpoint", args=[one.endpoint])
    begin = int(one.since.timestamp()) - _BEFORE_S
    return f"{page}?{urlencode({'from': begin, 'to': begin + 4 * _BEFORE_S})}"


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    """List the rules; works without Prometheus, firing counts are added if known."""
    alerts = _active(request)
    states: dict[str, dict[str, int]] = {}
    for alert in alerts.alerts:
        counts = states.setdefault(alert.name, {})
        counts[alert.state] = counts.get(alert.state, 0) + 1
    every = documents.rule_documents(request.user)
    counts = Counter(row["group"] for row in every)
    filters = {name: request.GET.get(name, "").strip()[:80] for name in ("group", "q")}
    found_rules = [row for row in every if _is_wanted(row, filters)]
    page = Paginator(found_rules, RULES_PER_PAGE).get_page(request.GET.get("page"))
    groups: dict[str, list[dict[str, Any]]] = {}
    for rule_row in page.object_list:
        row = {
            **rule_row,
            "brief": documents.brief_settings(rule_row),
            "states": states.get(rule_row["name"], {}),
        }
        groups.setdefault(documents.TITLES[rule_row["group"]], []).append(row)
    context = {
        "groups": groups.items(),
        "page": page,
        "wanted": filters,
        "choices": [
            (name, title, counts[name]) for name, title in documents.TITLES.items() if counts[name]
        ],
        "all": len(every),
        "why": alerts.why,
        "file": selectors.rule_file(),
        "clusters": cluster_objects_selectors.related_objects(request.user),
        "may_see_own": documents.can_see_user_rules(request.user),
    }
    return render(request, "alerts/rules.html", context)


def _is_wanted(facts: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    text = f"{facts['name']} {facts['summary']}".lower()
    return wanted["group"] in ("", facts["group"]) and wanted["q"].lower() in text


@require_safe
def rule_file(request: HttpRequest) -> HttpResponse:
    text = alerts_rules.render(documents.settings_for(request.user))
    return yaml_file("emberline-alerts.yml", text)


@require_safe
def rule_object(request: HttpRequest) -> HttpResponse:
    text = alerts_rules.render_object(documents.settings_for(request.user))
    return yaml_file("emberline-prometheusrule.yml", text)


@never_cache
@require_safe
def fleet_part(request: HttpRequest) -> HttpResponse:
    scope = dashboards_selectors.get_fleet_scope(request.user)
    return _firing_part(request, connections.fleet(), scope)


@never_cache
@require_safe
def endpoint_part(request: HttpRequest, name: str) -> HttpResponse:
    if not endpoints.endpoints().filter(name=name).exists():
        raise Http404(name)
    scope = Scope(name, endpoints.NAMESPACE)
    return _firing_part(request, connections.connect_endpoint(name), scope)


def _firing_part(request: HttpRequest, asker: Asker, scope: Scope) -> HttpResponse:
    """Render the firing alerts for another page, or why they are unknown."""
    firing = query_firing(asker, scope)
    if firing.alerts:
        settings = documents.settings_for(request.user)
        firing = replace(firing, alerts=describe(asker, firing.alerts, settings))
    existing = endpoints.existing((alert.endpoint for alert in firing.alerts), request.user)
    context = {"firing": firing, "one": bool(scope.endpoint), "existing": existing}
    return render(request, "dashboards/htmx/alerts.html", context)
