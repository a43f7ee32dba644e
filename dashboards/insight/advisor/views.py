"""Page of an endpoint's advice: start, progress, rows with their evidence, cache sizes."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.dateparse import parse_datetime
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from console.web.forms import submit
from console.web.serializer_form import SerializerForm
from dashboards.insight.advisor import actions, selectors
from dashboards.insight.advisor.formulas.cache_sizes import draw_sizes
from dashboards.insight.advisor.formulas.outcome import CAME, MISSED, NOT_APPLIED, UNTOLD, WAITING
from dashboards.insight.advisor.models import Advice
from dashboards.insight.advisor.texts import describe_row
from dashboards.insight.whatif import figures, inputs
from endpoints.models import Endpoint
from endpoints.pages.head import find_endpoint

PAGE = "advisor:endpoint"
COLOURS = {
    NOT_APPLIED: "secondary",
    WAITING: "blue",
    CAME: "green",
    MISSED: "red",
    UNTOLD: "orange",
}


def _assumptions_form(data: Any = None) -> SerializerForm:
    """Return the form of values that the console may lack."""
    form = SerializerForm(inputs.WhatIfValuesSerializer(), data, names=actions.ASSUMPTIONS)
    for field in form.fields.values():
        field.help_text = "Empty: as known to the console."
    return form


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def endpoint(request: HttpRequest, name: str) -> HttpResponseBase:
    row = find_endpoint(name)
    if request.method == "POST":
        return _start(request, row)
    return _show(request, row, _assumptions_form())


def _show(
    request: HttpRequest, found: Endpoint, form: SerializerForm, status: int = 200
) -> HttpResponse:
    latest = selectors.get_latest(found.name)
    context: dict[str, Any] = {
        "endpoint": found,
        "form": form,
        "recorded": inputs.default_period(found) is not None,
        "recording": inputs.recording_progress(found),
        "advice": latest,
        "announcement": _announcement(latest),
        "announced": request.GET.get("announced"),
        "applied": [_applied_context(entry) for entry in selectors.list_applied(found.name)],
        **(_report_context(found, latest) if latest is not None else {}),
    }
    if status != 200:
        return render(request, "advisor/endpoint.html", context, status=status)
    return responses.render(request, "advisor/endpoint.html", "advisor/htmx/advice.html", context)


def _announcement(latest: Advice | None) -> str:
    """Return the text for screen readers, which changes with each quarter and at the end."""
    if latest is None:
        return ""
    run = latest.run
    if not run.live:
        return f"Advice: {run.get_state_display()}. {run.message}".strip()
    quarter = run.percent // 25 * 25
    return f"Computing advice, {quarter} %" if run.state == "running" else run.stage


def _report_context(found: Endpoint, advice: Advice) -> dict[str, Any]:
    report = selectors.build_report(advice)
    result = advice.run.result
    applied = {outcome["key"]: outcome for outcome in selectors.list_outcomes(advice)}

    def shown(rows: Any) -> list[dict[str, Any]]:
        return [
            {
                **describe_row(row),
                "links": selectors.list_apply_links(advice, row),
                "outcome": applied.get(row.key),
            }
            for row in rows
        ]

    return {
        "run": advice.run,
        "report": report,
        "result": result,
        "outdated": found.generation != advice.generation,
        "tables": [
            ("advised", "Advised", shown(report.advised)),
            ("trade-offs", "Trade-offs", shown(report.trade_offs)),
            ("unclear", "No clear gain", shown(report.unclear)),
        ],
        "size_rows": list(zip(report.sizes.l2, report.sizes.cells, strict=True))
        if report.sizes
        else [],
        "drawing": draw_sizes(report.sizes) if report.sizes else None,
        "backtest": figures.list_backtest(result),
    }


def _applied_context(one: dict[str, Any]) -> dict[str, Any]:
    applied_at = parse_datetime(one["at"]) if one["at"] else None
    layout = one["key"].startswith("layout=")
    return {**one, "colour": COLOURS[one["verdict"]], "time": applied_at, "is_layout": layout}


@role_required("operator")
def _start(request: HttpRequest, found: Endpoint) -> HttpResponseBase:
    form = _assumptions_form(request.POST)

    def done(_made: Advice) -> HttpResponse:
        messages.success(request, "The advice is being computed from the newest recorded requests.")
        return redirect(PAGE, found.name)

    return submit(
        request,
        form,
        lambda: actions.start(request.user, found.name, form.typed()),
        lambda status: _show(request, found, form, status),
        done,
    )


@require_POST
@role_required("operator")
def cancel(request: HttpRequest, name: str) -> HttpResponseBase:
    find_endpoint(name)
    try:
        latest = actions.cancel(request.user, name)
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        if latest.run.cancel_at is None:
            messages.info(request, "The computation had ended already; nothing was cancelled.")
        else:
            messages.success(request, "The advice is being cancelled.")
    return redirect(PAGE, name)
