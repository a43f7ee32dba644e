"""Makes what is in the cluster as a spec wants it.

Promises idempotence from any line, and one GET where nothing changed. Waits for nothing.

Theory of operation. The order of the writes makes a death between any two harmless:

    anchor (owns what was and what will be, digest "")  → nothing can be left over unseen
    each object, as the anchor's own                    → applied again next time, the same
    objects no longer wanted are deleted
    pods are told of changed files
    anchor (owns what is, digest of it)                 → the next apply has nothing to do

A field that somebody else has set is not taken from them (`FieldConflict`): all other objects are
applied nevertheless. Only an autoscaler's number of replicas is, when the spec says that it is no
longer an autoscaler's to decide.
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
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, item, owned
from console.provisioners.kubernetes.rendering.files import files_hash
from console.provisioners.kubernetes.rendering.names import FILES_HASH, MANAGER, WORKLOAD, selector
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets, declined
from console.provisioners.kubernetes.rendering.volumes import held_names
from console.provisioners.kubernetes.workload import anchor_record, fields
from console.provisioners.kubernetes.workload.anchor_record import AnchorRecord
from console.provisioners.kubernetes.workload.drift import without
from console.provisioners.kubernetes.workload.observation_cache import RecentObservation, mark

Json = dict[str, Any]

_HANDED_OVER = f"{MANAGER}-replicas"
"""Who holds the number of replicas from when we leave it until an autoscaler sets it."""
_SCALERS = (_HANDED_OVER, "kube-controller-manager", "keda-operator")
_SCALING = (kinds.SCALED_OBJECT.kind, kinds.HPA.kind)
_REPLICAS = ".spec.replicas"
_SHARES = (kinds.CLAIM.kind, kinds.PERSISTENT_VOLUME.kind)


@dataclass(frozen=True, slots=True)
class DesiredObjects:
    """All objects of a spec; `digest` without, `secrets` of the contents of Secrets."""

    spec: WorkloadSpec
    anchor: Json
    objects: tuple[Json, ...]
    digest: str
    secrets: str
    files: str
    declined: tuple[PartCondition, ...] = ()

    @property
    def items(self) -> frozenset[OwnedItem]:
        return frozenset(map(item, self.objects))


def wanted(spec: WorkloadSpec, target: RenderingTarget, secrets: Secrets) -> DesiredObjects:
    anchor, *objects = render(spec, target, secrets)
    open_ = [body for body in (anchor, *objects) if body["kind"] != "Secret"]
    shut = [body for body in objects if body["kind"] == "Secret"]
    digest = hashlib.sha256(_text(open_).encode()).hexdigest()[:32]
    files = files_hash(spec, secrets)
    shut_mark = mark(_text(shut)) if shut else ""
    less = declined(spec, target)
    return DesiredObjects(spec, anchor, tuple(objects), digest, shut_mark, files, less)


def apply(client: KubernetesClient, want: DesiredObjects, seen: RecentObservation) -> None:
    """`seen` is what this process remembers of the workload; it is brought up to date."""
    name = want.spec.name
    found = client.get(kinds.CONFIG_MAP, name)
    kept = None
    if found is not None:
        anchor_record.check_ours(found, want.spec.name, want.spec.owner)
        kept = anchor_record.read(found)
    if kept is not None and kept.ending:
        raise TemporaryError("StillStopping", f"{name} is still being deleted.", delay_s=1.0)
    if kept is not None and _as_wanted(kept, want, seen):
        if want.secrets != seen.secrets:
            _Step(client, want, kept).secrets(kept)
            seen.secrets = want.secrets
        if kept.items - want.items:
            _Step(client, want, kept).tidy(kept)
        return
    seen.checked_at, seen.drift = float("-inf"), ()  # also where it ends in a conflict
    _Step(client, want, kept).run()
    seen.secrets = want.secrets


def _as_wanted(kept: AnchorRecord, want: DesiredObjects, seen: RecentObservation) -> bool:
    missing = any(one.path == "" for one in seen.drift)
    return kept.digest == want.digest and not missing


class _Step:
    def __init__(
        self, client: KubernetesClient, want: DesiredObjects, kept: AnchorRecord | None
    ) -> None:
        self.client, self.want, self.kept = client, want, kept
        self.conflicts: list[FieldConflictError] = []

    def run(self) -> None:
        want, before = self.want, self.kept.items if self.kept else frozenset()
        start = anchor_record.begun(want.anchor, self.kept, before | want.items)
        kept = anchor_record.read(self.client.apply(start, force=True))
        surplus = sorted(before - want.items)
        for gone in surplus:  # first who would set the number of replicas anew
            if gone.kind in _SCALING:
                remove(self.client, gone)
        applied = [self._one(body, kept, before) for body in want.objects]
        facts = anchor_record.facts_of(want.spec, want.declined)
        if self.conflicts:
            items = before | want.items
            stuck = anchor_record.stuck(want.anchor, kept, items, applied, facts)
            self.client.apply(stuck, force=True)
            raise self.conflicts[0]
        held = self._remove(surplus)
        self._tell_pods()
        end = anchor_record.done(want.anchor, kept, want.digest, applied, facts)
        self.client.apply(anchor_record.holding(end, want.items | held), force=True)

    def tidy(self, kept: AnchorRecord) -> None:
        """What pods of an earlier revision still held when it left the spec."""
        held = self._remove(sorted(kept.items - self.want.items))
        if self.want.items | held != kept.items:
            self.client.apply(
                anchor_record.holding(anchor_record.same(kept), self.want.items | held)
            )

    def _remove(self, surplus: list[OwnedItem]) -> frozenset[OwnedItem]:
        """All of these but shares that pods still hold, which it returns: a claim that is being
        deleted takes no pod any more, and until a rollout has succeeded there may be a way back."""
        claims = frozenset[str]()
        if any(gone.kind in _SHARES for gone in surplus):
            pods = self.client.listed(kinds.POD, _selector(self.want.spec.name))
            claims = held_names(pods, self.client.namespace)
        held = frozenset(gone for gone in surplus if gone.kind in _SHARES and gone.name in claims)
        for gone in surplus:
            if gone not in held:
                remove(self.client, gone)
        return held

    def secrets(self, kept: AnchorRecord) -> None:
        """What the digest says nothing of. That they are as wanted is remembered for a while."""
        for body in self.want.objects:
            if body["kind"] == "Secret":
                self._one(body, kept, kept.items)
        if self.conflicts:
            raise self.conflicts[0]
        self._tell_pods()

    def _one(self, rendered: Json, kept: AnchorRecord, before: frozenset[OwnedItem]) -> Json:
        body = owned(rendered, self.want.spec.name, kept.uid)
        kind = kinds.of(body)
        counted = kind in (kinds.DEPLOYMENT, kinds.STATEFUL_SET)
        if counted or kept.left or item(rendered) not in before:
            found = self.client.get(kind, body["metadata"]["name"])
            if found is not None:
                anchor_record.check_ours(found, self.want.spec.name)
                if counted:
                    self._hand_over(rendered, found)
            body = without(body, found, kept.left)
        try:
            self.client.apply(body, force=kept.force)
        except FieldConflictError as error:
            if not _only_scaled(error):
                self.conflicts.append(error)
            else:
                self.client.apply(body, force=True)
        return body

    def _hand_over(self, rendered: Json, found: Json) -> None:
        """Before the number of replicas leaves our apply: a field that nobody owns goes back to
        its default, which is one."""
        ours = fields.applied_by(found, MANAGER).get("f:spec") or {}
        if "replicas" in rendered["spec"] or "f:replicas" not in ours:
            return
        count = found["spec"].get("replicas") or max(self.want.spec.replicas, 1)
        metadata = {key: rendered["metadata"][key] for key in ("name", "namespace")}
        body = {"apiVersion": rendered["apiVersion"], "kind": rendered["kind"]}
        body |= {"metadata": metadata, "spec": {"replicas": count}}
        self.client.apply(body, force=True, manager=_HANDED_OVER)

    def _tell_pods(self) -> None:
        """A kubelet looks at a pod's files at once when the pod changes, else within minutes."""
        if not (self.want.spec.live_files or self.want.spec.secret_files):
            return
        label = _selector(self.want.spec.name)
        for pod in self.client.listed(kinds.POD, label):
            metadata = pod["metadata"]
            told = (metadata.get("annotations") or {}).get(FILES_HASH)
            if told != self.want.files and "deletionTimestamp" not in metadata:
                note = {"metadata": {"annotations": {FILES_HASH: self.want.files}}}
                self.client.merge(kinds.POD, metadata["name"], note)


def remove(client: KubernetesClient, gone: OwnedItem) -> None:
    """One object, unless it is somebody else's by now."""
    kind = kinds.of({"apiVersion": gone.api_version, "kind": gone.kind})
    found = client.get(kind, gone.name)
    if found is None or WORKLOAD not in (found["metadata"].get("labels") or {}):
        return
    client.delete(kind, gone.name, uid=str(found["metadata"].get("uid", "")))


def _only_scaled(error: FieldConflictError) -> bool:
    return all(field == _REPLICAS and who in _SCALERS for field, who in error.fields)


def _selector(name: str) -> str:
    return ",".join(f"{key}={value}" for key, value in selector(name).items())


def _text(bodies: Iterable[Json]) -> str:
    return json.dumps(list(bodies), sort_keys=True, separators=(",", ":"))
