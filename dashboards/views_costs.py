"""The Costs page: what each endpoint costs, and what its cache saves."""

from __future__ import annotations

import csv
import time
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from console.accounts.permissions import role_required
from console.web import htmx
from dashboards import actions, sources
from dashboards.cost.document import COLUMNS, line
from dashboards.cost.needs import THIS_MACHINE
from dashboards.cost.report import RANGES, Report, report
from endpoints.refusals import RefusalError

ROWS_A_PAGE = 50


@never_cache
@require_safe
def costs(request: HttpRequest) -> HttpResponse:
    found = _report(request)
    context: dict[str, Any] = {
        "report": found,
        "page": Paginator(found.rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "ranges": list(RANGES),
        "this_machine": THIS_MACHINE,
        "measuring": any(row.latest is not None and row.latest.live for row in found.rows),
    }
    return htmx.render(request, "dashboards/costs.html", "dashboards/htmx/costs.html", context)


@never_cache
@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """The same as CSV: numbers as they are, empty where they are not known."""
    found = _report(request)
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="costs-{found.key}.csv"'
    writer = csv.DictWriter(response, COLUMNS)
    writer.writeheader()
    for row in found.rows:
        writer.writerow({**line(row), "range": found.key})
    return response


@require_POST
@role_required("operator")
def calibrate(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        actions.start_calibration(request.user, name)
    except RefusalError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"The price of a prompt token is being measured at {name}.")
    return redirect("dashboards:costs")


def _report(request: HttpRequest) -> Report:
    prometheus = sources.fleet()
    return report(prometheus, request.GET.get("range", ""), time.time(), request.user)
