"""Past values of a rule's expression, drawn with its threshold.

If Prometheus cannot be queried, the result holds the reason. The chart has a text alternative.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dashboards.alerts.evaluation.measure import (
    VALUE,
    Measure,
    MeasureChart,
    built_in_measure,
    user_rule_measure,
)
from dashboards.alerts.rules.rule import EndpointSelection, Rule
from dashboards.alerts.rules.rule_file import Settings, UserRule
from dashboards.boards.queries import Scope
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.http.client import Asker, Window

RANGES = {
    "1h": (3600, 15),
    "6h": (6 * 3600, 60),
    "24h": (24 * 3600, 300),
    "7d": (7 * 86_400, 1800),
    "30d": (30 * 86_400, 7200),
}
DEFAULT = "24h"


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """Past values of a rule. `why`: reason why nothing is known."""

    key: str
    drawing: MeasureChart = field(default_factory=MeasureChart)
    why: str = ""


def query_history(
    asker: Asker, rule: Rule | UserRule, scope: Scope, settings: Settings, key: str
) -> RuleHistory:
    """Return the history; of a user-written rule the measure is the compared expression."""
    key = key if key in RANGES else DEFAULT
    measure = _measure(rule, scope, settings)
    if measure is None:
        return RuleHistory(key)
    window = Window.ending(time.time(), *RANGES[key])
    answers = asker.ask(measure.questions(window))
    fault = answers[VALUE].fault
    if fault is not None:
        message = make_fault_message(fault)
        return RuleHistory(key, why=f"{message.title}: {message.text}")
    return RuleHistory(key, measure.drawn(answers, window))


def _measure(rule: Rule | UserRule, scope: Scope, settings: Settings) -> Measure | None:
    """Return None if the measure has no endpoint label and the viewer may not see all endpoints."""
    if isinstance(rule, UserRule):
        return user_rule_measure(rule.expr)
    # No endpoint is named "-".
    names = (scope.endpoint,) if scope.endpoint else (scope.among or ("-",))
    only = EndpointSelection(names if scope.endpoint or scope.among is not None else ())
    if not rule.per_endpoint and only.names:
        return None
    return built_in_measure(rule, settings.of(rule, scope.endpoint), only)
