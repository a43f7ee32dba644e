"""Costs page: cost and cache saving of each endpoint."""

from __future__ import annotations

import csv
import time
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from console.accounts import selectors as accounts
from console.web import responses
from dashboards.boards.results.csv_export import escape_formula
from dashboards.costs.ledger import sums
from dashboards.costs.reports.endpoints import (
    COLUMNS,
    RANGES,
    CostReport,
    EndpointCostRow,
    report,
    row_values,
)
from dashboards.prometheus.sources import selectors as connections

ROWS_A_PAGE = 50


@never_cache
@require_safe
def costs(request: HttpRequest) -> HttpResponse:
    report = _report(request)
    by = request.GET.get("by", "")
    by = by if by in sums.BY[1:] or by.startswith("tag:") else ""
    lines = [row.line for row in report.rows]
    groups = sums.group_lines(lines, by) if by else report.rows
    context: dict[str, Any] = {
        "report": report,
        "page": Paginator(groups, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "ranges": list(RANGES),
        "by": by,
        "groupings": [*sums.BY[1:], *(f"tag:{key}" for key in sums.tag_keys(lines))],
        "teams": _team_words(request),
        "tag": request.GET.get("tag", ""),
        "team": request.GET.get("team", ""),
        "unpriced": report.unpriced,
        "back": request.get_full_path(),
        "measuring": any(row.latest is not None and row.latest.live for row in report.rows),
    }
    return responses.render(request, "dashboards/costs.html", "dashboards/htmx/costs.html", context)


@never_cache
@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """Return the table as CSV: unrounded, unknown values empty."""
    report = _report(request)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="costs-{report.key}.csv"'
    writer = csv.DictWriter(response, COLUMNS)
    writer.writeheader()
    for row in report.rows:
        values = row_values(row)
        tags = ";".join(f"{key}={value}" for key, value in values["tags"].items())
        cells = {**values, "tags": tags, "range": report.key}
        writer.writerow({name: escape_formula(value) for name, value in cells.items()})
    return response


def _report(request: HttpRequest) -> CostReport:
    team, tag = request.GET.get("team", ""), request.GET.get("tag", "")
    key, _, value = tag.partition("=")

    def only(row: EndpointCostRow) -> bool:
        mine = row.endpoint.team
        return (not team or (mine is not None and mine.slug == team)) and (
            not tag or row.needs.tags.get(key) == value
        )

    prometheus = connections.fleet()
    return report(prometheus, request.GET.get("range", ""), time.time(), request.user, only)


def _team_words(request: HttpRequest) -> list[str]:
    user: Any = request.user
    return [team.slug for team in accounts.list_teams_with_role(user, "viewer")]
