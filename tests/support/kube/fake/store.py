"""All objects, their versions, and what happened since: the part etcd plays.

Promises one order of all changes (`version`), and that a kept object is never changed in place:
who wants another writes another. Must not know what an object means.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Resource:
    """A kind which is served. `status` and `scale` are whether it has those subresources."""

    prefix: str  # /api/v1, /apis/apps/v1
    plural: str
    kind: str
    namespaced: bool
    status: bool = True
    scale: bool = False
    schema: Any = None  # of a custom kind

    @property
    def version(self) -> str:
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    @property
    def group(self) -> str:
        return self.version.partition("/")[0] if "/" in self.version else ""


@dataclass(frozen=True)
class Change:
    version: int
    kind: str  # ADDED MODIFIED DELETED
    now: Object
    before: Object | None


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        self.version = 1000
        self.oldest = 0  # watches from before this are gone
        self.objects: dict[str, dict[Key, Object]] = defaultdict(dict)  # by kind
        self.changes: dict[str, list[Change]] = defaultdict(list)
        self.dirty: set[str] = set()  # namespaces for the controllers

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return self.objects[kind].get((namespace, name))

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        found = self.objects[kind]
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def put(self, kind: str, data: Object) -> Object:
        """The lock is held. Gives the object its version."""
        key = data["metadata"].get("namespace", ""), data["metadata"]["name"]
        before = self.objects[kind].get(key)
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind][key] = data
        self._tell(kind, "ADDED" if before is None else "MODIFIED", data, before)
        return data

    def drop(self, kind: str, key: Key) -> None:
        """The lock is held."""
        before = self.objects[kind].pop(key, None)
        if before is None:
            return
        self.version += 1
        metadata = {**before["metadata"], "resourceVersion": str(self.version)}
        self._tell(kind, "DELETED", {**before, "metadata": metadata}, before)

    def _tell(self, kind: str, what: str, data: Object, before: Object | None) -> None:
        self.changes[kind].append(Change(self.version, what, data, before))
        metadata = data["metadata"]
        self.dirty.add(metadata.get("namespace", "") or f"{kind}/{metadata['name']}")
        self.news.notify_all()

    def expire(self) -> None:
        """Forget what happened: every watch must list anew."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            self.news.notify_all()
