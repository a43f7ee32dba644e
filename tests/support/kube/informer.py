"""Current objects of one kind: list and watch in a thread.

`items` is the server's latest state; `changed` is called with each key that may have changed, and
again for all after a gap.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx

from tests.support.kube.client import Kube, Refused

Key = tuple[str, str]  # namespace ("" for what has none), name


def key_of(data: dict[str, Any]) -> Key:
    return data["metadata"].get("namespace", ""), data["metadata"]["name"]


class Informer:
    def __init__(
        self, api: Kube, kind: str, changed: Callable[[Key], None], field: str = ""
    ) -> None:
        self._api, self._kind, self._changed = api, kind, changed
        self._query = {"fieldSelector": field} if field else {}
        self._stop = threading.Event()
        self.items: dict[Key, dict[str, Any]] = {}
        self.synced = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting: the watch ends with its connection or timeout."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                since = self._list()
                self.synced.set()
                while not self._stop.is_set():
                    since = self._watch(since)
            except (Refused, httpx.HTTPError, httpx.StreamError, OSError, RuntimeError):
                # RuntimeError: client closed. Others: server down, or watch expired.
                self._stop.wait(0.2)

    def _list(self) -> str:
        path = self._api.path(self._kind)
        answer = self._api.ask("GET", path, **self._query)
        items = {key_of(item): item for item in answer["items"]}
        touched = [*items, *(key for key in self.items if key not in items)]
        self.items = items
        for key in touched:
            self._changed(key)
        return str(answer["metadata"]["resourceVersion"])

    def _watch(self, since: str) -> str:
        path = self._api.path(self._kind)
        query = {"watch": "1", "resourceVersion": since, "timeoutSeconds": "300"}
        query |= {"allowWatchBookmarks": "true", **self._query}
        with self._api.stream(path, query) as events:
            for event in events:
                data = event["object"]
                if event["type"] == "ERROR":
                    raise Refused(int(data.get("code", 500)), data)
                since = data["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                key = key_of(data)
                if event["type"] == "DELETED":
                    self.items.pop(key, None)
                else:
                    self.items[key] = data
                if self._stop.is_set():
                    break
                self._changed(key)
        return since
