"""Writes to an endpoint's desired state, shared by pages, REST and command line.

Each verb checks permission and input, then writes the row, its revision and the audit entry in one
transaction, and nudges the reconciler after commit. Nothing running is read or changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from celery import current_app
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.models import User
from console.audit.record import record
from console.claims import mark_due
from endpoints import teams
from endpoints.choices import AUTO_ROLLBACK
from endpoints.keys import storage
from endpoints.models import Endpoint, EndpointStatus, Revision
from endpoints.owners import OwningSystem, System, owned_error, owner_of
from endpoints.reconcile.status import first_status
from endpoints.refusals import (
    ConflictError,
    fixed_name,
    name_taken,
    no_endpoint,
    no_revision,
    parse_note,
    stale,
)
from endpoints.spec.endpoint_spec import (
    EndpointSpec,
    SpecErrors,
    as_audit,
    diff,
    merge,
    not_an_object,
)
from endpoints.spec.rules import check

SYSTEM: Final = System()
_RECONCILE = "endpoints.tasks.reconcile_endpoint"
Actor = Any  # User | System | AnonymousUser: `require` rejects actors without a role


def create(actor: Actor, data: Any, *, team: str | None = None, note: Any = "") -> Endpoint:
    """Create an endpoint. Raise SpecErrors if the spec is invalid. `team` is a slug (see
    `teams.team_of_new`); `note` is the author's comment on the revision.
    """
    owner = teams.team_of_new(actor, team)
    why = parse_note(note)
    spec = check(data, teams.context(actor, owner))
    teams.check_place(owner, spec)
    try:
        with transaction.atomic():
            endpoint = Endpoint.objects.create(
                name=spec.name, spec=spec.to_dict(), created_by=user_of(actor), team=owner
            )
            EndpointStatus.objects.create(endpoint=endpoint, **first_status())
            _write_revision(actor, endpoint, "create", why)
            storage.add_console_key(user_of(actor), endpoint)
            created = creation_changes(spec)
            record(user_of(actor), "create", target_of(endpoint), created, why)
            nudge(endpoint)
    except IntegrityError as error:
        raise SpecErrors([name_taken(spec.name)]) from error
    return endpoint


def update(
    actor: Actor,
    name: str,
    data: Any,
    *,
    expected_generation: int | None = None,
    verb: str = "update",
    note: Any = "",
) -> Endpoint:
    """Replace the whole spec. An unchanged spec writes nothing."""
    teams.require_change(actor, name)
    why = parse_note(note)
    if isinstance(data, Mapping):
        data = {"name": name, **data}
    stored = Endpoint.objects.select_related("team").filter(name=name).first()
    context = teams.context(actor, stored.team if stored else None, name)
    spec = check(data, context, stored.parsed if stored else None)
    if spec.name != name:
        raise SpecErrors([fixed_name(name, spec.name)])
    return _change(actor, name, spec, expected_generation, verb, why)


def patch(
    actor: Actor,
    name: str,
    changes: Any,
    *,
    expected_generation: int | None = None,
    verb: str = "update",
    note: Any = "",
) -> Endpoint:
    teams.require_change(actor, name)
    if not isinstance(changes, Mapping):
        raise SpecErrors([not_an_object(changes)])
    endpoint = _get(name)
    based_on = endpoint.generation if expected_generation is None else expected_generation
    return update(
        actor,
        name,
        merge(endpoint.spec, changes),
        expected_generation=based_on,
        verb=verb,
        note=note,
    )


def scale(
    actor: Actor,
    name: str,
    replicas: Any,
    *,
    expected_generation: int | None = None,
    verb: str = "scale",
) -> Endpoint:
    if verb == "scale":
        teams.require_change(actor, name)
        _expect_no_autoscaler(_get(name), replicas)
    return patch(
        actor, name, {"replicas": replicas}, expected_generation=expected_generation, verb=verb
    )


def _expect_no_autoscaler(endpoint: Endpoint, replicas: Any) -> None:
    """Raise ConflictError if another number would have no effect; 0 pauses."""
    scaling, present = endpoint.parsed.scaling, endpoint.parsed.replicas
    if scaling.enabled and present and replicas not in (0, "0"):
        span = f"{scaling.min} to {scaling.max}"
        message = f"An autoscaler sets the number of workers of {endpoint.name}: {span}."
        remedy = "Change scaling.min or scaling.max, or set scaling.enabled to false."
        raise ConflictError("autoscaled", message, remedy, field="replicas")


def pause(actor: Actor, name: str) -> Endpoint:
    return scale(actor, name, 0, verb="pause")


def resume(actor: Actor, name: str) -> Endpoint:
    teams.require_change(actor, name)
    endpoint = _get(name)
    if endpoint.parsed.replicas:
        return endpoint
    earlier = endpoint.revisions.filter(spec__replicas__gt=0).order_by("-number").first()
    replicas = earlier.spec["replicas"] if earlier else 1
    return scale(actor, name, replicas, verb="resume")


def rollback(
    actor: Actor,
    name: str,
    number: int,
    *,
    expected_generation: int | None = None,
    verb: str = "rollback",
    note: Any = "",
) -> Endpoint:
    """Apply an earlier revision's spec again, checked against the present installation."""
    teams.require_change(actor, name)
    endpoint = _get(name)
    revision = endpoint.revisions.filter(number=number).first()
    if revision is None:
        raise no_revision(name, number)
    return update(
        actor, name, revision.spec, expected_generation=expected_generation, verb=verb, note=note
    )


def roll_back_failed(name: str, number: int, *, expected_generation: int) -> Endpoint:
    """Roll back to `number`, the last revision that served. Called by the reconciler."""
    return rollback(
        SYSTEM, name, number, expected_generation=expected_generation, verb=AUTO_ROLLBACK
    )


def delete(actor: Actor, name: str, *, expected_generation: int | None = None) -> Endpoint:
    teams.require_change(actor, name)
    with transaction.atomic():
        endpoint = lock_changeable(actor, name)
        if endpoint.deleting:
            return endpoint
        require_owner(actor, endpoint)
        _require_generation(endpoint, expected_generation)
        endpoint.deleted_at = endpoint.changed_at = timezone.now()
        endpoint.generation += 1
        endpoint.save(update_fields=["deleted_at", "changed_at", "generation"])
        record(user_of(actor), "delete", target_of(endpoint), {})
        nudge(endpoint)
    return endpoint


def creation_changes(spec: EndpointSpec) -> dict[str, list[Any]]:
    blank = EndpointSpec(name="", model="")
    return as_audit(diff(blank, spec))


def _change(
    actor: Actor,
    name: str,
    spec: EndpointSpec,
    expected_generation: int | None,
    verb: str,
    note: str,
) -> Endpoint:
    with transaction.atomic():
        endpoint = require_not_deleting(lock_changeable(actor, name))
        if verb != AUTO_ROLLBACK:
            require_owner(actor, endpoint)
        _require_generation(endpoint, expected_generation)
        changes = diff(endpoint.parsed, spec)
        if not changes:
            return endpoint
        if any(change.path.startswith("placement.") for change in changes):
            teams.check_place(endpoint.team, spec)
        endpoint.spec = spec.to_dict()
        endpoint.__dict__.pop("parsed", None)
        endpoint.generation += 1
        endpoint.changed_at = timezone.now()
        endpoint.save(update_fields=["spec", "generation", "changed_at"])
        _write_revision(actor, endpoint, verb, note)
        record(user_of(actor), verb, target_of(endpoint), as_audit(changes), note)
        nudge(endpoint)
    return endpoint


def user_of(actor: Actor) -> User | None:
    return stored_actor(actor)


def require_owner(actor: Actor, endpoint: Endpoint) -> None:
    """Raise ConflictError unless the actor may change the spec: an owned endpoint is changed by its
    owner only.
    """
    owner = owner_of(endpoint.name)
    if owner is not None and not (isinstance(actor, OwningSystem) and actor.owner == owner):
        raise owned_error(endpoint.name, owner)


def target_of(endpoint: Endpoint) -> str:
    return f"endpoint/{endpoint.name}"


def _get(name: str, rows: QuerySet[Endpoint] | None = None) -> Endpoint:
    try:
        return (Endpoint.objects.all() if rows is None else rows).get(name=name)
    except Endpoint.DoesNotExist:
        raise no_endpoint(name) from None


def locked(name: str) -> Endpoint:
    """Return the row, locked until the transaction ends (SQLite locks the whole database).

    `no_key`, here and for every lock: rows that refer to this one, such as events of a pass, are
    inserted meanwhile. Whoever locks both takes the object before its status.
    """
    return _get(name, Endpoint.objects.select_for_update(no_key=True))


def lock_changeable(actor: Actor, name: str) -> Endpoint:
    """Return the locked row after a second permission check: the team may have changed since the
    first.
    """
    endpoint = locked(name)
    teams.require_change(actor, endpoint)
    return endpoint


def require_not_deleting(endpoint: Endpoint) -> Endpoint:
    if endpoint.deleting:
        raise ConflictError(
            "being_deleted",
            f"{endpoint.name} is being deleted.",
            "Wait until it is gone, then create it again.",
        )
    return endpoint


def _require_generation(endpoint: Endpoint, expected: int | None) -> None:
    if expected is not None and expected != endpoint.generation:
        raise stale(endpoint.name, endpoint.generation, expected)


def _write_revision(actor: Actor, endpoint: Endpoint, verb: str, note: str) -> None:
    Revision.objects.create(
        endpoint=endpoint,
        number=endpoint.generation,
        spec=endpoint.spec,
        verb=verb,
        note=note,
        created_by=user_of(actor),
        author=actor.label if isinstance(actor, System) else actor.get_username(),
    )


def nudge(endpoint: Endpoint) -> None:
    """Reconcile soon. The task is looked up by name, since its module imports this one."""
    mark_due(EndpointStatus, str(endpoint.pk))
    current_app.tasks[_RECONCILE].nudge(str(endpoint.pk))


def nudge_by_name(name: str) -> None:
    """Reconcile the endpoint soon, if it exists."""
    endpoint = Endpoint.objects.filter(name=name).first()
    if endpoint is not None:
        nudge(endpoint)
