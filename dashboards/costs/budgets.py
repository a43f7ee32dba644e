"""Budget status: spending of the month, forecast, crossings and the banner on every page.

Two queries cover all budgets. Forecast: spending so far plus, for each remaining hour, the average
hourly cost of the last seven days measured; None if nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.core.cache import cache
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.accounts.models import Team
from console.accounts.permissions import Somebody, allows, team_ids_with_role
from console.audit.record import record
from console.web.shell.context import Banner
from dashboards.costs.formulas.savings import HOUR_S
from dashboards.costs.ledger import months, sums
from dashboards.costs.ledger.months import Month
from dashboards.costs.ledger.sums import CostLine
from dashboards.costs.models import Budget, BudgetCrossing, MeasuredHour, Whose
from endpoints import teams

MARKS = (50, 80, 100)
FORESEEN = 0
"""Mark of a budget whose forecast for the month exceeds it."""
WINDOW = timedelta(days=7)
_SHOWN = 3  # budgets that the banner names
_PASSED = "money.passed"  # cached, so that most pages need no query
_KEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Amounts in USD. `foreseen`: at the end of the month, None without measurements. `unpriced`:
    some of the usage has no price, so the true cost is higher.
    """

    budget: Budget
    spent: float
    foreseen: float | None
    unpriced: bool

    @property
    def used(self) -> float:
        return self.spent / self.budget.usd

    @property
    def forecast(self) -> float | None:
        return None if self.foreseen is None else self.foreseen / self.budget.usd

    @property
    def percent(self) -> int:
        return round(100 * self.used)

    @property
    def level(self) -> str:
        """Return the Tabler color name."""
        if self.used >= 1:
            return "red"
        return "yellow" if self.used >= 0.8 or (self.forecast or 0.0) > 1 else "green"

    @property
    def passed(self) -> list[int]:
        marks = [mark for mark in MARKS if self.used * 100 >= mark]
        return [*marks, FORESEEN] if self.used < 1 < (self.forecast or 0.0) else marks


def budgets(viewer: Somebody = None) -> QuerySet[Budget]:
    """Return the budgets of the viewer's teams and endpoints; all with a platform role."""
    rows = Budget.objects.select_related("created_by").order_by("name")
    if viewer is None or allows(viewer, "viewer"):
        return rows
    mine = Team.objects.filter(pk__in=team_ids_with_role(viewer, "viewer") or ()).values("slug")
    of_team = Q(whose=Whose.TEAM, subject__in=mine)
    return rows.filter(of_team | Q(whose=Whose.ENDPOINT, subject__in=teams.names(viewer)))


def budget_states(wanted: Iterable[Budget], now: datetime) -> list[BudgetState]:
    listed = list(wanted)
    if not listed:
        return []
    month = months.month_of(now)
    spent = sums.by_endpoint(sums.days(month.first, month.after))
    lately, hours = _lately(now, spent, month)
    left = (month.ends - now.astimezone(UTC)).total_seconds() / HOUR_S
    return [_state(budget, spent, lately, hours, left) for budget in listed]


def _lately(
    now: datetime, spent: Sequence[CostLine], month: Month
) -> tuple[Sequence[CostLine], float]:
    """Return usage and hours of the last whole days, or of this month if those were not
    measured."""
    today = now.astimezone(UTC).date()
    hours = _measured(today - WINDOW, today)
    if hours:
        return sums.by_endpoint(sums.days(today - WINDOW, today)), hours
    return spent, _measured(month.first, month.after)


def _measured(begin: date, end: date) -> float:
    first, last = (datetime.combine(day, datetime.min.time(), UTC) for day in (begin, end))
    rows = MeasuredHour.objects.filter(hour__gte=first, hour__lt=last)
    return sum(rows.values_list("covered_s", flat=True)) / HOUR_S


def _state(
    budget: Budget, spent: Sequence[CostLine], lately: Sequence[CostLine], hours: float, left: float
) -> BudgetState:
    mine = sums.total(_of(budget, spent))
    each = sums.total(_of(budget, lately)).total_usd / hours if hours else None
    foreseen = None if each is None else mine.total_usd + each * left
    unpriced = mine.unpriced_s > 0 or mine.unpriced_tier_h > 0
    return BudgetState(budget, mine.total_usd, foreseen, unpriced)


def _of(budget: Budget, lines: Iterable[CostLine]) -> list[CostLine]:
    if budget.whose == Whose.TEAM:
        return [line for line in lines if line.team == budget.subject]
    if budget.whose == Whose.ENDPOINT:
        return [line for line in lines if line.name == budget.subject]
    if budget.whose == Whose.TAG:
        key, _, value = budget.subject.partition("=")
        return [line for line in lines if line.tags.get(key) == value]
    return list(lines)


def record_crossings(now: datetime) -> list[BudgetCrossing]:
    """Record new crossings, once per month and mark."""
    month, crossings = months.month_of(now).first, []
    for state in budget_states(budgets(), now):
        for mark in state.passed:
            values = {"spent": state.spent, "usd": state.budget.usd, "at": now}
            with transaction.atomic():
                made, new = BudgetCrossing.objects.get_or_create(
                    budget=state.budget, month=month, mark=mark, defaults=values
                )
                if new:
                    crossings.append(made)
                    changes = {"mark": mark, "spent": round(state.spent, 2), "month": str(month)}
                    record(None, "pass", f"budget/{state.budget.name}", changes)
    return crossings


def budget_banner(viewer: Somebody) -> Banner | None:
    passed = cache.get_or_set(_PASSED, _passed_marks, _KEPT_S) or {}
    if not passed:
        return None
    mine = list(budgets(viewer).filter(pk__in=passed))
    if not mine:
        return None
    gone = [budget.name for budget in mine if passed[budget.pk] == 100]
    if gone:
        return Banner("budget", "danger", "Budget exceeded", f"{_named(gone)}: see Costs, Budgets.")
    names = _named([budget.name for budget in mine])
    text = f"{names}: the forecast exceeds the budget this month. See Costs, Budgets."
    return Banner("budget", "warning", "Budget forecast exceeded", text)


def clear_crossings() -> None:
    """Clear the cache after a crossing."""
    cache.delete(_PASSED)


def _passed_marks() -> dict[UUID, int]:
    """Return the highest mark of this month by budget."""
    month = months.month_of(timezone.now()).first
    rows = BudgetCrossing.objects.filter(month=month, mark__in=(100, FORESEEN))
    return dict(rows.order_by("mark").values_list("budget_id", "mark"))


def _named(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
