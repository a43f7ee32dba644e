"""Watches of all namespaces with workloads, run by each Celery worker.

One thread per namespace and kind serves all endpoints there; one more starts and stops them,
gathers their notices for the reconcilers, and stores their state for the cluster's page. Without a
live watch, endpoints are polled.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.models import F
from django.utils import timezone

from console.clusters import selectors
from console.clusters.models import Cluster, ClusterWatch
from console.core import uses
from console.provisioners.base import ProvisionError
from console.provisioners.kubernetes.api.access import ClusterAccess

if TYPE_CHECKING:  # they import the Kubernetes client, which one machine does not need
    from console.provisioners.kubernetes.api.kinds import ObjectKind
    from console.provisioners.kubernetes.workload.watch import ObjectWatch

log = logging.getLogger(__name__)

CHECK_S = 10.0
GATHER_S = 0.1
"""Wait after the first notice for more: a rollout sends many."""
Place = tuple[str, str]
"""Cluster and namespace."""


class ClusterWatches(threading.Thread):
    """Watches of all clusters, one thread each. `announce(owners)` reconciles owners such as
    `endpoint/demo` soon.
    """

    def __init__(self, announce: Callable[[set[str]], None]) -> None:
        super().__init__(name="cluster-watches", daemon=True)
        self._announce = announce
        self._watches: dict[Place, tuple[ClusterAccess, list[ObjectWatch]]] = {}
        self._owners: set[str] = set()
        self._reports: dict[tuple[Place, str], str] = {}
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._stopped = threading.Event()

    def run(self) -> None:
        check_at = 0.0
        while not self._stopped.is_set():
            try:
                if time.monotonic() >= check_at:
                    check_at = time.monotonic() + CHECK_S
                    self._adjust(wanted_places())
                self._deliver()
            except Exception:
                # The next round starts missing watches; polling finds the changes.
                log.exception("Cluster watches not updated")
            finally:
                connections.close_all()
            if self._news.wait(max(0.0, check_at - time.monotonic())):
                self._stopped.wait(GATHER_S)
        self._adjust({})

    def stop(self) -> None:
        self._stopped.set()
        self._news.set()
        self.join()

    def _adjust(self, wanted: Mapping[Place, ClusterAccess]) -> None:
        """Start missing watches; stop those no longer needed or with old credentials."""
        for place, (access, running) in list(self._watches.items()):
            if wanted.get(place) != access or not all(watch.is_alive() for watch in running):
                del self._watches[place]
                for watch in running:
                    watch.stop()
                if place not in wanted:
                    _forget(place)
        for place, access in wanted.items():
            if place not in self._watches:
                self._watches[place] = access, self._start(place, access)

    def _start(self, place: Place, access: ClusterAccess) -> list[ObjectWatch]:
        from console.provisioners.kubernetes.api.client import KubernetesClient
        from console.provisioners.kubernetes.workload.watch import WATCHED, ObjectWatch

        client = KubernetesClient(access, place[1])
        started = [
            ObjectWatch(client, kind, self._notice, self._reporter(place, kind)) for kind in WATCHED
        ]
        for watch in started:
            watch.start()
        return started

    def _reporter(self, place: Place, kind: ObjectKind) -> Callable[[str], None]:
        def report(error: str) -> None:
            with self._lock:
                self._reports[place, kind.plural] = error
            self._news.set()

        return report

    def _notice(self, owners: set[str]) -> None:
        with self._lock:
            self._owners |= owners
        self._news.set()

    def _deliver(self) -> None:
        self._news.clear()
        with self._lock:
            owners, self._owners = self._owners, set()
            reports, self._reports = self._reports, {}
        try:
            if owners:
                self._announce(owners)
        except Exception:
            with self._lock:
                self._owners |= owners  # delivered in the next round
            raise
        for (place, kind), error in reports.items():
            if place in self._watches:
                _store(place, kind, error)


def wanted_places() -> dict[Place, ClusterAccess]:
    """Return the watches to run; clusters without readable credentials are left out."""
    accesses: dict[Place, ClusterAccess] = {}
    for cluster, namespaces in uses.by_name("namespace").items():
        try:
            access, default = selectors.access(cluster)
        except ProvisionError:
            continue  # the endpoints' passes report it
        for namespace in {namespace or default for namespace in namespaces}:
            accesses[cluster, namespace] = access
    return accesses


def _store(place: Place, kind: str, error: str) -> None:
    now = timezone.now()
    cluster = Cluster.objects.filter(name=place[0]).first()
    if cluster is None:
        return
    row, _ = ClusterWatch.objects.get_or_create(cluster=cluster, namespace=place[1], kind=kind)
    fields: dict[str, Any] = {"error": error, "seen_at": now}
    if bool(error) != bool(row.error):
        fields["since"] = now
    if error and not row.error:
        fields["losses"] = F("losses") + 1
    ClusterWatch.objects.filter(pk=row.pk).update(**fields)


def _forget(place: Place) -> None:
    ClusterWatch.objects.filter(cluster__name=place[0], namespace=place[1]).delete()
