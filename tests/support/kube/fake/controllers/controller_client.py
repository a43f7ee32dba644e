"""Store access of controllers: objects by owner, status, events, delayed passes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.support.kube.behaviours import stamp
from tests.support.kube.fake.selectors import by_object
from tests.support.kube.fake.store import Object, Store
from tests.support.kube.fake.verbs import KEPT, Options, Verbs

MANAGER = "kube-controller-manager"
SERVERS = (*KEPT, "resourceVersion", "managedFields")  # metadata that no write changes


class ControllerClient:
    def __init__(self, store: Store, verbs: Verbs) -> None:
        self.store, self.verbs = store, verbs
        self.since: dict[tuple[str, str], float] = {}  # (what, uid) -> start time
        self._later: dict[str, float] = {}

    def later(self, in_s: float, namespace: str) -> None:
        at = time.time() + in_s
        self._later[namespace] = min(self._later.get(namespace, at), at)

    def soonest(self) -> float:
        return min(self._later.values(), default=time.time() + 1)

    def due(self, now: float) -> set[str]:
        found = {name for name, at in self._later.items() if at <= now}
        for name in found:
            del self._later[name]
        return found

    # --- objects

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        return self.store.list(kind, namespace)

    def alive(self, kind: str, namespace: str) -> list[Object]:
        return [item for item in self.list(kind, namespace) if not leaving(item)]

    def owned(self, kind: str, owner: Object) -> list[Object]:
        metadata = owner["metadata"]
        return [*self.store.grouped(kind, metadata["namespace"], _owners).get(metadata["uid"], ())]

    def selected(self, kind: str, namespace: str, selector: Object | None) -> list[Object]:
        """Return the objects that a LabelSelector matches."""
        labels = (selector or {}).get("matchLabels", {})
        if labels:
            found = self.store.grouped(kind, namespace, _labels)
            items: Sequence[Object] = min((found.get(pair, ()) for pair in labels.items()), key=len)
        else:
            items = self.list(kind, namespace)
        return [one for one in items if by_object(selector, one["metadata"].get("labels", {}))]

    def create(self, kind: str, data: Object) -> Object:
        namespace = data["metadata"].get("namespace", "")
        return self.verbs.create(self.verbs.kinds[kind], namespace, data, Options(MANAGER))

    def write(self, data: Object, manager: str = MANAGER, sub: str = "") -> Object:
        """Write the object if it has changed."""
        metadata = {k: v for k, v in data["metadata"].items() if k != "resourceVersion"}
        resource = self.verbs.kinds[data["kind"]]
        where = metadata.get("namespace", ""), metadata["name"]
        live = self.store.find(data["kind"], *where)
        if live is not None and _unchanged(live, data, sub):
            return live
        reported = {**data, "metadata": metadata}
        return self.verbs.replace(resource, *where, reported, Options(manager, sub))

    def status(self, data: Object, **status: Any) -> Object:
        """Set these fields of its status."""
        return self.write({**data, "status": {**data.get("status", {}), **status}}, sub="status")

    def delete(self, data: Object, grace_s: int | None = None, propagation: str = "") -> None:
        metadata = data["metadata"]
        resource = self.verbs.kinds[data["kind"]]
        where = metadata.get("namespace", ""), metadata["name"]
        if self.store.find(data["kind"], *where) is not None:
            options = Options(MANAGER, grace_s=grace_s, propagation=propagation)
            self.verbs.delete(resource, *where, options)

    def event(self, about: Object, reason: str, message: str, warning: bool = False) -> None:
        metadata = about["metadata"]
        digest = hashlib.sha1(f"{metadata['uid']}{reason}{message}".encode()).hexdigest()[:16]
        name, namespace = f"{metadata['name'][:200]}.{digest}", metadata.get("namespace", "default")
        found = self.store.find("Event", namespace, name)
        now = stamp(time.time())
        if found is not None:
            self.write({**found, "count": found["count"] + 1, "lastTimestamp": now})
            return
        about_ref = {
            "kind": about["kind"],
            "namespace": namespace,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": about["apiVersion"],
        }
        self.create(
            "Event",
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": about_ref,
                "reason": reason,
                "message": message,
                "type": "Warning" if warning else "Normal",
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": MANAGER},
            },
        )


def _owners(item: Object) -> Iterator[str]:
    for ref in item["metadata"].get("ownerReferences", ()):
        if ref.get("controller"):
            yield ref["uid"]


def _labels(item: Object) -> Iterable[tuple[str, str]]:
    return item["metadata"].get("labels", {}).items()


def _unchanged(live: Object, data: Object, sub: str) -> bool:
    """Return whether the server would find no change; it takes longer to do so."""
    if data["metadata"].get("uid", live["metadata"]["uid"]) != live["metadata"]["uid"]:
        return False
    if sub == "status":
        return bool(live.get("status") == data["status"])
    return _content(live) == _content(data)


def _content(data: Object) -> Object:
    metadata = {k: v for k, v in data["metadata"].items() if v and k not in SERVERS}
    return {**data, "metadata": metadata, "status": None}


def leaving(data: Object) -> bool:
    return "deletionTimestamp" in data["metadata"]


def condition(data: Object, kind: str) -> Object:
    found = data.get("status", {}).get("conditions") or ()
    return next((item for item in found if item["type"] == kind), {})


def conditions(data: Object, *wanted: Object) -> list[Object]:
    """Merge conditions; the transition time changes with the status."""
    now = stamp(time.time())
    found = {item["type"]: item for item in data.get("status", {}).get("conditions") or ()}
    for item in wanted:
        old = found.get(item["type"], {})
        times = {"lastTransitionTime": now}
        if old.get("status") == item["status"]:
            times["lastTransitionTime"] = old["lastTransitionTime"]
        if any(old.get(key) != value for key, value in item.items()):
            found[item["type"]] = {**old, **item, **times}
    return list(found.values())


def pod_ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True" and not leaving(pod)


def reference(owner: Object) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""What the real controllers write hashes in: no vowels, and nothing that looks like one."""


def digest(data: Any, length: int = 10) -> str:
    text = json.dumps(data, sort_keys=True)
    raw = hashlib.sha256(text.encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in raw[:length])
