"""Reads of inference keys and key groups. Routers receive hashes, never secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from django.db.models import Prefetch, Q, QuerySet

from console.accounts.permissions import Somebody, allows, allows_in_any_team, team_ids_with_role
from endpoints.keys import storage
from endpoints.keys.terms import KeyFacts
from endpoints.models import Endpoint, InferenceKey, KeyGroup

_UUID = 36


def valid_keys(endpoint: Endpoint) -> QuerySet[InferenceKey]:
    return endpoint.keys.filter(revoked_at__isnull=True).select_related("created_by")


def keys_of_endpoint(endpoint: Endpoint) -> QuerySet[InferenceKey]:
    mine = InferenceKey.objects.filter(revoked_at__isnull=True)
    return mine.filter(Q(endpoint=endpoint) | Q(group__endpoints=endpoint)).distinct()


def key_facts(found: Iterable[InferenceKey], now: datetime) -> Iterator[KeyFacts]:
    for key in found:
        terms = key.allowed
        ends = terms.expires_at.timestamp() if terms.expires_at else 0.0
        spent = key.spent_until.timestamp() if key.spent_until else 0.0
        group = str(key.group_id) if key.group_id else ""
        key_state = KeyFacts(key_id(key), key.sha256, key.pin, terms, spent, ends, group)
        yield key_state
        if key.old_until is not None and key.old_until > now:
            until = key.old_until.timestamp()
            yield replace(key_state, sha256=key.old_sha256, expires=min(until, ends or until))


def key_id(key: InferenceKey) -> str:
    """Return the id of a key in routing decisions: the name for the console's key."""
    return storage.CONSOLE if key.endpoint_id and key.name == storage.CONSOLE else str(key.pk)


def groups(viewer: Somebody = None) -> QuerySet[KeyGroup]:
    """Return the groups whose endpoints are all visible, with endpoints and valid keys."""
    alive = InferenceKey.objects.filter(revoked_at__isnull=True).select_related("created_by")
    rows = KeyGroup.objects.prefetch_related("endpoints", Prefetch("keys", alive, "living_keys"))
    teams = None if viewer is None else team_ids_with_role(viewer, "viewer")
    if teams is None:
        return rows
    hidden = Endpoint.objects.exclude(team__in=teams)
    return rows.exclude(endpoints__in=hidden).filter(endpoints__team__in=teams).distinct()


def visible_keys(viewer: Somebody = None) -> QuerySet[InferenceKey]:
    """Return the valid keys of all visible endpoints and groups, without the console's own."""
    rows = (
        InferenceKey.objects.filter(revoked_at__isnull=True)
        .exclude(endpoint__isnull=False, name=storage.CONSOLE)
        .select_related("endpoint", "group", "created_by")
        .order_by("endpoint__name", "group__name", "name")
    )
    teams = None if viewer is None else team_ids_with_role(viewer, "viewer")
    if teams is None:
        return rows
    return rows.filter(Q(endpoint__team__in=teams) | Q(group__in=groups(viewer)))


def keys_of_groups(endpoint: Endpoint) -> QuerySet[InferenceKey]:
    rows = InferenceKey.objects.filter(revoked_at__isnull=True, group__endpoints=endpoint)
    return rows.select_related("group", "created_by").order_by("group__name", "name")


def keys_of_group(group: KeyGroup) -> QuerySet[InferenceKey]:
    return group.keys.filter(revoked_at__isnull=True).select_related("created_by").order_by("name")


def may_change(user: Somebody, group: KeyGroup) -> bool:
    if not allows_in_any_team(user, "operator"):
        return False
    return all(allows(user, "operator", of=endpoint) for endpoint in group.endpoints.all())


def changeable_names(user: Somebody) -> list[str]:
    teams = team_ids_with_role(user, "operator")
    rows = Endpoint.objects.filter(deleted_at__isnull=True).order_by("name")
    changeable = rows if teams is None else rows.filter(team__in=teams)
    return list(changeable.values_list("name", flat=True))


def names_of(endpoint: Endpoint) -> dict[str, str]:
    rows = InferenceKey.objects.filter(Q(endpoint=endpoint) | Q(group__endpoints=endpoint))
    return {key_id(key): key.name for key in rows}


def names_by_id(ids: Iterable[str]) -> dict[str, str]:
    """Return names by key id (see `key_id`), including revoked keys while their rows are kept."""
    uuids = [key_id for key_id in ids if len(key_id) == _UUID]
    rows = InferenceKey.objects.filter(pk__in=uuids).values_list("pk", "name")
    return {str(key): name for key, name in rows}
