"""Cache tier actions: check rights and input, write, audit, notify.

A rejected action changes nothing. Pages, REST and commands share these checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from cachetier import node_admin, selectors, tasks
from cachetier.models import CacheTier, CacheTierStatus
from cachetier.tier import spec as tier_spec
from cachetier.tier.lifecycle import DEFAULT_TIER
from cachetier.tier.spec import Problem, Refused, TierSpec
from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.accounts.permissions import require
from console.audit.record import record
from console.claims import mark_due
from console.clusters import selectors as clusters
from console.core import uses
from console.core.errors import expect_generation
from console.provisioners.base import ReplicaState

_NAMESPACE = re.compile(r"[0-9A-Za-z]{1,64}")


def ensure_default_tier() -> CacheTier:
    """Return the default tier, creating it if needed.

    Safe under concurrent calls. A default tier being deleted is returned as it is; a call after
    its removal creates it again.
    """
    cache_tier = CacheTier.objects.filter(name=DEFAULT_TIER).first()
    if cache_tier is not None:
        return cache_tier
    where = clusters.default_cluster()
    most = TierSpec().memory_bytes if where else selectors.spare_capacity().memory_bytes
    spec = TierSpec(memory_bytes=min(TierSpec().memory_bytes, most), cluster=where)
    try:
        return _create(None, DEFAULT_TIER, spec)
    except IntegrityError:
        return CacheTier.objects.get(name=DEFAULT_TIER)


def create(actor: User, name: Any, data: Mapping[str, Any]) -> CacheTier:
    """Create a tier; fields missing from `data` take the `TierSpec` defaults."""
    require(actor, "operator")
    checked = tier_spec.check_name(name)
    spec = tier_spec.create_spec(data, selectors.spare_capacity())
    try:
        return _create(actor, checked, spec)
    except IntegrityError:
        raise Refused(tier_spec.name_taken(checked), status_code=409) from None


def _create(actor: User | None, name: str, spec: TierSpec) -> CacheTier:
    with transaction.atomic():
        tier = CacheTier.objects.create(name=name, created_by=stored_actor(actor), **spec.to_dict())
        CacheTierStatus.objects.create(tier=tier)
        record(actor, "create", f"cache-tier/{name}", spec.to_dict())
        tasks.reconcile_tier.nudge(str(tier.pk))
    return tier


def change(
    actor: User, name: str, data: Mapping[str, Any], *, expected_generation: int | None = None
) -> CacheTier:
    """Change spec fields of the tier (see `spec.FIELDS`)."""
    require(actor, "operator")
    with transaction.atomic():
        tier = _lock_tier(name)
        expect_generation(f"Cache tier {name}", tier.generation, expected_generation)
        before = tier.spec
        new_spec = tier_spec.change_spec(before, data, selectors.spare_capacity())
        changes = tier_spec.list_changes(before, new_spec)
        if not changes:
            return tier
        for field in changes:
            setattr(tier, field, getattr(new_spec, field))
        tier.generation += 1
        tier.changed_at = timezone.now()
        tier.save(update_fields=[*changes, "generation", "changed_at"])
        record(actor, "update", f"cache-tier/{name}", changes)
        _schedule_pass(tier)
    return tier


def flush(actor: User, name: str, namespace: str) -> int:
    """Flush one namespace ("" = all) on every node and return the number of values dropped.

    Raise Refused (502) naming the nodes that did not respond; the others were flushed.
    """
    require(actor, "operator")
    if namespace and not _NAMESPACE.fullmatch(namespace):
        remedy = "Copy it from the list of namespaces."
        text = "Unknown namespace."
        raise Refused(Problem("namespace", namespace, text, remedy, "invalid_namespace"))
    with transaction.atomic():
        tier = _lock_tier(name)
        # A stopping node serves no requests and loses its memory anyway.
        reachable = tier.nodes.exclude(admin_url="").exclude(state=ReplicaState.STOPPING)
        nodes = [(node.name, node.admin_url) for node in reachable]
        record(actor, "flush", f"cache-tier/{name}", {"namespace": namespace or "(all)"})
    dropped, silent = node_admin.flush(nodes, namespace)
    if silent:
        text = f"No response from {', '.join(silent)}. Flushed {dropped} values on other nodes."
        remedy = "Flush again when they respond."
        raise Refused(Problem("namespace", namespace, text, remedy, "node_silent"), status_code=502)
    return dropped


def delete(actor: User | None, name: str, *, expected_generation: int | None = None) -> None:
    """Delete the tier; rejected while anything uses it."""
    if actor is not None:
        require(actor, "operator")
    with transaction.atomic():
        tier = _lock_tier(name)
        expect_generation(f"Cache tier {name}", tier.generation, expected_generation)
        used_by = uses.of("cache-tier", name)
        if used_by:
            text = f"Cache tier {name} is used by {', '.join(used_by)}."
            remedy = "Disable L2 there first, or delete the endpoints."
            raise Refused(Problem("name", name, text, remedy, "in_use"), status_code=409)
        tier.deleted_at = timezone.now()
        tier.generation += 1
        tier.save(update_fields=["deleted_at", "generation"])
        record(actor, "delete", f"cache-tier/{name}")
        _schedule_pass(tier)


def _lock_tier(name: str) -> CacheTier:
    """Return the tier with its row locked; raise if it is being deleted."""
    tier = CacheTier.objects.select_for_update(no_key=True).filter(name=name).first()
    if tier is None or tier.deleted_at is not None:
        what, status = ("does not exist", 404) if tier is None else ("is being deleted", 409)
        text = f"Cache tier {name} {what}."
        raise Refused(
            Problem("name", name, text, "Choose another name.", "not_found"), status_code=status
        )
    return tier


def _schedule_pass(tier: CacheTier) -> None:
    mark_due(CacheTierStatus, str(tier.pk))
    tasks.reconcile_tier.nudge(str(tier.pk))


def nudge_by_name(name: str) -> None:
    """Reconcile the tier soon, if it exists."""
    tier = CacheTier.objects.filter(name=name).first()
    if tier is not None:
        _schedule_pass(tier)
