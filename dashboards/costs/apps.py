from __future__ import annotations

from django.apps import AppConfig


class MoneyConfig(AppConfig):
    name = "dashboards.costs"
    label = "money"

    def ready(self) -> None:
        from console.system import rounds
        from console.telemetry import meters
        from console.web.shell import cards, context
        from dashboards import calibration_switches
        from dashboards.costs import budgets, metrics, tasks
        from dashboards.costs.reports.misses import worker_price
        from routing.whatif.inputs import register_worker_price

        rounds.register_round(tasks.as_round)
        cards.register_card(calibration_switches.CARD)
        context.register_banner(budgets.budget_banner)
        register_worker_price(worker_price)
        meters.add_metrics("web", metrics.BudgetMetrics())
