"""Reconcile one followed namespace: claim, list, one step per object, release.

Two passes never act on one namespace at once. An object counts as deleted only once the cluster
reports its deletion (finalizer); an empty list is no proof. A rejected object leaves its endpoint
unchanged and gets the reason in its status. A pass may be killed at any line.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from django.utils import timezone

from console.claims import take_claim
from console.clusters import selectors as clusters
from console.provisioners.base import PermanentError, ProvisionError
from console.provisioners.kubernetes.api.client import KubernetesClient
from endpoints.controller import cluster_objects
from endpoints.controller.cluster_objects import Objects
from endpoints.controller.followed_object import FollowedObject
from endpoints.controller.models import Follow, FollowStatus, Owned
from endpoints.manifests import schemas

log = logging.getLogger(__name__)

CLAIM_S = 120.0  # longer than the calls of a pass, each with a deadline
AFTER_CRASH_S = 15.0
AGAIN_S = 2.0
AFTER_FAILURE_S = 10.0
MOST_CALLS_S = 45.0
"""Time budget of a pass; the remaining objects are left to the next one."""


@dataclass(frozen=True, slots=True)
class FollowOutcome:
    phase: str
    reason: str
    message: str
    again_s: float | None
    seen: bool = True


def follow(follow_id: str) -> None:
    """Run one pass unless another one holds the claim."""
    held = take_claim(FollowStatus, follow_id, ttl_s=CLAIM_S)
    if held is None:
        return
    follow = Follow.objects.filter(pk=follow_id).first()
    if follow is None:
        return
    try:
        outcome = _pass(follow)
    except Exception:
        # Postponed, so that one bad row cannot keep a worker busy.
        held.release(AFTER_CRASH_S)
        raise
    if outcome is None:
        return  # no longer followed
    fields = {"seen_at": timezone.now()} if outcome.seen else {}
    held.write(
        phase=outcome.phase,
        reason=outcome.reason,
        message=outcome.message,
        observed_generation=follow.generation,
        **fields,
    )
    held.release(outcome.again_s)


def _pass(found: Follow) -> FollowOutcome | None:
    try:
        access, _own = clusters.access(found.cluster)
        objects = Objects(KubernetesClient(access, found.namespace))
        if found.deleted_at is not None:
            _release_namespace(found, objects)
            return None
        _definition(found, objects)
        return _reconcile_objects(found, objects)
    except ProvisionError as error:
        again = getattr(error, "delay_s", AFTER_FAILURE_S)
        return FollowOutcome("Failed", error.reason, error.message, max(again, 1.0), seen=False)


def _definition(found: Follow, objects: Objects) -> None:
    present = objects.definition()
    if present is not None and present["metadata"].get("deletionTimestamp"):
        raise cluster_objects.waiting()
    if present is None or cluster_objects.is_ours(present):
        objects.install(present)
    elif not found.foreign:
        raise PermanentError(
            "ForeignDefinition",
            f"The cluster has {schemas.NAME} from another operator, which may act on the "
            "same objects. Remove that operator, or follow with --foreign if nothing acts on them.",
        )
    if present is None or not cluster_objects.is_established(present):
        raise cluster_objects.waiting()


def _reconcile_objects(found: Follow, objects: Objects) -> FollowOutcome:
    listed = objects.listed()
    started = timezone.now()
    failures: list[str] = []
    for item in listed:
        if (timezone.now() - started).total_seconds() > MOST_CALLS_S:
            failures.append("the rest is left to the next pass")
            break
        try:
            FollowedObject(found, objects, item).step()
        except ProvisionError as error:
            name = item["metadata"]["name"]
            text = "%s: object %s failed, retried in the next pass: %s"
            log.warning(text, found, name, error.message)
            failures.append(f"{name}: {error.message}")
    _release_vanished(found, {str(item["metadata"]["uid"]) for item in listed})
    refused = found.owned.exclude(refused="").count()
    if failures:
        return FollowOutcome(
            "Degraded", "SomeNotWritten", "; ".join(failures)[:2000], AFTER_FAILURE_S
        )
    text = f"{len(listed)} object{'' if len(listed) == 1 else 's'}" + (
        f", {refused} rejected." if refused else "."
    )
    return FollowOutcome("Ready", "Following", text, AGAIN_S)


def _release_vanished(found: Follow, present: set[str]) -> None:
    """Release the endpoints of objects that vanished without our finalizer step (finalizer removed
    by hand, or definition deleted). They can be edited in the console again.
    """
    for row in found.owned.exclude(uid__in=present):
        log.warning(
            "%s: object %s vanished; endpoint %s is released to the console",
            found,
            row.name,
            row.endpoint,
        )
        row.delete()


def _release_namespace(found: Follow, objects: Objects) -> None:
    """Remove the finalizers before the rows: without rows nothing would remove them."""
    names = set(Owned.objects.filter(follow=found).values_list("uid", flat=True))
    for item in objects.listed():
        if item["metadata"]["uid"] in names or cluster_objects.FINALIZER in (
            item["metadata"].get("finalizers") or []
        ):
            objects.set_finalizer(item, False)
    found.delete()
