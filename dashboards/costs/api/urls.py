"""REST routes of budgets, cost reports and tier prices, mounted under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.resources.rest import make_urls
from dashboards.costs.api import prices, views

app_name = "money-api"
urlpatterns = [
    *make_urls(views.BUDGETS),
    path("budgets/<uuid:budget_id>/state/", views.BudgetStateView.as_view(), name="budget-state"),
    path("costs/prices/", prices.Prices.as_view(), name="prices"),
    path("costs/prices/<str:name>/", prices.OnePrice.as_view(), name="price"),
    path("cost-reports/", views.Months.as_view(), name="months"),
    path("cost-reports/<str:month>/", views.CostReport.as_view(), name="report"),
    path("tier-prices/", views.TierPrices.as_view(), name="tier-prices"),
    path("tier-prices/<str:name>/", views.OneTierPrice.as_view(), name="tier-price"),
    path(
        "tier-prices/<str:name>/prices/",
        views.TierPriceHistory.as_view(),
        name="tier-price-history",
    ),
]
