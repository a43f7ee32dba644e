"""Object store with versions and history (the role of etcd).

All changes have one order (`version`). Stored objects are immutable: a change stores another one.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]


@dataclass(frozen=True)
class Resource:
    """Served kind. `status` and `scale`: whether it has those subresources."""

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


def copied(data: Any) -> Any:
    """Return a deep copy of JSON data; `copy.deepcopy` takes ten times as long."""
    if isinstance(data, dict):
        return {key: copied(value) for key, value in data.items()}
    if isinstance(data, list):
        return [copied(item) for item in data]
    return data


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        self.version = 1000
        self.oldest = 0  # older watches have expired
        self.objects: dict[str, dict[Key, Object]] = defaultdict(dict)  # by kind
        self.changes: dict[str, list[Change]] = defaultdict(list)
        self.dirty: set[str] = set()  # namespaces with pending controller passes
        self._counts: dict[str, int] = defaultdict(int)  # changes by kind
        self._groups: dict[Any, tuple[int, dict[Any, Any]]] = {}

    def find(self, kind: str, namespace: str, name: str) -> Object | None:
        return self.objects[kind].get((namespace, name))

    def list(self, kind: str, namespace: str = "") -> list[Object]:
        found = self.objects[kind]
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    def grouped(
        self, kind: str, namespace: str, keys: Callable[[Object], Iterable[Any]]
    ) -> Mapping[Any, Sequence[Object]]:
        """Return the objects by each of their keys, grouped once after each change of the kind."""
        what, count = (kind, namespace, keys), self._counts[kind]
        known = self._groups.get(what)
        if known is not None and known[0] == count:
            return known[1]
        found: dict[Any, Any] = {}
        for item in self.list(kind, namespace):
            for key in keys(item):
                found.setdefault(key, []).append(item)
        self._groups[what] = count, found
        return found

    def put(self, kind: str, data: Object) -> Object:
        """Store the object with a new version. The caller holds the lock."""
        key = data["metadata"].get("namespace", ""), data["metadata"]["name"]
        before = self.objects[kind].get(key)
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind][key] = data
        self._notify(kind, "ADDED" if before is None else "MODIFIED", data, before)
        return data

    def drop(self, kind: str, key: Key) -> None:
        """The caller holds the lock."""
        before = self.objects[kind].pop(key, None)
        if before is None:
            return
        self.version += 1
        metadata = {**before["metadata"], "resourceVersion": str(self.version)}
        self._notify(kind, "DELETED", {**before, "metadata": metadata}, before)

    def _notify(self, kind: str, what: str, data: Object, before: Object | None) -> None:
        self._counts[kind] += 1
        self.changes[kind].append(Change(self.version, what, data, before))
        metadata = data["metadata"]
        self.dirty.add(metadata.get("namespace", "") or f"{kind}/{metadata['name']}")
        self.news.notify_all()

    def expire(self) -> None:
        """Clear the history: every watch must list again."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.changes.clear()
            self.news.notify_all()
