"""Alert rules for budgets, from the console's metrics."""

from __future__ import annotations

from dashboards.alerts.rules.rule import Rule, threshold

USED = "emberline_budget_used_ratio"
FORECAST = "emberline_budget_forecast_ratio"

RULES: tuple[Rule, ...] = (
    Rule(
        "BudgetExceeded",
        f"max by (budget, team, endpoint) ({USED})",
        "5m",
        "this month has used up more than <threshold> of the budget",
        "The page Costs says which endpoints spent it. Pause or scale down what is idle, or raise "
        "the budget.",
        condition="<measured> >= <threshold>",
        about="budget",
        parameters=(threshold("From", 1.0, 0.05, 10.0, "share"),),
    ),
    Rule(
        "BudgetForecast",
        f"max by (budget, team, endpoint) ({FORECAST})",
        "1h",
        "if the month goes on like this, it will use more than <threshold> of the budget",
        "The page Costs says which endpoints spend most now. There is still time to change it.",
        about="budget",
        parameters=(threshold("More than", 1.0, 0.05, 10.0, "share"),),
    ),
)
