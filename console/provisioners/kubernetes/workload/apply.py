"""Apply a workload's objects to the cluster.

Idempotent after an interruption at any line; one GET if nothing changed, none where the namespace
is watched and the workload settled; waits for nothing. The
order of writes makes an interruption between any two harmless:

    anchor (owns old and new objects, digest "")  → no object can be orphaned
    each object, owned by the anchor              → reapplied unchanged next time
    surplus objects are deleted
    pods are annotated about changed files
    anchor (owns current objects, with digest)    → the next apply has nothing to do

A field set by another manager is not taken over (`FieldConflict`); all other objects are still
applied. The exception is an autoscaler's replica count once the spec disables autoscaling.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from console.provisioners.base import PartCondition, TemporaryError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.api.errors import FieldConflictError
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, item_of, set_owner
from console.provisioners.kubernetes.rendering.files import files_hash
from console.provisioners.kubernetes.rendering.names import FILES_HASH, MANAGER, WORKLOAD, selector
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets, declined
from console.provisioners.kubernetes.rendering.volumes import mounted_claims
from console.provisioners.kubernetes.workload import anchor_record, fields
from console.provisioners.kubernetes.workload.anchor_record import AnchorRecord
from console.provisioners.kubernetes.workload.drift import without_released
from console.provisioners.kubernetes.workload.observation_cache import (
    RecentObservation,
    keyed_digest,
)
from console.provisioners.kubernetes.workload.versions import is_unchanged

Json = dict[str, Any]

_HANDED_OVER = f"{MANAGER}-replicas"
"""Field manager that holds the replica count between our release and the autoscaler's first
change."""
_SCALERS = (_HANDED_OVER, "kube-controller-manager", "keda-operator")
_SCALING = (kinds.SCALED_OBJECT.kind, kinds.HPA.kind)
_REPLICAS = ".spec.replicas"
_SHARES = (kinds.CLAIM.kind, kinds.PERSISTENT_VOLUME.kind)


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """All objects of a spec; `digest` covers everything but `secrets`, the contents of Secrets."""

    spec: WorkloadSpec
    anchor: Json
    objects: tuple[Json, ...]
    digest: str
    secrets: str
    files: str
    declined: tuple[PartCondition, ...] = ()

    @property
    def items(self) -> frozenset[OwnedItem]:
        return frozenset(map(item_of, self.objects))


def desired_objects(
    spec: WorkloadSpec, target: RenderingTarget, secrets: Secrets
) -> DesiredObjects:
    anchor, *objects = render(spec, target, secrets)
    open_ = [body for body in (anchor, *objects) if body["kind"] != "Secret"]
    shut = [body for body in objects if body["kind"] == "Secret"]
    digest = hashlib.sha256(_text(open_).encode()).hexdigest()[:32]
    files = files_hash(spec, secrets)
    shut_mark = keyed_digest(_text(shut)) if shut else ""
    less = declined(spec, target)
    return DesiredObjects(spec, anchor, tuple(objects), digest, shut_mark, files, less)


def apply(client: KubernetesClient, want: DesiredObjects, seen: RecentObservation) -> None:
    """Apply `want` and update `seen`, this process's cached state of the workload."""
    name = want.spec.name
    if _is_settled(want, seen) and is_unchanged(client, name, seen):
        return
    config_map = client.get(kinds.CONFIG_MAP, name)
    record = None
    if config_map is not None:
        anchor_record.check_ours(config_map, want.spec.name, want.spec.owner)
        record = anchor_record.read_record(config_map)
    if record is not None and record.ending:
        raise TemporaryError("StillStopping", f"{name} is still being deleted.", delay_s=1.0)
    if record is not None and _is_applied(record, want, seen):
        if want.secrets != seen.secrets or record.items - want.items:
            seen.settled = None  # the watches and lists lag behind these writes
        if want.secrets != seen.secrets:
            _Step(client, want, record).secrets(record)
            seen.secrets = want.secrets
        if record.items - want.items:
            _Step(client, want, record).tidy(record)
        return
    seen.settled = None
    seen.checked_at, seen.drift = float("-inf"), ()  # also if it ends in a conflict
    _Step(client, want, record).run()
    seen.secrets = want.secrets


def _is_settled(want: DesiredObjects, seen: RecentObservation) -> bool:
    settled = seen.settled
    return (
        settled is not None
        and settled.digest == want.digest
        and settled.items <= want.items
        and seen.secrets == want.secrets
    )


def _is_applied(kept: AnchorRecord, want: DesiredObjects, seen: RecentObservation) -> bool:
    missing = any(difference.path == "" for difference in seen.drift)
    return kept.digest == want.digest and not missing


class _Step:
    def __init__(
        self, client: KubernetesClient, want: DesiredObjects, kept: AnchorRecord | None
    ) -> None:
        self.client, self.want, self.kept = client, want, kept
        self.conflicts: list[FieldConflictError] = []

    def run(self) -> None:
        want, before = self.want, self.kept.items if self.kept else frozenset()
        start = anchor_record.begin_apply(want.anchor, self.kept, before | want.items)
        record = anchor_record.read_record(self.client.apply(start, force=True))
        surplus = sorted(before - want.items)
        for gone in surplus:  # an autoscaler first: it would reset the replica count
            if gone.kind in _SCALING:
                remove_item(self.client, gone)
        applied = [self._one(body, record, before) for body in want.objects]
        observed = anchor_record.observation_facts(want.spec, want.declined)
        if self.conflicts:
            items = before | want.items
            stuck = anchor_record.conflicted_apply(want.anchor, record, items, applied, observed)
            self.client.apply(stuck, force=True)
            raise self.conflicts[0]
        held = self._remove(surplus)
        self._annotate_pods()
        end = anchor_record.finish_apply(want.anchor, record, want.digest, applied, observed)
        self.client.apply(anchor_record.with_items(end, want.items | held), force=True)

    def tidy(self, kept: AnchorRecord) -> None:
        """Delete objects that pods of an earlier revision still used when they left the spec."""
        held = self._remove(sorted(kept.items - self.want.items))
        if self.want.items | held != kept.items:
            self.client.apply(
                anchor_record.with_items(
                    anchor_record.unchanged_anchor(kept), self.want.items | held
                )
            )

    def _remove(self, surplus: list[OwnedItem]) -> frozenset[OwnedItem]:
        """Delete all but shares still used by pods, and return those: a claim being deleted accepts
        no new pods, and a rollback may need it until the rollout succeeds.
        """
        claims = frozenset[str]()
        if any(gone.kind in _SHARES for gone in surplus):
            pods = self.client.listed(kinds.POD, _selector(self.want.spec.name))
            claims = mounted_claims(pods, self.client.namespace)
        held = frozenset(gone for gone in surplus if gone.kind in _SHARES and gone.name in claims)
        for gone in surplus:
            if gone not in held:
                remove_item(self.client, gone)
        return held

    def secrets(self, kept: AnchorRecord) -> None:
        """Apply Secrets, which the digest does not cover; a recent match is cached."""
        for body in self.want.objects:
            if body["kind"] == "Secret":
                self._one(body, kept, kept.items)
        if self.conflicts:
            raise self.conflicts[0]
        self._annotate_pods()

    def _one(self, rendered: Json, kept: AnchorRecord, before: frozenset[OwnedItem]) -> Json:
        body = set_owner(rendered, self.want.spec.name, kept.uid)
        kind = kinds.kind_of(body)
        counted = kind in (kinds.DEPLOYMENT, kinds.STATEFUL_SET)
        if counted or kept.left or item_of(rendered) not in before:
            live = self.client.get(kind, body["metadata"]["name"])
            if live is not None:
                anchor_record.check_ours(live, self.want.spec.name)
                if counted:
                    self._hand_over(rendered, live)
            body = without_released(body, live, kept.left)
        try:
            self.client.apply(body, force=kept.force)
        except FieldConflictError as error:
            if not _only_scaled(error):
                self.conflicts.append(error)
            else:
                self.client.apply(body, force=True)
        return body

    def _hand_over(self, rendered: Json, found: Json) -> None:
        """Hand the replica count to another manager: a field without an owner reverts to one."""
        ours = fields.fields_applied_by(found, MANAGER).get("f:spec") or {}
        if "replicas" in rendered["spec"] or "f:replicas" not in ours:
            return
        count = found["spec"].get("replicas") or max(self.want.spec.replicas, 1)
        metadata = {key: rendered["metadata"][key] for key in ("name", "namespace")}
        body = {"apiVersion": rendered["apiVersion"], "kind": rendered["kind"]}
        body |= {"metadata": metadata, "spec": {"replicas": count}}
        self.client.apply(body, force=True, manager=_HANDED_OVER)

    def _annotate_pods(self) -> None:
        """Annotate pods: a kubelet refreshes files at once when the pod changes, else within
        minutes.
        """
        if not (self.want.spec.live_files or self.want.spec.secret_files):
            return
        label = _selector(self.want.spec.name)
        for pod in self.client.listed(kinds.POD, label):
            metadata = pod["metadata"]
            known_hash = (metadata.get("annotations") or {}).get(FILES_HASH)
            if known_hash != self.want.files and "deletionTimestamp" not in metadata:
                note = {"metadata": {"annotations": {FILES_HASH: self.want.files}}}
                self.client.merge(kinds.POD, metadata["name"], note)


def remove_item(client: KubernetesClient, gone: OwnedItem) -> None:
    """Delete one object unless it now belongs to someone else."""
    kind = kinds.kind_of({"apiVersion": gone.api_version, "kind": gone.kind})
    live = client.get(kind, gone.name)
    if live is None or WORKLOAD not in (live["metadata"].get("labels") or {}):
        return
    client.delete(kind, gone.name, uid=str(live["metadata"].get("uid", "")))


def _only_scaled(error: FieldConflictError) -> bool:
    return all(field == _REPLICAS and who in _SCALERS for field, who in error.fields)


def _selector(name: str) -> str:
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def _text(bodies: Iterable[Json]) -> str:
    return json.dumps(list(bodies), sort_keys=True, separators=(",", ":"))
