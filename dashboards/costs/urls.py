"""Page routes of reports, budgets and tier prices, mounted by console.urls under "costs/"."""

from __future__ import annotations

from django.urls import path, register_converter

from dashboards.costs.ledger.months import MonthKey
from dashboards.costs.pages import months, prices

register_converter(MonthKey, "month")

app_name = "money"
urlpatterns = [
    path("reports/", months.reports, name="reports"),
    path("reports/<month:month>/", months.report, name="report"),
    path("reports/<month:month>.csv", months.report_csv, name="report_csv"),
    path("budgets/", months.budget_list, name="budgets"),
    path("budgets/new/", months.new_budget, name="new_budget"),
    path("budgets/<uuid:budget_id>/", months.edit_budget, name="budget"),
    path("budgets/<uuid:budget_id>/delete/", months.delete_budget, name="delete_budget"),
    path("prices/", prices.prices, name="prices"),
    path("prices/<str:machine>/", prices.price, name="price"),
    path("tiers/", months.tier_list, name="tiers"),
    path("tiers/<str:name>/", months.edit_tier, name="tier"),
    path("tiers/<str:name>/forget/", months.forget_tier, name="forget_tier"),
]
