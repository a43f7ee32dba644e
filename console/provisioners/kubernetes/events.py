"""What the cluster says happened to the objects of one workload.

Promises that events of a workload whose name begins alike are not taken for its own. Pure: events
as the API server sends them come in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from console.provisioners.base import ClusterEvent
from console.provisioners.kubernetes.rendering.anchor import Item
from console.provisioners.kubernetes.workload.fields import epoch

Json = dict[str, Any]
_MOST = 50
# A ReplicaSet's hash has no vowels, so no word is taken for one; a pod adds five more.
_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"


def of_workload(found: Iterable[Json], name: str, items: Iterable[Item]) -> list[ClusterEvent]:
    """The last ones, oldest first."""
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
    first = epoch(event.get("firstTimestamp")) or epoch(event.get("eventTime"))
    last = epoch(series.get("lastObservedTime")) or epoch(event.get("lastTimestamp")) or first
    return ClusterEvent(
        subject=subject,
        reason=str(event.get("reason") or ""),
        message=" ".join(str(event.get("message") or "").split()),
        warning=event.get("type") == "Warning",
        count=int(series.get("count") or event.get("count") or 1),
        first_at=first or last,
        last_at=last,
    )
