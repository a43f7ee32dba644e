"""Pages of computed prompt tokens by cause: of an endpoint, and of all endpoints by group."""

from __future__ import annotations

import time
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.web import responses
from dashboards.costs.pages.endpoints import ROWS_A_PAGE
from dashboards.insight.misses import groups as miss_groups
from dashboards.insight.misses import report as misses
from dashboards.insight.misses.fixes import propose_fix
from dashboards.prometheus.sources import selectors as connections
from endpoints.models import Endpoint
from endpoints.pages.editor.prefill import prefilled_edit_url
from endpoints.pages.head import find_endpoint
from endpoints.pages.routing.views import build_shell
from routing.analysis.label_names import get_name
from routing.engine.misses.attribution import CAUSES, EVICTED_L2


@never_cache
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    """`?range=`: 1h, 6h or 24h, or a board's range; `?cause=`: with example decisions of it."""
    endpoint = find_endpoint(name)
    key = request.GET.get("range", "")
    key = {"15m": "1h"}.get(key, key)  # a board's longer ranges are at most the default here
    key = key if key in misses.RANGES else misses.DEFAULT_RANGE
    cause = request.GET.get("cause", "")
    cause = cause if cause in CAUSES else ""
    report = misses.report(endpoint, key)
    context: dict[str, Any] = {
        **build_shell(endpoint),
        "seen": report,
        "causes": [(row, _remedy_link(endpoint, row)) for row in report.causes],
        "ranges": list(misses.RANGES),
        "cause": cause,
        "cause_label": get_name("cause", cause) if cause else "",
        "examples": misses.examples(endpoint, cause) if cause and not report.error else [],
    }
    return responses.render(request, "money/misses.html", "money/inc/misses.html", context)


def _remedy_link(endpoint: Endpoint, row: misses.MissRow) -> tuple[str, str]:
    """Return label and address of where the remedy is carried out: the form with the change filled
    in, else the page for it; empty if there is none.
    """
    fix = propose_fix(row.code, endpoint.parsed)
    if fix is not None:
        return fix.button, prefilled_edit_url(endpoint.name, fix.changes)
    l2 = endpoint.parsed.cache.l2
    if row.code == EVICTED_L2 and l2.backend == "tieredstorage":
        return "Edit tier", reverse("cachetier:edit", args=[l2.tier])
    remedy = row.remedy
    if remedy is None or not remedy.page:
        return "", ""
    return remedy.button, reverse(remedy.page, args=[endpoint.name])


@never_cache
@require_safe
def groups(request: HttpRequest) -> HttpResponse:
    """`?range=`: 1h, 24h, 7d or 30d; `?by=`: endpoint, team, model, machine or tag:KEY."""
    key, by = request.GET.get("range", ""), request.GET.get("by", "")
    key = key if key in miss_groups.RANGES else misses.DEFAULT_RANGE
    by = by if by in miss_groups.BY or by.startswith(miss_groups.TAG) else miss_groups.BY[0]
    report = miss_groups.report(connections.fleet(), key, by, time.time(), request.user)
    context: dict[str, Any] = {
        "seen": report,
        "page": Paginator(report.groups, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "ranges": list(miss_groups.RANGES),
        "groupings": miss_groups.groupings(report.tags),
    }
    return responses.render(
        request, "money/miss_groups.html", "money/inc/miss_groups.html", context
    )
