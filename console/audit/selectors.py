"""Reads of the trail."""

from __future__ import annotations

from django.db.models import QuerySet

from console.audit.models import AuditEvent


def events(actor: str = "", verb: str = "", target: str = "") -> QuerySet[AuditEvent]:
    """Newest first. `actor` is a whole name; `verb` and `target` match from their start."""
    found = AuditEvent.objects.all()
    if actor:
        found = found.filter(actor_name__iexact=actor)
    if verb:
        found = found.filter(verb__istartswith=verb)
    if target:
        found = found.filter(target__istartswith=target)
    return found


def verbs() -> list[str]:
    return list(AuditEvent.objects.order_by("verb").values_list("verb", flat=True).distinct())


def actors() -> list[str]:
    names = AuditEvent.objects.order_by("actor_name").values_list("actor_name", flat=True)
    return list(names.distinct())
