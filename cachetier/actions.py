"""Every change a person or another room asks of a cache tier: check, do, notify.

Promises that a refused action changes nothing, and that each one is in the audit trail. Rights
are checked here too, so that a page, REST and a command cannot differ.
"""

from __future__ import annotations

from typing import Any

import psutil
from django.db import IntegrityError, transaction
from django.utils import timezone

from cachetier import tasks, usage
from cachetier.choices import DEFAULT_TIER
from cachetier.errors import Problem, Refused
from cachetier.models import GIB, CacheTier, CacheTierStatus
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import record
from console.reconcile import mark_due

MIN_BYTES = 64 * 1024**2
DEFAULT_BYTES = GIB
# A tier beside workers on one machine must leave them room.
_SHARE_OF_MACHINE = 0.75


def ensure_default_tier() -> CacheTier:
    """The tier every endpoint with `tieredstorage` uses; created on first need, by nobody.

    Safe against itself: of callers at the same moment, one creates it and all get it. A tier that
    is being deleted is wanted again: it comes back once the old one is gone.
    """
    found = CacheTier.objects.filter(name=DEFAULT_TIER).first()
    if found is not None:
        return found
    capacity = min(DEFAULT_BYTES, _largest())
    try:
        with transaction.atomic():
            tier = CacheTier.objects.create(name=DEFAULT_TIER, capacity_bytes=capacity)
            CacheTierStatus.objects.create(tier=tier)
            record(None, "create", f"cache-tier/{DEFAULT_TIER}", {"capacity_bytes": capacity})
            tasks.reconcile_tier.nudge(str(tier.pk))
    except IntegrityError:
        return CacheTier.objects.get(name=DEFAULT_TIER)
    return tier


def resize(actor: User | None, name: str, capacity_bytes: Any) -> CacheTier:
    """Give the tier another size. Its node restarts, and what it held is forgotten."""
    if actor is not None:
        require(actor, "operator")
    wanted = _check_size(capacity_bytes)
    with transaction.atomic():
        tier = _locked(name)
        before = tier.capacity_bytes
        if before == wanted:
            return tier
        tier.capacity_bytes = wanted
        tier.generation += 1
        tier.changed_at = timezone.now()
        tier.save(update_fields=["capacity_bytes", "generation", "changed_at"])
        record(actor, "resize", f"cache-tier/{name}", {"capacity_bytes": [before, wanted]})
        _wake(tier)
    return tier


def delete(actor: User | None, name: str) -> None:
    """Stop the tier and forget it; refused while anything uses it."""
    if actor is not None:
        require(actor, "operator")
    with transaction.atomic():
        tier = _locked(name)
        used_by = usage.users(name)
        if used_by:
            raise Refused(
                Problem(
                    "name",
                    name,
                    f"Cache tier {name} is used by {', '.join(used_by)}.",
                    "Turn L2 off there first, or delete them.",
                    "in_use",
                ),
                status_code=409,
            )
        tier.deleted_at = timezone.now()
        tier.generation += 1
        tier.save(update_fields=["deleted_at", "generation"])
        record(actor, "delete", f"cache-tier/{name}")
        _wake(tier)


def _locked(name: str) -> CacheTier:
    """The tier, its row held until the end of the transaction; a deletion cannot be undone."""
    tier = CacheTier.objects.select_for_update().filter(name=name).first()
    if tier is None or tier.deleted_at is not None:
        what = "is being deleted" if tier is not None else "does not exist"
        raise Refused(
            Problem("name", name, f"Cache tier {name} {what}.", "Choose another.", "not_found"),
            status_code=404 if tier is None else 409,
        )
    return tier


def _wake(tier: CacheTier) -> None:
    mark_due(CacheTierStatus, str(tier.pk))
    tasks.reconcile_tier.nudge(str(tier.pk))


def _largest() -> int:
    return int(psutil.virtual_memory().total * _SHARE_OF_MACHINE)


def _check_size(value: Any) -> int:
    largest = _largest()
    remedy = f"Give whole bytes from {MIN_BYTES} (64 MiB) to {largest} ({largest / GIB:.1f} GiB)."
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(Problem("capacity_bytes", value, "The size is not a number.", remedy, "type"))
    if value < MIN_BYTES:
        raise Refused(
            Problem("capacity_bytes", value, "The size is too small.", remedy, "min_value")
        )
    if value > largest:
        text = "The size is more than this machine can spare."
        raise Refused(Problem("capacity_bytes", value, text, remedy, "max_value"))
    return value
