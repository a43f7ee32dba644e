"""Deployments: a ReplicaSet for each template, with its replicas during a rollout."""

from __future__ import annotations

import math
import time
from typing import Any

from tests.support.kube.fake.controllers.controller_client import (
    ControllerClient,
    condition,
    conditions,
    digest,
    leaving,
    reference,
)
from tests.support.kube.fake.store import Object, copied

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"


def run(client: ControllerClient, namespace: str) -> None:
    for data in client.alive("Deployment", namespace):
        _one(client, data)


def _one(client: ControllerClient, data: Object) -> None:
    sets = client.owned("ReplicaSet", data)
    name = digest(data["spec"]["template"])
    new = next((item for item in sets if item["metadata"]["labels"][HASH] == name), None)
    old = [item for item in sets if item is not new and not leaving(item)]
    if new is None:
        new = _create(client, data, name, old)
        client.since["progress", data["metadata"]["uid"]] = time.time()
    else:
        new = _newest(client, new, old)
    if not data["spec"].get("paused"):
        new, old = _roll(client, data, new, old)
        _forget(client, data, old)
    _status(client, data, new, old)


def _create(client: ControllerClient, data: Object, name: str, old: list[Object]) -> Object:
    template = copied(data["spec"]["template"])
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[HASH] = name
    selector = copied(data["spec"]["selector"])
    selector.setdefault("matchLabels", {})[HASH] = name
    metadata = {
        "name": f"{data['metadata']['name']}-{name}",
        "namespace": data["metadata"]["namespace"],
        "labels": dict(labels),
        "annotations": {REVISION: str(_revision(old) + 1)},
        "ownerReferences": [reference(data)],
    }
    spec = {"replicas": 0, "selector": selector, "template": template}
    spec["minReadySeconds"] = data["spec"].get("minReadySeconds", 0)
    made = client.create("ReplicaSet", {"metadata": metadata, "spec": spec})
    _annotate(client, data, made)
    return made


def _revision(sets: list[Object]) -> int:
    return max((int(item["metadata"]["annotations"][REVISION]) for item in sets), default=0)


def _newest(client: ControllerClient, new: Object, old: list[Object]) -> Object:
    """Give a template that is used again a new revision number."""
    if int(new["metadata"]["annotations"][REVISION]) >= _revision(old):
        return new
    annotations = {**new["metadata"]["annotations"], REVISION: str(_revision(old) + 1)}
    return client.write({**new, "metadata": {**new["metadata"], "annotations": annotations}})


def _annotate(client: ControllerClient, data: Object, new: Object) -> None:
    live = client.store.find("Deployment", data["metadata"]["namespace"], data["metadata"]["name"])
    if live is not None:
        number = new["metadata"]["annotations"][REVISION]
        annotations = {**live["metadata"].get("annotations", {}), REVISION: number}
        client.write({**live, "metadata": {**live["metadata"], "annotations": annotations}})


def _roll(
    client: ControllerClient, data: Object, new: Object, old: list[Object]
) -> tuple[Object, list[Object]]:
    wanted = data["spec"]["replicas"]
    if data["spec"]["strategy"]["type"] == "Recreate":
        old = [_scale(client, item, 0) for item in old]
        if not any(item.get("status", {}).get("replicas", 0) for item in old):
            new = _scale(client, new, wanted)
        return new, old
    surge, unavailable = limits(data)
    total = sum(item["spec"]["replicas"] for item in (new, *old))
    has = new["spec"]["replicas"]
    if has > wanted:
        new = _scale(client, new, wanted)
    elif has < wanted:
        room = max(0, wanted + surge - total)
        new = _scale(client, new, min(wanted, has + room))
    return new, _shrink(client, new, old, wanted - unavailable)


def _shrink(client: ControllerClient, new: Object, old: list[Object], least: int) -> list[Object]:
    """Remove old replicas: unavailable ones first, others while enough are available."""
    total = sum(item["spec"]["replicas"] for item in (new, *old))
    room = total - least - (new["spec"]["replicas"] - _available(new))
    left = []
    for item in old:
        bad = max(0, min(item["spec"]["replicas"] - _available(item), room))
        room -= bad
        left.append(_scale(client, item, item["spec"]["replicas"] - bad))
    spare = sum(_available(item) for item in (new, *left)) - least
    result = []
    for item in left:
        # Terminating ones still count as available in the ReplicaSet's status.
        serving = min(item["spec"]["replicas"], _available(item))
        spare -= max(0, _available(item) - item["spec"]["replicas"])
        less = max(0, min(serving, spare))
        spare -= less
        result.append(_scale(client, item, item["spec"]["replicas"] - less))
    return result


def _available(item: Object) -> int:
    return int(item.get("status", {}).get("availableReplicas", 0))


def limits(data: Object) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable as numbers."""
    rolling, wanted = data["spec"]["strategy"].get("rollingUpdate", {}), data["spec"]["replicas"]
    surge = _share(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    return surge, unavailable if surge or unavailable else 1


def _share(value: Any, of: int, up: bool) -> int:
    if isinstance(value, int):
        return value
    part = of * int(value.rstrip("%")) / 100
    return math.ceil(part) if up else math.floor(part)


def _scale(client: ControllerClient, item: Object, replicas: int) -> Object:
    if item["spec"]["replicas"] == replicas:
        return item
    return client.write({**item, "spec": {**item["spec"], "replicas": replicas}})


def _forget(client: ControllerClient, data: Object, old: list[Object]) -> None:
    empty = [i for i in old if not i["spec"]["replicas"] and not i["status"].get("replicas")]
    empty.sort(key=lambda item: int(item["metadata"]["annotations"][REVISION]))
    keep = data["spec"]["revisionHistoryLimit"]
    for item in empty[: max(0, len(empty) - keep)]:
        client.delete(item)


def _status(client: ControllerClient, data: Object, new: Object, old: list[Object]) -> None:
    where = data["metadata"]["namespace"], data["metadata"]["name"]
    data = client.store.find("Deployment", *where) or data
    wanted = data["spec"]["replicas"]

    def total(field: str) -> int:
        return sum(item.get("status", {}).get(field, 0) for item in (new, *old))

    counts = {
        "replicas": total("replicas"),
        "updatedReplicas": new.get("status", {}).get("replicas", 0),
        "readyReplicas": total("readyReplicas"),
        "availableReplicas": total("availableReplicas"),
        "unavailableReplicas": max(0, wanted - total("availableReplicas")),
    }
    counts = {key: value for key, value in counts.items() if value}
    before = data.get("status", {})
    wanted_conditions = [
        _enough(data, counts.get("availableReplicas", 0)),
        _progress(client, data, new, counts, before),
    ]
    found = conditions(data, *wanted_conditions)
    failure = condition(new, "ReplicaFailure")
    found = [item for item in found if item["type"] != "ReplicaFailure"]
    status = {**counts, "observedGeneration": data["metadata"]["generation"]}
    status["conditions"] = [*found, failure] if failure else found
    client.write({**data, "status": status}, sub="status")


def _enough(data: Object, available: int) -> Object:
    least = data["spec"]["replicas"] - limits(data)[1]
    if available >= least:
        text = "Deployment has minimum availability."
        return _make_condition("Available", "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return _make_condition("Available", "False", "MinimumReplicasUnavailable", text)


def _progress(
    client: ControllerClient, data: Object, new: Object, counts: dict[str, int], before: Object
) -> Object:
    key = "progress", data["metadata"]["uid"]
    now, name = time.time(), new["metadata"]["name"]
    wanted = data["spec"]["replicas"]
    done = all(
        counts.get(field, 0) == wanted
        for field in ("replicas", "updatedReplicas", "availableReplicas")
    )
    last = condition(data, "Progressing")
    if done or (
        last.get("reason") == "NewReplicaSetAvailable"
        and before.get("observedGeneration") == data["metadata"]["generation"]
    ):
        client.since[key] = now
        text = f'ReplicaSet "{name}" has successfully progressed.'
        return _make_condition("Progressing", "True", "NewReplicaSetAvailable", text)
    moved = any(counts.get(f, 0) > before.get(f, 0) for f in ("updatedReplicas", "readyReplicas",
                "availableReplicas"))  # fmt: skip
    if moved or before.get("observedGeneration") != data["metadata"]["generation"]:
        client.since[key] = now
    deadline = data["spec"]["progressDeadlineSeconds"]
    left = client.since.setdefault(key, now) + deadline - now
    if left <= 0:
        text = f'ReplicaSet "{name}" has timed out progressing.'
        return _make_condition("Progressing", "False", "ProgressDeadlineExceeded", text)
    client.later(left, data["metadata"]["namespace"])
    return _make_condition(
        "Progressing", "True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.'
    )


def _make_condition(kind: str, status: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message}
