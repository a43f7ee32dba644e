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

        rounds.register_round(tasks.as_round)
        cards.register_card(calibration_switches.CARD)
        context.register_banner(budgets.budget_banner)
        meters.add_metrics("web", metrics.BudgetMetrics())
