"""Pages of what-if analyses: list, form, run (live) and comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from console.web.forms import submit
from dashboards.insight.traces import storage
from dashboards.insight.whatif import actions, figures, inputs, selectors
from dashboards.insight.whatif.forms import WhatIfForm
from dashboards.insight.whatif.models import WhatIf
from endpoints.pages.head import find_endpoint

ROWS_A_PAGE = 25
MAX_COMPARED = 4


@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    row = find_endpoint(name)
    listed: Any = selectors.list_runs(name)
    page = Paginator(listed, ROWS_A_PAGE).get_page(request.GET.get("page"))
    page.object_list = [summarize(row) for row in page.object_list]
    context = {"endpoint": row, "page": page, "recording": inputs.recording_progress(row)}
    return render(request, "whatif/endpoint.html", context)


def summarize(row: WhatIf) -> dict[str, Any]:
    result = row.result
    rows = {figure.label: figure for figure in figures.list_figures(result)}
    return {
        "run": row,
        "refused": bool(result.get("backtest", {}).get("refusal")),
        "changes": inputs.list_changes(row.present, row.candidate),
        "ttft": rows.get("TTFT p90"),
        "hit_rate": rows.get("Hit rate"),
        "cost": rows.get("Cost (USD/h)"),
    }


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def new(request: HttpRequest, name: str) -> HttpResponseBase:
    row = find_endpoint(name)
    present = inputs.present_values(row)
    period = inputs.default_period(row)
    traces = sorted(storage.imported_traces(row).values_list("name", flat=True))
    typed = (request.POST,) if request.method == "POST" else ()
    form = WhatIfForm(present, period, traces, *typed)

    def show(status: int) -> HttpResponse:
        context = {"endpoint": row, "form": form, "recording": inputs.recording_progress(row)}
        return render(request, "whatif/new.html", context, status=status)

    def start() -> WhatIf:
        return actions.start(request.user, name, form.read())

    return submit(request, form, start, show, redirect)


@never_cache
@require_safe
def run(request: HttpRequest, name: str, run: UUID) -> HttpResponse:
    row = _run(name, run)
    result = row.result
    context = {
        "endpoint": row.endpoint,
        **summarize(row),
        **_isolation(result),
        "result": result,
        "rows": figures.list_figures(result),
        "backtest": figures.list_backtest(result),
        "constants": figures.list_constants(result),
        "refusal": result.get("backtest", {}).get("refusal", ""),
        "queues": figures.describe_queues(result),
        "calibration_error": result.get("calibration", {}).get("error"),
    }
    if "preview" in request.GET:
        return render(request, "whatif/htmx/isolation.html", context)
    return responses.render(request, "whatif/run.html", "whatif/htmx/run.html", context)


def _isolation(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "isolation": result.get("isolation"),
        "scopes": figures.list_scopes(result),
        "scope_columns": figures.ISOLATION_COLUMNS,
    }


@require_POST
@role_required("operator")
def isolation(request: HttpRequest, name: str) -> HttpResponse:
    """Start the preview of the isolation chosen in the endpoint's form, and show its progress."""
    endpoint = find_endpoint(name)
    isolation_value = request.POST.get("routing.cache_isolation", "")
    context: dict[str, Any] = {"endpoint": endpoint}
    if isolation_value == endpoint.parsed.routing.cache_isolation:
        context["refused"] = "This is the present isolation. Choose a stricter one to preview."
        return render(request, "whatif/htmx/isolation.html", context)
    analysis = actions.WhatIfRequest(
        {"isolation": isolation_value}, title=f"Cache isolation by {isolation_value}"[:80]
    )
    try:
        row = actions.start(request.user, name, analysis)
    except Refused as refused:
        context["refused"] = " ".join(f"{error.message} {error.remedy}" for error in refused.errors)
        return render(request, "whatif/htmx/isolation.html", context)
    context |= {**summarize(row), **_isolation({})}
    return render(request, "whatif/htmx/isolation.html", context)


@require_safe
def compare(request: HttpRequest, name: str) -> HttpResponse:
    """Compare the candidates of `?run=...&run=...`."""
    row = find_endpoint(name)
    chosen = list(dict.fromkeys(request.GET.getlist("run")))[:MAX_COMPARED]
    rows = sorted((_run(name, run_id) for run_id in chosen), key=lambda row: row.created_at)
    rows = [row for row in rows if row.result.get("candidate")]
    if len(rows) < 2:
        messages.error(request, "Select two to four finished analyses with results to compare.")
        return redirect("whatif:endpoint", name=name)
    context = {
        "endpoint": row,
        "runs": [summarize(row) for row in rows],
        "rows": figures.list_candidates([row.result for row in rows]),
        "same": len({(row.begin, row.end, row.trace) for row in rows}) == 1,
    }
    return render(request, "whatif/compare.html", context)


@require_POST
@role_required("operator")
def cancel(request: HttpRequest, name: str, run: UUID) -> HttpResponseBase:
    row = _run(name, run)
    actions.cancel(request.user, row)
    if row.live:
        messages.success(request, "The analysis is being cancelled.")
    else:
        messages.info(request, "The analysis had ended already; nothing was cancelled.")
    return redirect(row)


@require_POST
@role_required("operator")
def delete(request: HttpRequest, name: str, run: UUID) -> HttpResponseBase:
    row = _run(name, run)
    try:
        actions.delete(request.user, row)
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect(row)
    messages.success(request, "Analysis deleted.")
    return redirect("whatif:endpoint", name=name)


def _run(name: str, run: Any) -> WhatIf:
    try:
        return selectors.get_run(name, run)
    except Refused as refused:
        raise Http404(str(refused)) from refused
