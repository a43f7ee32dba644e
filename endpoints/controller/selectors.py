"""Every read of followed namespaces and of the objects which own endpoints."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from endpoints.controller.models import Follow, Owned
from endpoints.owners import Owner


def follows() -> QuerySet[Follow]:
    """All, with their status and the number of their objects (`objects_seen`)."""
    return Follow.objects.select_related("status", "created_by").annotate(
        objects_seen=Count("owned")
    )


def get(follow_id: str) -> Follow | None:
    return follows().filter(pk=follow_id).first()


def owned(follow: Follow) -> QuerySet[Owned]:
    return follow.owned.order_by("name")


def owner_of(endpoint: str) -> Owner | None:
    """The object which says what the endpoint is, None for one of the console's own."""
    row = Owned.objects.filter(endpoint=endpoint).select_related("follow").first()
    return Owner(row.follow.cluster, row.follow.namespace, row.name) if row else None


def cluster_users() -> dict[str, list[str]]:
    """Clusters which cannot be forgotten while a namespace of theirs is followed."""
    found: dict[str, list[str]] = {}
    for follow in Follow.objects.all():
        found.setdefault(follow.cluster, []).append(f"objects of namespace {follow.namespace}")
    return found
