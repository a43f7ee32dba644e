"""Add, change and reset instance types, with audit events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date
from typing import Any

from django.db import transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import diff, record
from console.catalogue import selectors
from console.catalogue.core import rules
from console.catalogue.core.builtin import BUILTIN, Instance
from console.catalogue.models import InstancePrice, InstanceType
from console.core.errors import Problem, Refused


def save_instance_type(actor: User, name: Any, data: Mapping[str, Any]) -> Instance:
    """Add or update an instance type; fields missing in `data` keep their values."""
    require(actor, "operator")
    with transaction.atomic():
        before = selectors.get(name) if isinstance(name, str) else None
        known = rules.to_data(before.instance) if before else {}
        instance = rules.parse_instance(name, {**known, **data})
        facts = {key: getattr(instance, key) for key in Instance.__dataclass_fields__}
        InstanceType.objects.update_or_create(
            name=facts.pop("name"),
            defaults={**facts, "changed_at": timezone.now(), "changed_by": stored_actor(actor)},
        )
        if before is None or _price(before.instance) != _price(instance):
            since = instance.price_date or _today()
            _store_price(
                actor, instance.name, since, instance.price_usd_hour, instance.price_source
            )
        changes = diff(known, rules.to_data(instance))
        record(actor, "change" if before else "create", f"instance-type/{name}", changes)
    return instance


def remove_instance_type(actor: User, name: str) -> bool:
    """Delete the stored type; return whether a built-in one of that name remains."""
    require(actor, "operator")
    with transaction.atomic():
        gone, _ = InstanceType.objects.filter(name=name).delete()
        if not gone:
            text = (
                f"{name} is built in and has no changes to reset."
                if name in BUILTIN
                else f"Instance type {name} does not exist."
            )
            remedy = "Change it to override the built-in values."
            raise Refused(
                Problem("name", name, text, remedy, "not_found"),
                status_code=409 if name in BUILTIN else 404,
            )
        again = BUILTIN.get(name)
        _store_price(actor, name, _today(), again.price_usd_hour if again else None, "as built in")
        record(actor, "delete", f"instance-type/{name}")
    return name in BUILTIN


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


def _price(instance: Instance) -> tuple[float | None, date | None]:
    return instance.price_usd_hour, instance.price_date


def _store_price(actor: User, name: str, since: date, price: float | None, source: str) -> None:
    """Store the price from that day on, replacing later entries."""
    InstancePrice.objects.filter(name=name, since__gte=since).delete()
    InstancePrice.objects.create(
        name=name, since=since, price_usd_hour=price, source=source, changed_by=stored_actor(actor)
    )
