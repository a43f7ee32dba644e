"""Change budgets and cache tier prices: validate, write, record.

All problems are reported at once, with the same texts for form, REST and command line. Team and
endpoint budgets need permission on the team or endpoint; other budgets and prices need the operator
role on the platform.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, date
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from console.accounts import selectors as accounts
from console.accounts.credentials import stored_actor
from console.accounts.permissions import Owned, allows, require
from console.audit.record import diff, record
from console.core.errors import Problem, Refused
from console.resources.fields import ModelFields
from dashboards.costs import budgets
from dashboards.costs.models import Budget, TierPrice, Whose
from dashboards.costs.selectors import last_tier_price
from endpoints import teams

BUDGET_FIELDS = ModelFields(Budget, ("name", "whose", "subject", "usd"))
PRICE_FIELDS = ModelFields(
    TierPrice, ("usd_hour", "machine", "disk_usd_gib_month", "since", "source"), key="name"
)


@transaction.atomic
def save_budget(actor: Any, budget_id: UUID | None, data: Mapping[str, Any]) -> Budget:
    """Create a budget, or change the one with that id; omitted fields keep their values."""
    before = None
    if budget_id is not None:
        list(Budget.objects.select_for_update(no_key=True).filter(pk=budget_id).values_list("pk"))
        before = get_budget(actor, budget_id)
    before_values = BUDGET_FIELDS.values(before) if before else {}
    budget = copy.copy(before) if before else Budget(created_by=stored_actor(actor))
    try:
        BUDGET_FIELDS.fill(budget, data)
    except Refused as refused:
        if refused.status_code == 409:  # a taken name is told to those only who may take it
            _require_change(actor, budget, before)
        raise
    _require_change(actor, budget, before)
    budget.changed_at = timezone.now()
    budget.save()
    changes = diff(before_values, BUDGET_FIELDS.values(budget))
    verb = "update" if before else "create"
    record(actor, verb, f"budget/{budget.name}", changes, of=_owner(actor, budget))
    return budget


def _require_change(actor: Any, budget: Budget, before: Budget | None) -> None:
    """Moving a budget to another team needs permission on both."""
    for each in filter(None, (budget, before)):
        require(actor, "operator", of=_owner(actor, each))


def delete_budget(actor: Any, budget_id: UUID) -> None:
    budget = get_budget(actor, budget_id)
    owner = _owner(actor, budget)
    require(actor, "operator", of=owner)
    with transaction.atomic():
        if not budget.delete()[0]:  # concurrently
            raise _no_budget(budget_id)
        record(actor, "delete", f"budget/{budget.name}", of=owner)


def get_budget(viewer: Any, budget_id: UUID) -> Budget:
    budget = budgets.budgets(viewer).filter(pk=budget_id).first()
    if budget is None:
        raise _no_budget(budget_id)
    return budget


def _no_budget(budget_id: UUID) -> Refused:
    text, remedy = "This budget does not exist.", "See the list of budgets."
    return Refused(Problem("id", str(budget_id), text, remedy, "not_found"), status_code=404)


def _owner(actor: Any, budget: Budget) -> Owned | None:
    """Return the team or endpoint of the budget; None for a platform budget.

    Raise `Refused` if the subject does not exist or is not visible to the actor.
    """
    whose, subject = budget.whose, budget.subject
    if whose not in (Whose.TEAM, Whose.ENDPOINT):
        return None
    owner: Owned | None = accounts.team(subject) if whose == Whose.TEAM else teams.find(subject)
    if owner is not None and allows(actor, "viewer", of=owner):
        return owner
    if allows(actor, "operator"):
        return None  # deleted: needs platform permission
    text = f"{whose.capitalize()} {subject} does not exist or is not visible to you."
    raise Refused(Problem("subject", subject, text, BUDGET_FIELDS.help("subject"), "unknown"))


def save_tier_price(actor: Any, name: str, data: Mapping[str, Any]) -> TierPrice:
    """Set the price of a tier from a day on; omitted fields keep their values.

    Prices entered for later days are deleted.
    """
    require(actor, "operator")
    with transaction.atomic():
        before = last_tier_price(name)
        before_values = PRICE_FIELDS.values(before) if before else {}
        price = TierPrice(name=name, changed_by=stored_actor(actor), **before_values)
        PRICE_FIELDS.fill(price, {**data, "since": data.get("since") or _today()})
        TierPrice.objects.filter(name=name, since__gte=price.since).delete()
        price.save(force_insert=True)
        verb = "update" if before else "create"
        record(actor, verb, f"tier-price/{name}", diff(before_values, PRICE_FIELDS.values(price)))
    return price


def clear_tier_price(actor: Any, name: str) -> None:
    """Clear the price from today on; earlier days keep theirs."""
    require(actor, "operator")
    with transaction.atomic():
        if last_tier_price(name) is None:
            text = f"{name} has no price."
            raise Refused(
                Problem("name", name, text, "See the list of prices.", "not_found"), status_code=404
            )
        today = _today()
        TierPrice.objects.filter(name=name, since__gte=today).delete()
        if TierPrice.objects.filter(name=name).exists():
            TierPrice.objects.create(
                name=name, since=today, source="forgotten", changed_by=stored_actor(actor)
            )
        record(actor, "delete", f"tier-price/{name}")


def _today() -> date:
    return timezone.now().astimezone(UTC).date()
