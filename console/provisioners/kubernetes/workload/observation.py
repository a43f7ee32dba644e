"""Observe a workload: pods, rollout, related objects, drift and events.

Read-only, with few requests, because many workloads are observed every few seconds: the anchor,
pods by label, the Deployment, and related objects with a status. Events are read only while the
workload is not healthy, once per namespace; fields are compared every `CHECK_EVERY_S`. During
removal, the anchor and the pods suffice. Where the namespace is watched, a settled workload without
drift is not read again until the version of one of its objects differs, or for `FULL_S`.
"""

from __future__ import annotations

import functools
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from console.provisioners.base import (
    ClusterEvent,
    Drift,
    Observation,
    PartCondition,
    PermanentError,
    ProvisionError,
    ReplicaObservation,
    ReplicaState,
)
from console.provisioners.crash_cause import crash_cause
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.rendering.anchor import OwnedItem
from console.provisioners.kubernetes.rendering.names import WORKLOAD, public_name
from console.provisioners.kubernetes.workload import anchor_record, logs, related_objects, removal
from console.provisioners.kubernetes.workload import pods as workload_pods
from console.provisioners.kubernetes.workload.anchor_record import AnchorRecord
from console.provisioners.kubernetes.workload.drift import MISSING, find_drift, object_name
from console.provisioners.kubernetes.workload.fields import parse_time
from console.provisioners.kubernetes.workload.observation_cache import (
    MEMORY,
    RecentObservation,
    SettledWorkload,
    Versions,
)
from console.provisioners.kubernetes.workload.versions import is_unchanged, read_versions

_MOST = 50
# ReplicaSet hashes have no vowels, so no word matches; pods add five more characters.
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
Json = dict[str, Any]
CHECK_EVERY_S = 30.0
FULL_S = 3600.0
"""Maximum time without a comparison of all fields (s), in case equal versions hide a change, as
after the restoration of a cluster from a backup.
"""
_EVENTS_AGAIN_S = 2.0
_WORKLOADS = (kinds.DEPLOYMENT, kinds.STATEFUL_SET)
_SCALERS = (kinds.HPA, kinds.SCALED_OBJECT)
_GAVE_UP = "ProgressDeadlineExceeded"
_CAUSE_KEPT_S = 600.0
"""Cache lifetime (s) of crash causes: the log of an ended process is immutable."""


def workload_events(
    found: Iterable[Json], name: str, items: Iterable[OwnedItem]
) -> list[ClusterEvent]:
    """Return the latest events, oldest first."""
    exact = {(item.kind, item.name) for item in items} | {("ConfigMap", name)}
    pod = re.compile(rf"{re.escape(name)}-({_SAFE}{{1,10}}-{_SAFE}{{5}}|\d+)")
    replica_set = re.compile(rf"{re.escape(name)}-{_SAFE}{{1,10}}")
    claim = re.compile(rf".+-{re.escape(name)}-\d+")
    made = {"Pod": pod, "ReplicaSet": replica_set, "PersistentVolumeClaim": claim}
    out = []
    for event in found:
        about = event.get("involvedObject") or {}
        kind, subject = str(about.get("kind")), str(about.get("name"))
        shape = made.get(kind)
        if (kind, subject) in exact or (shape is not None and shape.fullmatch(subject)):
            out.append(_event(event, f"{kind}/{subject}"))
    return sorted(out, key=lambda event: event.last_at)[-_MOST:]


def _event(event: Json, subject: str) -> ClusterEvent:
    series = event.get("series") or {}
    first = parse_time(event.get("firstTimestamp")) or parse_time(event.get("eventTime"))
    last = (
        parse_time(series.get("lastObservedTime"))
        or parse_time(event.get("lastTimestamp"))
        or first
    )
    return ClusterEvent(
        subject=subject,
        reason=str(event.get("reason") or ""),
        message=" ".join(str(event.get("message") or "").split()),
        warning=event.get("type") == "Warning",
        count=int(series.get("count") or event.get("count") or 1),
        first_at=first or last,
        last_at=last,
    )


@dataclass(frozen=True, slots=True)
class WorkloadObservation:
    name: str
    kept: AnchorRecord
    kind: ObjectKind | None
    workload: Json | None
    pods: tuple[Json, ...]
    around: tuple[tuple[ObjectKind, Json], ...]
    now: float


def observe(
    client: KubernetesClient, name: str, possible: Iterable[ObjectKind], seen: RecentObservation
) -> Observation:
    if seen.settled is not None and is_unchanged(client, name, seen):
        return seen.settled.observation
    seen.settled = None
    anchor = client.get(kinds.CONFIG_MAP, name)
    if anchor is None or not removal.is_owned(anchor, name):
        return _observe_remains(removal.list_remaining(client, name, possible))
    record = anchor_record.read_record(anchor)
    versions = _versions_before(client, name, record)
    looked = _with_crash_causes(client, _read_objects(client, name, record))
    _check(client, looked, seen, versions)
    observation = to_observation(looked)
    happened: tuple[ClusterEvent, ...] = ()
    parts = [*observation.parts, *looked.kept.declined]
    if not looked.kept.ending and not _is_settled(observation):
        try:
            happened = recent_events(client, name, looked.kept)
            observation = to_observation(looked, happened)
        except PermanentError as error:  # optional right
            parts.append(PartCondition("events", False, error.reason, error.message))
    observed = replace(observation, events=happened, parts=tuple(parts), drift=seen.drift)
    compared = versions is not None and versions == seen.checked and not seen.drift
    if versions is not None and compared and not record.ending and _is_settled(observation):
        until = time.monotonic() + FULL_S * random.uniform(0.8, 1.0)
        seen.settled = SettledWorkload(observed, versions, record.digest, record.items, until)
    return observed


def _versions_before(client: KubernetesClient, name: str, kept: AnchorRecord) -> Versions | None:
    """Return the versions before any object but the anchor is read; None if that one is newer."""
    versions = read_versions(client, name, kept.items)
    is_unchanged = versions is not None and (kinds.CONFIG_MAP, name, kept.version) in versions
    return versions if is_unchanged else None


def _with_crash_causes(
    client: KubernetesClient, looked: WorkloadObservation
) -> WorkloadObservation:
    """Replace uninformative termination messages by the crash cause from the log."""
    if looked.kept.ending:
        return looked
    for pod in looked.pods:
        status = workload_pods.main_status(pod, looked.kept.role)
        dead = workload_pods.last_termination(status)
        explained = dead.get("reason") == "OOMKilled" or crash_cause(str(dead.get("message") or ""))
        if status.get("ready") or not dead.get("exitCode") or explained:
            continue
        which = (pod["metadata"]["name"], status.get("restartCount"), dead.get("finishedAt"))
        key = (client.server, client.namespace, *which)
        ask = functools.partial(logs.cause_of_death, client, pod, status)
        try:
            dead["message"] = MEMORY.cached(key, _CAUSE_KEPT_S, ask) or dead.get("message")
        except ProvisionError:
            continue  # keep the termination message
    return looked


def recent_events(
    client: KubernetesClient, name: str, kept: AnchorRecord
) -> tuple[ClusterEvent, ...]:
    """Return the workload's events; the namespace's events are fetched once for all workloads."""
    key = (client.server, client.namespace, "events")
    events = MEMORY.cached(key, _EVENTS_AGAIN_S, lambda: client.listed(kinds.EVENT))
    return tuple(workload_events(events, name, kept.items))


def find_all_drift(client: KubernetesClient, kept: AnchorRecord, name: str) -> tuple[Drift, ...]:
    bodies = {object_name(body): body for body in kept.objects}
    there: dict[str, Json] = {}
    for kind in {kinds.kind_of(body) for body in kept.objects}:
        for body in client.listed(kind, f"{WORKLOAD}={name}"):
            there[f"{kind.kind}/{body['metadata']['name']}"] = body
    differences = (
        difference
        for key, body in bodies.items()
        for difference in find_drift(body, there.get(key))
    )
    # While an apply is in progress or stuck, a field not set by anyone is not drift.
    whole = bool(kept.digest)
    return tuple(
        difference
        for difference in differences
        if difference.key not in kept.left and (whole or difference.manager)
    )


def to_observation(
    looked: WorkloadObservation, happened: Iterable[ClusterEvent] = ()
) -> Observation:
    """Convert the objects read to an `Observation`. Pure."""
    record, workload = looked.kept, looked.workload
    replicas = workload_pods.with_events(_replicas(looked), looked.pods, happened)
    rollout = related_objects.rollout(workload, looked.kind)
    failed, why = _failed(looked, replicas)
    scaled = any(item.kind in {kind.kind for kind in _SCALERS} for item in record.items)
    replica_count = (workload or {}).get("spec", {}).get("replicas") if scaled else None
    message = "Being removed." if record.ending else why
    if not message and rollout.ready is False:
        message = rollout.message
    return Observation(
        exists=True,
        replicas=replicas,
        message=message or _gone_message(looked),
        wanted=replica_count,
        url=related_objects.external_url(looked.around, secure=record.secure),
        failed=failed,
        parts=(rollout, *related_objects.related_conditions(looked.around)),
    )


def _read_objects(client: KubernetesClient, name: str, kept: AnchorRecord) -> WorkloadObservation:
    kind, workload = None, None
    around = []
    for item in sorted(kept.items):
        object_kind = kinds.kind_of({"apiVersion": item.api_version, "kind": item.kind})
        if object_kind in _WORKLOADS and item.name == name:
            kind, workload = object_kind, None if kept.ending else client.get(object_kind, name)
        elif _has_status(object_kind, item.name, name) and not kept.ending:
            body = client.get(object_kind, item.name)
            around += [(object_kind, body)] if body is not None else []
    pods = client.listed(kinds.POD, f"{WORKLOAD}={name}")
    return WorkloadObservation(name, kept, kind, workload, tuple(pods), tuple(around), time.time())


def _has_status(kind: ObjectKind, item: str, name: str) -> bool:
    return kind in related_objects.KINDS_WITH_STATUS and (
        kind != kinds.SERVICE or item == public_name(name)
    )


def _check(
    client: KubernetesClient,
    looked: WorkloadObservation,
    seen: RecentObservation,
    versions: Versions | None,
) -> None:
    """Update `seen`: all objects periodically, the most important one each time."""
    record = looked.kept
    if record.ending:
        return
    if time.monotonic() - seen.checked_at > CHECK_EVERY_S:
        seen.drift = find_all_drift(client, record, looked.name)
        if versions is None or versions != seen.checked:
            seen.secrets = ""
        seen.checked_at, seen.checked = time.monotonic(), versions
    if looked.kind is not None and looked.workload is None:
        gone = Drift(f"{looked.kind.kind}/{looked.name}", "", MISSING, None)
        seen.drift = (
            gone,
            *(difference for difference in seen.drift if difference.object != gone.object),
        )


def _observe_remains(rest: list[tuple[ObjectKind, Json]]) -> Observation:
    """Observe a workload without an anchor: everything left is to be deleted."""
    if not rest:
        return Observation(exists=False)
    pods = sorted((body for kind, body in rest if kind == kinds.POD), key=workload_pods.order)
    now = time.time()
    replicas = [
        workload_pods.replica(pod, index, "", (), (), now) for index, pod in enumerate(pods)
    ]
    stopping = tuple(_stopping(replica) for replica in replicas)
    return Observation(exists=True, replicas=stopping, message=removal.summarize(rest))


def _replicas(looked: WorkloadObservation) -> tuple[ReplicaObservation, ...]:
    record = looked.kept
    pods = [pod for pod in looked.pods if not workload_pods.has_ended(pod)]
    stable = looked.kind == kinds.STATEFUL_SET
    pods.sort(key=workload_pods.ordinal if stable else workload_pods.order)
    replicas = [
        workload_pods.replica(
            pod,
            workload_pods.ordinal(pod) if stable else index,
            record.role,
            record.ports,
            record.channels,
            looked.now,
        )
        for index, pod in enumerate(pods)
    ]
    return tuple(_stopping(replica) if record.ending else replica for replica in replicas)


def _stopping(replica: ReplicaObservation) -> ReplicaObservation:
    if replica.state is ReplicaState.STOPPING:
        return replica
    return replace(
        replica, state=ReplicaState.STOPPING, reason="", message="Its workload is being removed."
    )


def _failed(
    looked: WorkloadObservation, replicas: tuple[ReplicaObservation, ...]
) -> tuple[str, str]:
    """Return reason and message if the platform abandoned the current revision, else "".

    A StatefulSet has no progress deadline, so the pods' start deadline applies.
    """
    record = looked.kept
    new = [r for r in replicas if r.spec_hash == record.wanted_hash]
    bad = [r for r in new if r.state not in (ReplicaState.READY, ReplicaState.STOPPING)]
    failed = looked.kind == kinds.DEPLOYMENT and related_objects.is_rollout_abandoned(
        looked.workload or _NOTHING
    )
    if looked.kind == kinds.STATEFUL_SET and record.startup_s:
        bad = [r for r in bad if looked.now - r.created_at > record.startup_s]
        failed = bool(bad)
    worst = next((r for r in bad if r.reason), bad[0] if bad else None)
    why = f"{worst.name}: {worst.reason or 'NotReady'}: {worst.message}" if worst else ""
    if not failed:
        return "", why if worst is not None and worst.reason else ""
    return _GAVE_UP, f"It did not become ready in time. {why}".strip()


_NOTHING: Json = {"metadata": {}, "status": {}}


def _gone_message(looked: WorkloadObservation) -> str:
    if looked.kind is not None and looked.workload is None:
        return f"{looked.kind.kind} {looked.name} was deleted outside Emberline."
    return ""


def _is_settled(found: Observation) -> bool:
    ready = all(replica.state is ReplicaState.READY for replica in found.replicas)
    return ready and not found.failed and all(part.ready for part in found.parts)
