"""Delete an endpoint: router, workers, files, row.

The row, and with it the name, goes only when nothing is left running. Every step is repeatable.
Checks are costly on a cluster: components already seen to be gone are rechecked only at the end,
and the interval between passes grows.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.utils import timezone

from console.audit.record import record
from console.claims import Claim
from console.provisioners.base import Provisioner, ProvisionError, Ref
from endpoints import actions, selectors
from endpoints.choices import PhaseReason
from endpoints.keys import storage
from endpoints.lifecycle.components import Component
from endpoints.lifecycle.facts import LifecycleFacts, ObservedWorker, Trouble
from endpoints.lifecycle.phases import decide
from endpoints.lifecycle.steps import build_steps, merge_steps
from endpoints.models import Endpoint, Replica
from endpoints.signals import send_replicas_changed
from endpoints.workload.worker_spec import workload_name

FIRST_S = 0.8
LONGEST_S = 4.0
PART_OF_WAITING = 0.1
"""Accepted delay as a share of the time already waited."""


def remove(
    held: Claim, endpoint: Endpoint, provisioner: Provisioner, router: Component
) -> float | None:
    """Run one pass. Return the seconds until the next, None once the endpoint is gone."""
    gone = _components_gone(endpoint)
    left, trouble = (False, None) if gone else _delete_router(endpoint, router)
    workers: tuple[ObservedWorker, ...] | None = None
    if not left:
        workers, trouble = _delete_workers(endpoint, provisioner)
        if workers is None and trouble is None:
            left, trouble = _delete_router(endpoint, router) if gone else (False, None)
            if not left:
                _finish(held, endpoint)
                return None
    if workers is None:
        workers = _stopping(row.name for row in selectors.workers(endpoint))
    lifecycle_facts = LifecycleFacts(wanted=0, deleting=True, components_left=left, workers=workers)
    _write(held, endpoint, lifecycle_facts, trouble)
    return next_pass_s(endpoint)


def next_pass_s(endpoint: Endpoint) -> float:
    since = endpoint.deleted_at or timezone.now()
    waited_s = (timezone.now() - since).total_seconds()
    return min(max(waited_s * PART_OF_WAITING, FIRST_S), LONGEST_S)


def _components_gone(endpoint: Endpoint) -> bool:
    """Return whether the last pass of this deletion reached the workers without errors."""
    status = endpoint.status
    stopping = status.reason == PhaseReason.STOPPING_WORKERS
    return stopping and status.observed_generation == endpoint.generation


def _delete_router(endpoint: Endpoint, router: Component) -> tuple[bool, Trouble | None]:
    try:
        return not router.delete(selectors.facts(endpoint)), None
    except ProvisionError as error:
        return True, Trouble(False, error.reason, error.message)


def _delete_workers(
    endpoint: Endpoint, provisioner: Provisioner
) -> tuple[tuple[ObservedWorker, ...] | None, Trouble | None]:
    """Return the remaining workers; None once the whole workload is gone."""
    ref = Ref(provisioner.name, workload_name(endpoint.name))
    try:
        observation = provisioner.observe(ref)
        if not observation.exists:
            return None, None
        provisioner.delete(ref)
    except ProvisionError as error:
        return None, Trouble(False, error.reason, error.message)
    return _stopping(replica.name for replica in observation.replicas), None


def _stopping(names: Iterable[str]) -> tuple[ObservedWorker, ...]:
    return tuple(ObservedWorker(name, ready=False, running=True, current=False) for name in names)


def _finish(held: Claim, endpoint: Endpoint) -> None:
    with transaction.atomic():
        actions.locked(endpoint.name)
        if not held.write(message="Deleted."):
            return
        record(None, "deleted", f"endpoint/{endpoint.name}")
        delete_rows(endpoint)


def delete_rows(endpoint: Endpoint) -> None:
    """Delete the endpoint's row and console key, within a transaction."""
    storage.remove_console_key(endpoint.name)
    send_replicas_changed(endpoint.name)
    endpoint.delete()


def _write(held: Claim, endpoint: Endpoint, facts: LifecycleFacts, trouble: Trouble | None) -> None:
    verdict, now = decide(facts), timezone.now()
    status = endpoint.status
    fresh = status.clock_generation != endpoint.generation
    names = [worker.name for worker in facts.workers]
    with transaction.atomic():
        was_written = held.write(
            observed_generation=endpoint.generation,
            phase=str(verdict.phase),
            reason=trouble.reason[:64] if trouble else verdict.reason,
            message=trouble.message if trouble else verdict.message,
            remedy="Retried every few seconds." if trouble else "",
            detail="",
            steps=merge_steps(status.steps, now, build_steps(facts, verdict.phase), anew=fresh),
            ready_replicas=0,
            clock_generation=endpoint.generation,
            generation_seen_at=now if fresh else status.generation_seen_at,
            phase_since=now if verdict.phase != status.phase else status.phase_since,
        )
        if was_written and not facts.components_left:
            Replica.objects.filter(endpoint=endpoint).exclude(name__in=names).delete()
