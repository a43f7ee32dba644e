"""Pages of monthly reports, budgets and tier prices."""

from __future__ import annotations

import csv
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from cachetier import selectors as cachetier
from console.accounts.gate import role_required
from console.catalogue import selectors as catalogue
from console.core.errors import Refused
from console.resources.pages import FieldsForm
from console.web.forms import submit
from dashboards.boards.results.csv_export import escape_formula
from dashboards.costs import actions, budgets, selectors
from dashboards.costs.actions import BUDGET_FIELDS, PRICE_FIELDS
from dashboards.costs.formulas.price_terms import FOREIGN, parse_stored_needs
from dashboards.costs.ledger import months
from dashboards.costs.ledger.months import Month
from dashboards.costs.models import Budget, BudgetCrossing, TierPrice
from dashboards.costs.prices import tiers
from dashboards.costs.prices.machines import occupied_machines
from dashboards.costs.reports import monthly as month_reports
from dashboards.costs.reports.shares import WEIGHT
from endpoints import selectors as endpoints

_CROSSINGS = 50


@never_cache
@require_safe
def reports(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    coverages = months.coverages(months.stored_months(now), now)
    return render(request, "money/reports.html", {"months": coverages.items()})


@never_cache
@require_safe
def report(request: HttpRequest, month: str) -> HttpResponse:
    weight = _weight(request)
    month_report = month_reports.report(_month(month), timezone.now(), request.user, weight)
    tables = [month_reports.shorten(table) for table in month_report.tables]
    context = {"report": month_report, "tables": tables, "now": timezone.now()}
    return render(request, "money/report.html", context)


@never_cache
@require_safe
def report_csv(request: HttpRequest, month: str) -> HttpResponse:
    report = month_reports.report(_month(month), timezone.now(), request.user, _weight(request))
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="costs-{report.month.key}.csv"'
    writer = csv.DictWriter(response, month_reports.COLUMNS)
    writer.writeheader()
    for row in month_reports.report_rows(report):
        writer.writerow({name: escape_formula(value) for name, value in row.items()})
    return response


@never_cache
@require_safe
def budget_list(request: HttpRequest) -> HttpResponse:
    return _budgets(request, FieldsForm(BUDGET_FIELDS))


@require_POST
@role_required("operator", somewhere=True)
def new_budget(request: HttpRequest) -> HttpResponseBase:
    form = FieldsForm(BUDGET_FIELDS, request.POST)

    def done(_saved: Budget) -> HttpResponse:
        messages.success(request, "Budget created.")
        return redirect("money:budgets")

    act = partial(actions.save_budget, request.user, None, form.typed())
    return submit(request, form, act, partial(_budgets, request, form), done)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def edit_budget(request: HttpRequest, budget_id: UUID) -> HttpResponseBase:
    budget = budgets.budgets(_user(request)).filter(pk=budget_id).first()
    if budget is None:
        raise Http404
    form = FieldsForm(BUDGET_FIELDS, request.POST if request.method == "POST" else None, budget)

    def show(status: int) -> HttpResponse:
        context = {"form": form, "budget": budget}
        return render(request, "money/budget.html", context, status=status)

    def done(saved: Budget) -> HttpResponse:
        messages.success(request, f"Budget {saved.name} saved.")
        return redirect("money:budgets")

    act = partial(actions.save_budget, request.user, budget_id, form.typed())
    return submit(request, form, act, show, done)


@require_POST
@role_required("operator", somewhere=True)
def delete_budget(request: HttpRequest, budget_id: UUID) -> HttpResponseBase:
    try:
        actions.delete_budget(request.user, budget_id)
    except Refused as error:
        if error.status_code == 404:
            raise Http404 from error
        messages.error(request, str(error))
    else:
        messages.success(request, "Budget deleted.")
    return redirect("money:budgets")


@never_cache
@require_safe
def tier_list(request: HttpRequest) -> HttpResponse:
    machines = occupied_machines()
    today, prices = timezone.now().date(), catalogue.load_prices()
    tier_rates = tiers.rates(machines, lambda name: prices.on(name, today), today)
    specs = endpoints.endpoints(_user(request)).values_list("spec", flat=True)
    used = {
        tier: tiers.unknown_rate(tier)
        for tier in (parse_stored_needs(spec).tier for spec in specs)
        if tier
    }
    rates = (used | tier_rates).values()
    context = {"rates": sorted(rates, key=lambda rate: rate.name)}
    return render(request, "money/tiers.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit_tier(request: HttpRequest, name: str) -> HttpResponseBase:
    price, history = selectors.last_tier_price(name), selectors.tier_prices(name)
    if not history and not name.startswith(FOREIGN) and name not in cachetier.tier_names():
        raise Http404
    form = FieldsForm(PRICE_FIELDS, request.POST if request.method == "POST" else None, price)
    # Changing a past day must be explicit: it changes reported costs.
    form.initial["since"] = timezone.now().date()

    def show(status: int) -> HttpResponse:
        context = {"form": form, "name": name, "price": price, "history": history}
        return render(request, "money/tier.html", context, status=status)

    def done(_saved: TierPrice) -> HttpResponse:
        messages.success(request, f"Price of {name} saved.")
        return redirect("money:tiers")

    act = partial(actions.save_tier_price, request.user, name, form.typed())
    return submit(request, form, act, show, done)


@require_POST
@role_required("operator")
def forget_tier(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        actions.clear_tier_price(request.user, name)
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Price of {name} removed from today on.")
    return redirect("money:tiers")


def _budgets(request: HttpRequest, form: FieldsForm, status: int = 200) -> HttpResponse:
    user = _user(request)
    mine = list(budgets.budgets(user))
    passed = BudgetCrossing.objects.filter(budget__in=mine).select_related("budget")
    context = {
        "states": budgets.budget_states(mine, timezone.now()),
        "passed": passed.order_by("-at")[:_CROSSINGS],
        "form": form,
        "month": months.month_of(timezone.now()),
    }
    return render(request, "money/budgets.html", context, status=status)


def _month(text: str) -> Month:
    month = months.parse_month(text)
    if month is None:
        raise Http404
    return month


def _weight(request: HttpRequest) -> float:
    try:
        weight = float(request.GET.get("weight", ""))
    except ValueError:
        return WEIGHT
    return weight if 0 <= weight <= 1000 else WEIGHT


def _user(request: HttpRequest) -> Any:
    return request.user
