"""Queries on the audit log."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from console.accounts.models import User
from console.accounts.permissions import Somebody, allows, team_ids_with_role
from console.audit.models import AuditEvent


def events_visible_to(viewer: Somebody) -> QuerySet[AuditEvent]:
    """Return events of the viewer's teams and actions, newest first; all for viewer None."""
    rows = AuditEvent.objects.all()
    if viewer is None or allows(viewer, "viewer"):
        return rows
    mine = Q(team__in=team_ids_with_role(viewer, "viewer") or ())
    own = isinstance(viewer, User) and viewer.team_cap is None
    return rows.filter(mine | Q(actor=viewer.pk) if own else mine)


def list_events(
    actor: str = "", verb: str = "", target: str = "", viewer: Somebody = None
) -> QuerySet[AuditEvent]:
    """Return events, newest first; `actor` matches exactly, `verb` and `target` by prefix."""
    events = events_visible_to(viewer)
    if actor:
        events = events.filter(actor_name__iexact=actor)
    if verb:
        events = events.filter(verb__istartswith=verb)
    if target:
        events = events.filter(target__istartswith=target)
    return events


def list_verbs(viewer: Somebody = None) -> list[str]:
    return list(
        events_visible_to(viewer).order_by("verb").values_list("verb", flat=True).distinct()
    )


def list_actors(viewer: Somebody = None) -> list[str]:
    names = events_visible_to(viewer).order_by("actor_name").values_list("actor_name", flat=True)
    return list(names.distinct())
