"""Prometheus metrics of budgets, for alert rules."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils import timezone

from console.processkit.metrics import Registry
from console.system.collector import MetricsCollector
from dashboards.costs import budgets
from dashboards.costs.budgets import BudgetState
from dashboards.costs.models import Budget, Whose
from dashboards.costs.prices.factors import factors
from dashboards.grafana.export.panel import FACTORS

USED = "emberline_budget_used_ratio"
FORECAST = "emberline_budget_forecast_ratio"


class BudgetMetrics(MetricsCollector[BudgetState]):
    unknown = "budgets_unknown"

    def read(self) -> Sequence[BudgetState]:
        return budgets.budget_states(budgets.budgets(), timezone.now())

    def add_series(self, registry: Registry, row: BudgetState) -> None:
        labels = labels_of(row.budget)
        text = "Spending of this month as a share of the budget."
        registry.gauge(USED, text, **labels).set(row.used)
        if row.forecast is not None:
            text = "Forecast at the end of the month as a share of the budget."
            registry.gauge(FORECAST, text, **labels).set(row.forecast)


def labels_of(budget: Budget) -> dict[str, str]:
    """Return the labels without empty ones."""
    labels = {"budget": budget.name}
    if budget.whose == Whose.TEAM:
        labels["team"] = budget.subject
    if budget.whose == Whose.ENDPOINT:
        labels["endpoint"] = budget.subject
    return labels


_TEXTS = {
    "worker_usd_hour": "Price of a worker of the endpoint (USD/h).",
    "saved_usd_token": "Saving of a cached prompt token (USD).",
}
Price = tuple[str, str, float]


class PriceMetrics(MetricsCollector[Price]):
    unknown = "prices_unknown"

    def read(self) -> Sequence[Price]:
        return [
            (factor, name, value)
            for factor, values in factors().items()
            for name, value in values.items()
        ]

    def add_series(self, registry: Registry, row: Price) -> None:
        factor, name, value = row
        registry.gauge(FACTORS[factor], _TEXTS[factor], endpoint_name=name).set(value)
