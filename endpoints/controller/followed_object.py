"""Reconcile one object of a followed namespace with its endpoint, in one idempotent step.

The finalizer is added before the endpoint is created and removed after the endpoint is gone. No two
objects define one endpoint. An endpoint made in the console is taken over only if the object
requests it (`emberline.dev/adopt`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.core.errors import Problem, Refused
from console.provisioners.kubernetes.api.client import Json
from endpoints import actions, manifest_actions, teams
from endpoints.choices import AUTO_ROLLBACK
from endpoints.controller.cluster_objects import Objects
from endpoints.controller.models import Follow, Owned
from endpoints.manifest_actions import ManifestTarget, PlannedChange, PlannedVerb
from endpoints.manifests import extensions, importer, object_status, objects
from endpoints.manifests.object_status import EndpointSummary
from endpoints.manifests.objects import NoteMark
from endpoints.models import Endpoint
from endpoints.owners import Owner, OwningSystem
from endpoints.spec.endpoint_spec import SpecErrors

REFUSED, NAME_TAKEN = "SpecRefused", "NameTaken"
JUDGED_AGAIN_S = 30.0
"""A refusal may be the cluster's or the console's (a missing capability, tier, quota), so a refused
object is evaluated again after this time, even where nobody changes it."""


class FollowedObject:
    def __init__(self, follow: Follow, cluster: Objects, item: Json) -> None:
        self.follow = follow
        self.cluster = cluster
        self.item = item
        self.metadata: dict[str, Any] = item["metadata"]
        self.owner = Owner(follow.cluster, follow.namespace, self.metadata["name"])

    def step(self) -> None:
        row = Owned.objects.filter(uid=self.metadata["uid"]).first()
        if self.metadata.get("deletionTimestamp"):
            self._end(row)
            return
        self.cluster.set_finalizer(self.item, True)
        if row is None:
            row = Owned.objects.create(
                uid=self.metadata["uid"], follow=self.follow, name=self.metadata["name"]
            )
        mark = _fingerprint(self.item)
        if row.fingerprint != mark or (not row.refused and _endpoint(row) is None):
            self._judge(row, mark)
        elif row.refused and _is_due(row):
            self._judge(row, mark)  # what it lacked may be there by now
        self._report(row)

    def _end(self, row: Owned | None) -> None:
        endpoint = _endpoint(row)
        if row is not None and endpoint is not None:
            if not endpoint.deleting:
                actions.delete(OwningSystem(self.owner), endpoint.name)
            self._report(row)
            return
        self.cluster.set_finalizer(self.item, False)
        if row is not None:
            row.delete()

    def _judge(self, row: Owned, mark: str) -> None:
        before = row.refused
        row.fingerprint, row.refused, row.refused_reason = mark, "", ""
        row.judged_at = timezone.now()
        try:
            with transaction.atomic():
                change = self._apply(row)
                row.notes = "; ".join(f"{note.path}: {note.message}" for note in change.notes)
                row.save()
            if change.does is not PlannedVerb.NOTHING:
                text = f"Endpoint {row.endpoint}: {change.does}."
                self._emit_event("Applied", text, warning=False)
            for note in change.notes if change.does is not PlannedVerb.NOTHING else ():
                text = f"{note.path}: {note.message} {note.remedy}".rstrip()
                self._emit_event("Note", text, warning=note.mark is not NoteMark.KEPT)
        except Refused as error:
            row.refresh_from_db(fields=["endpoint", "generation", "wanted"])
            row.fingerprint, row.refused = mark, format_errors(error.errors)
            taken = any(problem.code in ("name_taken", "not_adopted") for problem in error.errors)
            row.refused_reason = NAME_TAKEN if taken else REFUSED
            if any(problem.code in ("stale", "being_deleted") for problem in error.errors):
                row.fingerprint = ""  # not caused by the object: retry
            row.save()
            if row.refused != before:
                self._emit_event(row.refused_reason, row.refused, warning=True)

    def _apply(self, row: Owned) -> PlannedChange:
        manifest = objects.read(objects.clean(self.item))
        if row.endpoint is None or _endpoint(row) is None:
            row.endpoint = self._name(manifest)
        where = ManifestTarget(self.follow.cluster, self.follow.namespace)
        planned = manifest_actions.plan_one(
            manifest.whole, where, row.endpoint, OwningSystem(self.owner)
        )
        try:
            with transaction.atomic():
                row.save(update_fields=["endpoint"])  # owned by the object from here on
        except IntegrityError:
            raise SpecErrors([_name_taken_error(row.endpoint, "Another object")]) from None
        manifest_actions.apply_change(OwningSystem(self.owner), planned)
        row.generation = int(self.metadata.get("generation") or 0)
        row.wanted = Endpoint.objects.values_list("generation", flat=True).get(name=row.endpoint)
        return planned

    def _name(self, manifest: objects.Manifest) -> str:
        """Return the object's name if it is free, else the name with the namespace."""
        name = importer.name_of(manifest)
        name = str(extensions.fields(manifest.annotations).get("name", name))
        there = Endpoint.objects.filter(name=name).first()
        if there is None:
            return name
        taken = Owned.objects.filter(endpoint=name).exclude(uid=self.metadata["uid"]).exists()
        if not taken and self._adopts(manifest, there):
            return name
        place = there.parsed.placement
        here = (place.cluster, place.namespace) == (self.follow.cluster, self.follow.namespace)
        if here and not taken:
            raise SpecErrors([_name_taken_error(name, "The console", adoptable=True)])
        return importer.short_name(f"{name}-{self.follow.namespace}")

    def _adopts(self, manifest: objects.Manifest, there: Endpoint) -> bool:
        adopts = manifest.annotations.get(extensions.ADOPT, "") == "true"
        return adopts and teams.may_take_over(there, self.owner.cluster, self.owner.namespace)

    def _report(self, row: Owned) -> None:
        before = self.item.get("status") or {}
        now = timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self.cluster.write_status(
            self.item, object_status.status(_endpoint_summary(row), before, now)
        )

    def _emit_event(self, reason: str, message: str, *, warning: bool) -> None:
        now = timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self.cluster.event(self.item, reason, message, warning, now)


def format_errors(errors: tuple[Problem, ...]) -> str:
    return "; ".join(f"{error.field}: {error.message} {error.remedy}" for error in errors)


def _name_taken_error(name: str, who: str, *, adoptable: bool = False) -> Problem:
    remedy = f"Set another name with {extensions.key_of('name')}."
    if adoptable:
        remedy = f"Annotate {extensions.ADOPT}: 'true' to take it over. {remedy}"
    message = f"{who} already has an endpoint {name}."
    return Problem("metadata.name", name, message, remedy, "not_adopted")


def _is_due(row: Owned) -> bool:
    """Also for a time in the future, which a corrected clock leaves behind."""
    if row.judged_at is None:
        return True
    return abs((timezone.now() - row.judged_at).total_seconds()) >= JUDGED_AGAIN_S


def _fingerprint(item: Json) -> str:
    """Hash the user-written parts: annotations do not change the generation."""
    text = json.dumps(objects.clean(item), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _endpoint(row: Owned | None) -> Endpoint | None:
    if row is None or row.endpoint is None:
        return None
    return Endpoint.objects.select_related("status").filter(name=row.endpoint).first()


def _endpoint_summary(row: Owned) -> EndpointSummary:
    endpoint_summary = EndpointSummary(refused=row.refused, refused_reason=row.refused_reason)
    endpoint = _endpoint(row)
    if endpoint is None:
        return endpoint_summary
    status, spec = endpoint.status, endpoint.parsed
    return replace(
        endpoint_summary,
        phase=str(endpoint.shown_phase),
        reason=status.reason,
        message=" ".join(filter(None, (status.message, status.remedy))),
        current=endpoint.current,
        replicas=endpoint.replicas.count(),
        ready=status.ready_replicas,
        url="" if row.follow.foreign else status.url,  # a field of our own definition only
        generation=row.generation,
        departed=_departure_reason(row, endpoint),
        notes=row.notes,
        workload=f"{endpoint.name}-worker",
        metrics={
            "enabled": spec.monitoring.enabled,
            "metricsScrapeIntervalSeconds": spec.monitoring.interval_s,
            "modelMetrics": {"path": spec.monitoring.path, "port": spec.pod.port},
        },
    )


def _departure_reason(row: Owned, endpoint: Endpoint) -> str:
    """Return why the endpoint differs from the object, "" if it does not."""
    if endpoint.generation == row.wanted or endpoint.deleting:
        return ""
    last = endpoint.revisions.order_by("-number").first()
    return "RolledBack" if last is not None and last.verb == AUTO_ROLLBACK else "ChangedElsewhere"
