"""Watch our objects of one kind in a namespace and report the owners of changed ones.

Only metadata is transferred. A stream resumes after its last version; once that has expired, the
objects are listed again and compared with the known ones, so that no change is missed. While a
watch is live for every kind of `WATCHED`, workloads of the namespace need no polling.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from console.core.counters import increment
from console.provisioners.base import PermanentError, ProvisionError, TemporaryError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import Json, KubernetesClient, WatchStream
from console.provisioners.kubernetes.api.errors import VersionExpiredError
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.rendering.names import OWNER, WORKLOAD

log = logging.getLogger(__name__)

WATCHED = (kinds.POD, kinds.DEPLOYMENT)
STREAM_S = 300
QUIET_S = 100.0
"""Longer than the period of the server's bookmarks, a minute and a quarter at most."""
FIRST_RETRY_S = 1.0
MAX_RETRY_S = 30.0
REFUSED_RETRY_S = 60.0

_live: dict[tuple[str, str, ObjectKind], ObjectWatch] = {}
_lock = threading.Lock()


def is_watched(server: str, namespace: str) -> bool:
    """Return whether this process receives every change of workloads in the namespace."""
    with _lock:
        return all((server, namespace, kind) in _live for kind in WATCHED)


def watched_versions(
    server: str, namespace: str, kind: ObjectKind, workload: str
) -> list[tuple[str, str]] | None:
    """Return name and version of each object of the workload; None without a live watch."""
    with _lock:
        watch = _live.get((server, namespace, kind))
    return watch.versions(workload) if watch is not None else None


class ObjectWatch(threading.Thread):
    """Watch of one kind of objects in one cluster. `changed(owners)` gets owners such as
    `endpoint/demo`, `reported(error)` each outcome of a stream, "" when one begins. Both are called
    in this thread and must not raise or block.
    """

    def __init__(
        self,
        client: KubernetesClient,
        kind: ObjectKind,
        changed: Callable[[set[str]], None],
        reported: Callable[[str], None],
    ) -> None:
        super().__init__(name=f"watch-{client.namespace}-{kind.plural}", daemon=True)
        self._client, self._kind = client, kind
        self._changed, self._reported = changed, reported
        self._known: dict[str, tuple[str, str, str]] = {}  # name: version, owner, workload
        self._versions: dict[str, dict[str, str]] = {}  # workload: name: version
        self._version = ""
        self._failures = 0
        self._logged = ""
        self._stream: WatchStream | None = None
        self._key: tuple[str, str, ObjectKind] | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        wait_s = 0.0
        while not self._stopped.wait(wait_s):
            try:
                wait_s = self._follow()
            except ProvisionError as error:
                wait_s = self._lost(error)
            except Exception as error:
                log.exception("%s: unexpected error", self.name)
                wait_s = self._lost(TemporaryError("WatchFailed", f"{type(error).__name__}."))
        self._set_live(on=False)

    def stop(self) -> None:
        """Stop without waiting for the thread, which ends with its request."""
        self._stopped.set()
        self._set_live(on=False)
        if (stream := self._stream) is not None:
            with suppress(Exception):  # it has just ended
                stream.shutdown()

    def versions(self, workload: str) -> list[tuple[str, str]]:
        """Return name and version of each object of the workload; called in other threads."""
        return list(self._versions.get(workload, {}).copy().items())

    def _follow(self) -> float:
        """Follow one stream to its end; return the seconds until the next one."""
        if not self._version:
            self._relist()
        began = time.monotonic()
        with self._client.watch(
            self._kind, WORKLOAD, self._version, STREAM_S, QUIET_S
        ) as self._stream:
            self._set_live(on=not self._stopped.is_set())
            self._reported("")
            for event, body in self._stream:
                if self._stopped.is_set():
                    return 0.0
                self._failures, self._logged = 0, ""
                self._apply(event, body)
        self._stream = None
        # A server or proxy that ends each stream at once is not queried in a loop.
        return 0.0 if time.monotonic() - began > FIRST_RETRY_S else FIRST_RETRY_S

    def _relist(self) -> None:
        items, version = self._client.metadata(self._kind, WORKLOAD)
        before, self._known, self._versions = self._known, {}, {}
        for body in items:
            self._keep(body)
        gone = {owner for name, (_, owner, _) in before.items() if name not in self._known}
        self._notify(
            gone | {item[1] for name, item in self._known.items() if before.get(name) != item}
        )
        self._version = version

    def _apply(self, event: str, body: Json) -> None:
        about = body.get("metadata") or {}
        if event == "BOOKMARK":
            self._version = str(about.get("resourceVersion") or self._version)
            return
        owner = self._keep(body)
        if event == "DELETED":
            self._drop(str(about.get("name")))
        self._notify({owner})
        self._version = str(about.get("resourceVersion") or self._version)

    def _keep(self, body: Json) -> str:
        about = body.get("metadata") or {}
        labels = about.get("labels") or {}
        owner = str(labels.get(OWNER, "")).replace(".", "/", 1)
        name, version = str(about.get("name")), str(about.get("resourceVersion"))
        workload = str(labels.get(WORKLOAD, ""))
        if self._known.get(name, ("", "", workload))[2] != workload:
            self._drop(name)
        self._known[name] = version, owner, workload
        self._versions.setdefault(workload, {})[name] = version
        return owner

    def _drop(self, name: str) -> None:
        if name in self._known:
            workload = self._known.pop(name)[2]
            del self._versions[workload][name]
            if not self._versions[workload]:
                del self._versions[workload]

    def _notify(self, owners: Iterable[str]) -> None:
        if affected := {owner for owner in owners if owner}:
            self._changed(affected)

    def _lost(self, error: ProvisionError) -> float:
        """Report the loss; return the seconds until the next attempt."""
        self._stream = None
        if self._stopped.is_set():
            return 0.0
        if isinstance(error, VersionExpiredError):
            self._version = ""
        self._failures += 1
        increment("cluster_watches_lost", kind=self._kind.plural, reason=error.reason)
        if isinstance(error, VersionExpiredError) and self._failures == 1:
            return 0.0
        if error.reason != self._logged:
            log.warning("%s: lost, endpoints are polled: %s", self.name, error.message)
            self._logged = error.reason
        if self._set_live(on=False):  # what happens to them from now on is unknown
            self._notify(owner for _, owner, _ in self._known.values())
        self._reported(error.message)
        if isinstance(error, PermanentError):
            return REFUSED_RETRY_S
        requested_delay_s = getattr(error, "delay_s", 0.0) if error.reason == "ClusterBusy" else 0.0
        delay_s = min(MAX_RETRY_S, FIRST_RETRY_S * 2.0 ** min(self._failures - 1, 10))
        return max(requested_delay_s, delay_s) * random.uniform(0.5, 1.0)

    def _set_live(self, *, on: bool) -> bool:
        """Return whether the watch was live before."""
        if on and self._key is None:
            self._key = (self._client.server, self._client.namespace, self._kind)
        if self._key is None:
            return False
        with _lock:
            before = _live.get(self._key) is self
            if on:
                _live[self._key] = self
            elif before:
                del _live[self._key]
        return before
