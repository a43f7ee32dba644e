"""Writes to inference keys and key groups, shared by pages, REST and command line.

Each verb checks permission and input, writes with the audit entry in one transaction, and nudges
every endpoint of the key after commit. A secret is returned once, to its creator. Changing a group
requires the right to change every endpoint in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from console.api.bodies import read_body
from console.audit.record import diff, record
from endpoints import teams
from endpoints.actions import Actor, lock_changeable, nudge, require_not_deleting, user_of
from endpoints.keys import bodies, storage, usage
from endpoints.keys.storage import NewKey
from endpoints.keys.terms import KeyTerms
from endpoints.models import Endpoint, InferenceKey, KeyGroup
from endpoints.refusals import ConflictError, group_taken, key_taken, no_endpoint, no_group, no_key
from endpoints.spec.endpoint_spec import SpecErrors


def create(actor: Actor, name: str, data: Any) -> NewKey:
    """Create a key of an endpoint. `data`: its name, and terms other than the defaults."""
    teams.require_change(actor, name)
    label, terms = bodies.read_key(data)
    try:
        with transaction.atomic():
            endpoint = require_not_deleting(lock_changeable(actor, name))
            made = storage.add_key(user_of(actor), endpoint, label, terms)
            _record_change(actor, "key.create", made.key, terms=terms)
    except IntegrityError as error:
        raise SpecErrors([key_taken(label)]) from error
    return made


def create_in_group(actor: Actor, group_id: str, data: Any) -> NewKey:
    label, terms = bodies.read_key(data)
    try:
        with transaction.atomic():
            group = held_group(actor, group_id)
            made = storage.add_key(user_of(actor), group, label, terms)
            _record_change(actor, "key.create", made.key, terms=terms)
    except IntegrityError as error:
        raise SpecErrors([key_taken(label)]) from error
    return made


def change(actor: Actor, key_id: str, data: Any, *, within: str = "") -> InferenceKey:
    """Change a key's terms; fields missing in `data` keep their values. Routers apply it within
    seconds. `within`: the endpoint or group that the key must belong to.
    """
    with transaction.atomic():
        key = _living_key(actor, key_id, within)
        before = key.allowed
        terms = replace(before, **read_body(bodies.KeyChangeSerializer, data))
        if terms == before:
            return key
        for column, value in storage.terms_columns(terms).items():
            setattr(key, column, value)
        key.spent_until = usage.spent_until(key, timezone.now())
        key.save(update_fields=["pin", "terms", "spent_until"])
        _record_change(actor, "key.update", key, terms=terms, before=before)
    return key


def rotate(actor: Actor, key_id: str, data: Any = None, *, within: str = "") -> NewKey:
    """Replace the key's secret; the old one stays valid for `grace_s` more seconds."""
    grace_s = read_body(bodies.RotateSerializer, data)["grace_s"]
    with transaction.atomic():
        key = _living_key(actor, key_id, within)
        clear = storage.generate_key()
        key.old_sha256 = key.sha256 if grace_s else ""
        key.old_until = timezone.now() + timedelta(seconds=grace_s) if grace_s else None
        key.sha256, key.prefix = storage.hash_key(clear), storage.shown_prefix(clear)
        key.save(update_fields=["sha256", "prefix", "old_sha256", "old_until"])
        _record_change(actor, "key.rotate", key)
    return NewKey(key, clear)


def revoke(actor: Actor, key_id: str, *, within: str = "") -> InferenceKey:
    """Revoke a key; routers reject it within seconds. The console's own key cannot be revoked."""
    with transaction.atomic():
        key = _held_key(actor, key_id, within)
        if key.revoked_at is None:
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])
            _record_change(actor, "key.revoke", key)
    return key


def save_group(actor: Actor, group_id: str | None, data: Any) -> KeyGroup:
    """Create a group (`group_id` None) or replace its fields."""
    teams.require_any_team(actor)
    values = read_body(bodies.WantedGroupSerializer, data)
    label = values["name"]
    try:
        with transaction.atomic():
            group = held_group(actor, group_id) if group_id else KeyGroup(created_by=user_of(actor))
            old = [] if group_id is None else list(group.endpoints.all())
            endpoints = _members(actor, values["endpoints"])
            details = {"name": group.name, "endpoints": sorted(endpoint.name for endpoint in old)}
            group.name, group.description = label, values["description"]
            group.save(force_insert=group_id is None)
            group.endpoints.set(endpoints)
            now = {"name": label, "endpoints": sorted(endpoint.name for endpoint in endpoints)}
            verb = "update" if group_id else "create"
            record(user_of(actor), verb, f"key-group/{label}", diff(details, now))
            _nudge_all({*old, *endpoints})
    except IntegrityError as error:
        raise SpecErrors([group_taken(label)]) from error
    return group


def delete_group(actor: Actor, group_id: str) -> None:
    with transaction.atomic():
        group = held_group(actor, group_id)
        opened = list(group.endpoints.all())
        details = {"keys": [list(group.keys.values_list("name", flat=True)), None]}
        record(user_of(actor), "key-group.delete", f"key-group/{group.name}", details)
        group.delete()
        _nudge_all(opened)


def held_group(actor: Actor, group_id: str) -> KeyGroup:
    teams.require_any_team(actor)
    try:
        group = KeyGroup.objects.select_for_update(no_key=True).get(pk=group_id)
    except (KeyGroup.DoesNotExist, ValidationError):
        raise no_group(group_id) from None
    members = list(group.endpoints.all())
    if not all(teams.is_visible(actor, endpoint) for endpoint in members):
        raise no_group(group_id)
    for endpoint in members:
        teams.require_change(actor, endpoint)
    return group


def _held_key(actor: Actor, key_id: str, within: str) -> InferenceKey:
    teams.require_any_team(actor)
    try:
        key = InferenceKey.objects.select_for_update(of=("self",), no_key=True).get(pk=key_id)
    except (InferenceKey.DoesNotExist, ValidationError):
        raise no_key(key_id) from None
    whose = key.endpoint.name if key.endpoint is not None else str(key.group_id)
    if within and within != whose:
        raise no_key(key_id)
    if key.endpoint is not None:
        teams.require_change(actor, key.endpoint)
    else:
        held_group(actor, whose)
    if key.name == storage.CONSOLE and key.endpoint is not None:
        raise ConflictError(
            "console_key",
            "The console needs its own key to prove that the endpoint serves.",
            "Use another key.",
        )
    return key


def _living_key(actor: Actor, key_id: str, within: str) -> InferenceKey:
    key = _held_key(actor, key_id, within)
    if key.revoked_at is not None:
        raise ConflictError("revoked", f"{key.name} is revoked.", "Create another key.")
    return key


def _record_change(
    actor: Actor,
    verb: str,
    key: InferenceKey,
    *,
    terms: KeyTerms | None = None,
    before: KeyTerms | None = None,
) -> None:
    changes: dict[str, Any] = dict(key.facts())
    if terms is not None:
        changes |= diff((before or KeyTerms()).to_dict(), terms.to_dict())
    if key.endpoint is not None:
        target, opened = f"endpoint/{key.endpoint.name}", [key.endpoint]
    else:
        group = KeyGroup.objects.get(keys=key)
        target, opened = f"key-group/{group.name}", list(group.endpoints.all())
    record(user_of(actor), verb, target, changes)
    _nudge_all(opened)


def _nudge_all(opened: Iterable[Endpoint]) -> None:
    for endpoint in opened:
        if not endpoint.deleting:
            nudge(endpoint)


def _members(actor: Actor, names: Sequence[str]) -> list[Endpoint]:
    endpoints = {endpoint.name: endpoint for endpoint in Endpoint.objects.filter(name__in=names)}
    for name in names:
        if name not in endpoints:
            raise no_endpoint(name)
        teams.require_change(actor, endpoints[name])
    return list(endpoints.values())
