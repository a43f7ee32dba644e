"""Controllers: one thread, level-triggered, over the namespaces that changed.

Each pass sees a consistent store (it holds the lock); failed work is retried. Pods only change
through the simulated kubelet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tests.support.kube.fake.controllers import (
    collecting,
    deployments,
    disks,
    jobs,
    replicasets,
    scheduling,
    services,
    statefulsets,
)
from tests.support.kube.fake.controllers.controller_client import ControllerClient
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.store import Store
from tests.support.kube.fake.verbs import Verbs

PASSES: tuple[Callable[[ControllerClient, str], None], ...] = (
    collecting.namespace,
    collecting.garbage,
    deployments.run,
    replicasets.run,
    statefulsets.run,
    jobs.run,
    disks.run,
    scheduling.run,
    scheduling.evict,
    services.slices,
    services.budgets,
    services.quotas,
)


class Controllers:
    def __init__(self, store: Store, verbs: Verbs) -> None:
        self._store = store
        self._client = ControllerClient(store, verbs)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-controllers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        with self._store.news:
            self._store.news.notify_all()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            for namespace in self._due():
                self._pass(namespace)

    def _due(self) -> set[str]:
        store, client = self._store, self._client
        with store.news:
            if not store.dirty and not self._stop.is_set():
                store.news.wait(min(max(client.soonest() - time.time(), 0.001), 1.0))
            dirty, store.dirty = store.dirty, set()
            spaces = {name for name in dirty if "/" not in name}
            spaces |= {n.partition("/")[2] for n in dirty if n.startswith("Namespace/")}
            if any(name.startswith(("Node/", "StorageClass/")) for name in dirty):
                spaces |= {item["metadata"]["name"] for item in store.list("Namespace")}
        return spaces | client.due(time.time())

    def _pass(self, namespace: str) -> None:
        for run in PASSES:
            with self._store.lock:
                try:
                    run(self._client, namespace)
                except ApiError:
                    self._client.later(0.2, namespace)
