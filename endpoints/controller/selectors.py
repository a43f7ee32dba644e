"""Reads of followed namespaces and of objects that own endpoints."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from console.accounts import selectors as accounts
from console.accounts.permissions import Somebody, allows
from endpoints.controller.models import Follow, Owned
from endpoints.teams import has_namespace


def follows() -> QuerySet[Follow]:
    return Follow.objects.select_related("status", "created_by").prefetch_related("owned")


def get(follow_id: str) -> Follow | None:
    return follows().filter(pk=follow_id).first()


def visible_follows(viewer: Somebody) -> list[Follow]:
    """Return all follows for a global role, else those of the namespaces of the viewer's teams."""
    rows = list(follows())
    if allows(viewer, "viewer"):
        return rows
    mine = list(accounts.list_teams_with_role(viewer))
    return [row for row in rows if any(has_namespace(t, row.cluster, row.namespace) for t in mine)]


def document(follow: Follow) -> dict[str, Any]:
    status = follow.status
    return {
        "id": str(follow.pk),
        "cluster": follow.cluster,
        "namespace": follow.namespace,
        "foreign": follow.foreign,
        "phase": "Deleting" if follow.deleted_at else status.phase,
        "reason": status.reason,
        "message": status.message,
        "objects": len(follow.owned.all()),
        "seen_at": status.seen_at,
        "created_at": follow.created_at,
        "created_by": follow.created_by.get_username() if follow.created_by else "system",
    }


def owned(follow: Follow) -> QuerySet[Owned]:
    return follow.owned.order_by("name")


def namespaces() -> dict[str, list[str]]:
    namespaces: dict[str, list[str]] = {}
    for follow in Follow.objects.all():
        namespaces.setdefault(follow.cluster, []).append(follow.namespace)
    return namespaces


def cluster_users() -> dict[str, list[str]]:
    """Return the namespaces that block the removal of their cluster."""
    return {
        cluster: [f"objects of namespace {namespace}" for namespace in names]
        for cluster, names in namespaces().items()
    }
