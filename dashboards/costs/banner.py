"""Banner shown on every page while a budget is exhausted or forecast to be.

Crossings are cached, so that most pages need no query.
"""

from __future__ import annotations

from uuid import UUID

from django.core.cache import cache
from django.utils import timezone

from console.accounts.permissions import Somebody
from console.web.shell.context import Banner
from dashboards.costs import budgets
from dashboards.costs.ledger import months
from dashboards.costs.models import BudgetCrossing

_SHOWN = 3
_PASSED = "money.passed"
_KEPT_S = 30.0


def budget_banner(viewer: Somebody) -> Banner | None:
    found = cache.get_or_set(_PASSED, _passed, _KEPT_S) or {}
    if not found:
        return None
    mine = list(budgets.budgets(viewer).filter(pk__in=found))
    if not mine:
        return None
    gone = [one.name for one in mine if found[one.pk] == 100]
    if gone:
        return Banner("budget", "danger", "Budget used up", f"{_named(gone)}: see Costs, Budgets.")
    names = _named([one.name for one in mine])
    text = f"{names}: at this pace it is used up before the month ends. See Costs, Budgets."
    return Banner("budget", "warning", "Budget will not last", text)


def clear_crossings() -> None:
    """Clear the cache after a crossing."""
    cache.delete(_PASSED)


def _passed() -> dict[UUID, int]:
    """Return the highest mark of this month by budget."""
    month = months.month_of(timezone.now()).first
    rows = BudgetCrossing.objects.filter(month=month, mark__in=(100, budgets.FORESEEN))
    return dict(rows.order_by("mark").values_list("budget_id", "mark"))


def _named(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
