"""What Prometheus is told of budgets, so that its rules can raise an alarm.

Promises that a database which does not answer is counted and costs the scrape nothing but these
series, and that they are reckoned at most twice a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from django.db import DatabaseError, connections
from django.utils import timezone

from console.counters import count
from console.processkit.metrics import Registry
from dashboards.money import budgets
from dashboards.money.budgets import State
from dashboards.money.models import Budget, Whose

log = logging.getLogger(__name__)

USED = "emberline_budget_used_ratio"
FORECAST = "emberline_budget_forecast_ratio"
_KEPT_S = 30.0


class Exposed:
    """The budgets of this process, reckoned now and then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._states: Sequence[State] = ()

    def __call__(self, registry: Registry) -> None:
        for state in self._now():
            labels = labels_of(state.budget)
            text = "Spent of a budget this month, as a share of it."
            registry.gauge(USED, text, **labels).set(state.used)
            if state.forecast is not None:
                text = "What will be spent of a budget at the month's end, as a share of it."
                registry.gauge(FORECAST, text, **labels).set(state.forecast)

    def _now(self) -> Sequence[State]:
        with self._lock:
            if time.monotonic() < self._until:
                return self._states
            try:
                self._states = budgets.states(budgets.budgets(), timezone.now())
                self._until = time.monotonic() + _KEPT_S
            except DatabaseError as error:
                count("budgets_unknown")
                log.warning("budgets could not be reckoned: %s", type(error).__name__)
                self._states = ()
            finally:
                _done()
            return self._states


def _done() -> None:
    """The admin port's thread ends with no request: nobody else closes what it opened."""
    for one in connections.all(initialized_only=True):
        if not one.in_atomic_block:
            one.close_if_unusable_or_obsolete()


def labels_of(budget: Budget) -> dict[str, str]:
    """Those which name nothing are left out."""
    found = {"budget": budget.name}
    if budget.whose == Whose.TEAM:
        found["team"] = budget.subject
    if budget.whose == Whose.ENDPOINT:
        found["endpoint"] = budget.subject
    return found
