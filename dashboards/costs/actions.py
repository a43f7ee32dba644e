"""Change budgets and cache tier prices: validate, write, record.

All problems are reported at once, with the same texts for form, REST and command line. Team and
endpoint budgets need permission on the team or endpoint; other budgets and prices need the operator
role on the platform.
"""

from __future__ import annotations

import math
import re
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
from dashboards.costs import budgets
from dashboards.costs.models import Budget, TierPrice, Whose
from dashboards.costs.selectors import last_tier_price
from endpoints import teams

BUDGET_FIELDS = {
    "name": "At most 60 characters, unique.",
    "whose": f"One of: {', '.join(Whose.values)}.",
    "subject": "Team slug, tag as KEY=VALUE, or endpoint name; empty for all.",
    "usd": "USD per calendar month, above 0.",
}
PRICE_FIELDS = {
    "usd_hour": "USD per hour of the whole tier; empty: calculated from the instance type.",
    "machine": "Instance type of its nodes, as under Instance types.",
    "disk_usd_gib_month": "USD per month and GiB of disk.",
    "since": "First day of this price, such as 2026-11-21; default: today. Earlier days keep "
    "the earlier price.",
    "source": "Source of the price.",
}
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,60}")
_MOST_USD = 1e9


def save_budget(actor: Any, budget_id: UUID | None, data: Mapping[str, Any]) -> Budget:
    """Create a budget, or change the one with that id; omitted fields keep their values."""
    before = None if budget_id is None else get_budget(actor, budget_id)
    known = budget_document(before) if before else {"whose": Whose.ALL.value, "subject": ""}
    wanted = {**known, **data}
    _check_budget(wanted)
    # Moving a budget to another team needs permission on both.
    for whose, subject in {_subject(wanted), *([_subject(known)] if before else ())}:
        require(actor, "operator", of=_owner(actor, whose, subject))
    with transaction.atomic():
        taken = Budget.objects.filter(name=wanted["name"].strip())
        if (taken.exclude(pk=before.pk) if before else taken).exists():
            text = "A budget with this name exists."
            problem = Problem("name", wanted["name"], text, BUDGET_FIELDS["name"], "taken")
            raise Refused(problem, status_code=409)
        budget = before or Budget(created_by=stored_actor(actor))
        budget.name = wanted["name"].strip()
        budget.whose, budget.subject = _subject(wanted)
        budget.usd = float(wanted["usd"])
        budget.changed_at = timezone.now()
        budget.save()
        verb = "change" if before else "create"
        owner = _owner(actor, budget.whose, budget.subject)
        changes = diff(known if before else {}, budget_document(budget))
        record(actor, verb, f"budget/{budget.name}", changes, of=owner)
    return budget


def delete_budget(actor: Any, budget_id: UUID) -> None:
    budget = get_budget(actor, budget_id)
    owner = _owner(actor, budget.whose, budget.subject)
    require(actor, "operator", of=owner)
    with transaction.atomic():
        record(actor, "delete", f"budget/{budget.name}", of=owner)
        budget.delete()


def get_budget(viewer: Any, budget_id: UUID) -> Budget:
    found = budgets.budgets(viewer).filter(pk=budget_id).first()
    if found is None:
        text, remedy = "This budget does not exist.", "See the list of budgets."
        raise Refused(Problem("id", str(budget_id), text, remedy, "not_found"), status_code=404)
    return found


def budget_document(budget: Budget) -> dict[str, Any]:
    return {name: getattr(budget, name) for name in BUDGET_FIELDS}


def _subject(data: Mapping[str, Any]) -> tuple[str, str]:
    whose = str(data["whose"])
    return whose, "" if whose == Whose.ALL else str(data["subject"]).strip()


def _owner(actor: Any, whose: str, subject: str) -> Owned | None:
    """Return the team or endpoint of the budget; None for a platform budget.

    Raise `Refused` if the subject does not exist or is not visible to the actor.
    """
    if whose not in (Whose.TEAM, Whose.ENDPOINT):
        return None
    owner: Owned | None = accounts.team(subject) if whose == Whose.TEAM else teams.find(subject)
    if owner is not None and allows(actor, "viewer", of=owner):
        return owner
    if allows(actor, "operator"):
        return None  # deleted: needs platform permission
    text = f"{whose.capitalize()} {subject} does not exist or is not visible to you."
    raise Refused(Problem("subject", subject, text, BUDGET_FIELDS["subject"], "unknown"))


def _check_budget(data: Mapping[str, Any]) -> None:
    problems = _unknown(data, BUDGET_FIELDS)
    name, whose = data.get("name"), data.get("whose")
    if not isinstance(name, str) or not _NAME.fullmatch(name.strip()):
        text = "Enter a name."
        problems.append(Problem("name", name, text, BUDGET_FIELDS["name"], "invalid"))
    if whose not in Whose.values:
        text = "Choose the scope: all, team, tag or endpoint."
        problems.append(Problem("whose", whose, text, BUDGET_FIELDS["whose"], "invalid_choice"))
    subject = data.get("subject", "")
    if not isinstance(subject, str) or len(subject) > 200 or not subject.isprintable():
        text = "Enter up to 200 printable characters."
        problems.append(Problem("subject", None, text, BUDGET_FIELDS["subject"], "invalid"))
    elif whose == Whose.TAG and not all(subject.strip().partition("=")):
        text = "Enter a tag as KEY=VALUE."
        problems.append(Problem("subject", subject, text, "Write it as app=search.", "invalid"))
    elif whose in (Whose.TEAM, Whose.ENDPOINT) and not subject.strip():
        text = f"Enter the {whose}."
        problems.append(Problem("subject", subject, text, BUDGET_FIELDS["subject"], "required"))
    _amount("usd", data.get("usd"), BUDGET_FIELDS, problems, above_zero=True)
    if problems:
        raise Refused(*problems)


def save_tier_price(actor: Any, name: str, data: Mapping[str, Any]) -> TierPrice:
    """Set the price of a tier from a day on; omitted fields keep their values.

    Prices entered for later days are deleted.
    """
    require(actor, "operator")
    with transaction.atomic():
        before = last_tier_price(name)
        known = price_document(before) if before else {}
        wanted = {**known, "since": None, **data}
        check_tier_price(name, wanted)
        since = date.fromisoformat(wanted["since"]) if wanted["since"] else _today()
        TierPrice.objects.filter(name=name, since__gte=since).delete()
        made = TierPrice.objects.create(
            name=name,
            since=since,
            usd_hour=wanted.get("usd_hour"),
            machine=(wanted.get("machine") or "").strip(),
            disk_usd_gib_month=wanted.get("disk_usd_gib_month"),
            source=(wanted.get("source") or "").strip(),
            changed_by=stored_actor(actor),
        )
        verb = "change" if before else "create"
        record(actor, verb, f"tier-price/{name}", diff(known, price_document(made)))
    return made


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


def price_document(price: TierPrice) -> dict[str, Any]:
    facts = {name: getattr(price, name) for name in PRICE_FIELDS}
    return {**facts, "since": price.since.isoformat()}


def check_tier_price(name: str, data: Mapping[str, Any]) -> None:
    problems = _unknown(data, PRICE_FIELDS)
    if not 1 <= len(name) <= 200 or not name.isprintable():
        text, remedy = "Invalid name of a cache tier.", "Use its name, or redis:HOST:PORT."
        problems.append(Problem("name", None, text, remedy, "invalid"))
    for field in ("usd_hour", "disk_usd_gib_month"):
        if data.get(field) is not None:
            _amount(field, data[field], PRICE_FIELDS, problems)
    for field, longest in (("machine", 63), ("source", 200)):
        value = data.get(field) or ""
        if not isinstance(value, str) or len(value) > longest or not value.isprintable():
            text = f"{field} must be text of at most {longest} characters."
            problems.append(Problem(field, None, text, PRICE_FIELDS[field], "invalid"))
    if data.get("since") and not _is_day(data["since"]):
        text = "Invalid date."
        problems.append(Problem("since", None, text, "Write it as 2026-11-21.", "invalid"))
    if problems:
        raise Refused(*problems)


def _is_day(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(date.fromisoformat(value))
    except ValueError:
        return False


def _amount(
    field: str,
    value: Any,
    help_of: Mapping[str, str],
    problems: list[Problem],
    *,
    above_zero: bool = False,
) -> None:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 <= number <= _MOST_USD or (above_zero and not number):
        text = f"{field} must be an amount in USD."
        shown = value if isinstance(value, str) else None
        problems.append(Problem(field, shown, text, help_of[field], "out_of_range"))


def _unknown(data: Mapping[str, Any], known: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(field, None, "Unknown field.", f"Known: {', '.join(known)}.", "unknown")
        for field in data
        if field not in known
    ]
