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
    "name": "At most 60 characters; no other budget has it.",
    "whose": f"What it is for: {', '.join(Whose.values)}.",
    "subject": "The team's slug, KEY=VALUE of a tag, or the endpoint's name; empty for all.",
    "usd": "US dollars a calendar month, above 0.",
}
PRICE_FIELDS = {
    "usd_hour": "US dollars an hour for the whole tier; empty: by what its nodes run on.",
    "machine": "The instance type its nodes run on, as under Instance types.",
    "disk_usd_gib_month": "US dollars a month for a GiB of its disks.",
    "since": "The day from which on this counts, such as 2026-11-21; left out: today. Earlier days "
    "keep what was said before, later ones get this.",
    "source": "Where the price is from.",
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
            text = "There is a budget of this name."
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
        text, remedy = "There is no such budget.", "Look at the list of budgets."
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
    text = f"There is no {whose} {subject} here for you."
    raise Refused(Problem("subject", subject, text, BUDGET_FIELDS["subject"], "unknown"))


def _check_budget(data: Mapping[str, Any]) -> None:
    problems = _unknown(data, BUDGET_FIELDS)
    name, whose = data.get("name"), data.get("whose")
    if not isinstance(name, str) or not _NAME.fullmatch(name.strip()):
        text = "A budget needs a name."
        problems.append(Problem("name", name, text, BUDGET_FIELDS["name"], "invalid"))
    if whose not in Whose.values:
        text = "A budget is for everything, a team, a tag or an endpoint."
        problems.append(Problem("whose", whose, text, BUDGET_FIELDS["whose"], "invalid_choice"))
    subject = data.get("subject", "")
    if not isinstance(subject, str) or len(subject) > 200 or not subject.isprintable():
        text = "This names nothing."
        problems.append(Problem("subject", None, text, BUDGET_FIELDS["subject"], "invalid"))
    elif whose == Whose.TAG and not all(subject.strip().partition("=")):
        text = "A tag is written KEY=VALUE."
        problems.append(Problem("subject", subject, text, "Write it as app=search.", "invalid"))
    elif whose in (Whose.TEAM, Whose.ENDPOINT) and not subject.strip():
        text = f"Which {whose}?"
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
            text = f"Nothing was said of what {name} costs."
            raise Refused(
                Problem("name", name, text, "Look at the list.", "not_found"), status_code=404
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
        text, remedy = "This names no cache tier.", "Give the tier's name, or redis:HOST:PORT."
        problems.append(Problem("name", None, text, remedy, "invalid"))
    for field in ("usd_hour", "disk_usd_gib_month"):
        if data.get(field) is not None:
            _amount(field, data[field], PRICE_FIELDS, problems)
    for field, longest in (("machine", 63), ("source", 200)):
        value = data.get(field) or ""
        if not isinstance(value, str) or len(value) > longest or not value.isprintable():
            text = f"{field} is a text of at most {longest} characters."
            problems.append(Problem(field, None, text, PRICE_FIELDS[field], "invalid"))
    if data.get("since") and not _is_day(data["since"]):
        text = "This is no day."
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
        text = f"{field} must be a number of US dollars."
        shown = value if isinstance(value, str) else None
        problems.append(Problem(field, shown, text, help_of[field], "out_of_range"))


def _unknown(data: Mapping[str, Any], known: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(field, None, "There is no such field.", f"Known: {', '.join(known)}.", "unknown")
        for field in data
        if field not in known
    ]
