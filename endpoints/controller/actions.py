"""Follow and unfollow namespaces: check, write in one transaction, nudge after commit."""

from __future__ import annotations

import re

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.permissions import require
from console.audit.record import record
from console.claims import mark_due
from console.clusters import selectors as clusters
from console.core.errors import Problem
from endpoints.actions import Actor, user_of
from endpoints.controller.models import Follow, FollowStatus
from endpoints.controller.tasks import follow_objects
from endpoints.owners import System
from endpoints.refusals import ConflictError, NotFoundError
from endpoints.spec.endpoint_spec import SpecErrors

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def follow(actor: Actor, cluster: str, namespace: str, *, foreign: bool = False) -> Follow:
    _require_admin(actor)
    errors = _wrong(cluster, namespace)
    if errors:
        raise SpecErrors(errors)
    try:
        with transaction.atomic():
            made = Follow.objects.create(
                cluster=cluster, namespace=namespace, foreign=foreign, created_by=user_of(actor)
            )
            FollowStatus.objects.create(follow=made, reason="Accepted")
            record(user_of(actor), "create", _target(made), {"foreign": foreign})
            follow_objects.nudge(str(made.pk))
    except IntegrityError:
        raise ConflictError(
            "followed", f"{cluster}/{namespace} is followed already.", "No action needed."
        ) from None
    return made


def unfollow(actor: Actor, follow_id: str) -> Follow:
    _require_admin(actor)
    with transaction.atomic():
        follow = Follow.objects.select_for_update(no_key=True).filter(pk=follow_id).first()
        if follow is None:
            raise not_followed()
        if follow.deleted_at is None:
            follow.deleted_at = timezone.now()
            follow.generation += 1
            follow.save(update_fields=["deleted_at", "generation"])
            record(user_of(actor), "delete", _target(follow), {})
        mark_due(FollowStatus, str(follow.pk))
        follow_objects.nudge(str(follow.pk))
    return follow


def _require_admin(actor: Actor) -> None:
    """Require the admin role, since writers of the namespace can then create endpoints."""
    if not isinstance(actor, System):
        require(actor, "admin")


def _wrong(cluster: str, namespace: str) -> list[Problem]:
    errors = []
    names = clusters.names()
    if cluster not in names:
        text = ", ".join(names) or "none yet"
        message, remedy = f"Cluster {cluster!r} not found.", f"Existing clusters: {text}."
        errors.append(Problem("cluster", cluster, message, remedy, "unknown_cluster"))
    if not _NAMESPACE.fullmatch(namespace):
        message = "Invalid namespace."
        remedy = "Use up to 63 lower-case letters, digits and dashes."
        errors.append(Problem("namespace", namespace, message, remedy, "invalid_name"))
    return errors


def _target(found: Follow) -> str:
    return f"follow/{found}"


def not_followed() -> NotFoundError:
    return NotFoundError(
        "not_found", "Namespace not followed.", "List the followed namespaces to see them."
    )
