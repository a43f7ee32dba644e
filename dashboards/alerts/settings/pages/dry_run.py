"""Dry run with unsaved form values: a fragment, or without scripts the whole page with the form."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from dashboards.alerts.evaluation.intervals import MOST_SHOWN
from dashboards.alerts.rules.rule_file import BY_NAME
from dashboards.alerts.settings import trials
from dashboards.alerts.settings.forms import OwnRuleForm
from dashboards.alerts.settings.pages import rule as pages_rule

_PART = "alerts/htmx/dry_run.html"


@never_cache
@require_POST
@role_required("operator")
def rule(request: HttpRequest, rule: str) -> HttpResponse:
    facts = pages_rule.rule_facts(request, rule)
    form = pages_rule.build_form(rule, "", request)
    return _tried(request, rule, "", form, partial(pages_rule.rule_page, request, facts, form))


@never_cache
@require_POST
@role_required("operator")
def of_endpoint(request: HttpRequest, rule: str, name: str) -> HttpResponse:
    if rule not in BY_NAME or not BY_NAME[rule].per_endpoint:
        raise Http404(rule)
    form = pages_rule.build_form(rule, name, request)
    page = partial(pages_rule.endpoint_page, request, rule, name, form)
    return _tried(request, rule, name, form, page)


@never_cache
@require_POST
@role_required("operator")
def new(request: HttpRequest) -> HttpResponse:
    form = OwnRuleForm(request.POST)
    return _tried(request, "", "", form, partial(pages_rule.new_page, request, form))


def _tried(
    request: HttpRequest, name: str, endpoint: str, form: Any, page: pages_rule.Page
) -> HttpResponse:
    """Render the result; a rejection is shown as text with its remedy."""
    wish = {**form.wish(), "range": request.GET.get("range", "")}
    try:
        found = trials.run_trial(request.user, name, endpoint, wish)
    except Refused as refused:
        status = refused.status_code
        context: dict[str, Any] = {
            "refused": [(_label(form, one.field), one) for one in refused.errors]
        }
    else:
        status = 200
        context = {
            "run": found,
            "fired": found.new.fired[:MOST_SHOWN],
            "more": max(0, len(found.new.fired) - MOST_SHOWN),
            "needs": BY_NAME[name].needs if name in BY_NAME else "",
        }
    if responses.wants_partial(request):
        return render(request, "alerts/htmx/dry_run.html", context)
    return page(status, **context)


def _label(form: Any, field: str) -> str:
    return str(form.fields[field].label) if field in form.fields else ""
