"""Pages about money over time, mounted by console.urls under "costs/"."""

from __future__ import annotations

from django.urls import path, register_converter

from dashboards.money import views
from dashboards.money.months import MonthKey

register_converter(MonthKey, "month")

app_name = "money"
urlpatterns = [
    path("reports/", views.reports, name="reports"),
    path("reports/<month:month>/", views.report, name="report"),
    path("reports/<month:month>.csv", views.report_csv, name="report_csv"),
    path("budgets/", views.budget_list, name="budgets"),
    path("budgets/new/", views.new_budget, name="new_budget"),
    path("budgets/<uuid:budget_id>/", views.edit_budget, name="budget"),
    path("budgets/<uuid:budget_id>/delete/", views.delete_budget, name="delete_budget"),
    path("tiers/", views.tier_list, name="tiers"),
    path("tiers/<str:name>/", views.edit_tier, name="tier"),
    path("tiers/<str:name>/forget/", views.forget_tier, name="forget_tier"),
]
