"""Cost of idle endpoints on Kubernetes, and the time from a pod's death to the console.

    python -m bench.idle_cluster [--endpoints 10 100] [--seconds 60] [--deaths 10]

A fake control plane with a simulated kubelet in this process; one worker and one router pod per
endpoint, in one namespace. Passes run in virtual time on a temporary SQLite database, first without
watches (every 3 s), then with them. CPU is that of the passes' thread, without API server and
router. Deaths run in real time, with the watches' own threads.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.console_speed import console

DEADLINE_S = 3600.0
SETTLED_S = 200.0
"""Virtual time until every workload has been compared and found unchanged."""
DATA = {"model": "smollm2-135m-instruct", "engine": "simulated", "replicas": 1}
ROUTER = {"replicas": 1, "cpus": 0.1, "memory_gib": 0.125}


class Fleet:
    """Endpoints on a fake cluster, and the virtual time of their passes."""

    def __init__(self, harness: Any) -> None:
        from console.provisioners.kubernetes.workload import (
            observation,
            observation_cache,
            versions,
        )

        self.harness = harness
        self.now = datetime.now(UTC)
        self.ahead_s = 0.0
        ahead = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + self.ahead_s)
        for module in (observation, observation_cache, versions):
            module.time = ahead  # type: ignore[attr-defined]

    def grow(self, to: int) -> None:
        from endpoints.models import Endpoint, EndpointStatus

        for number in range(Endpoint.objects.count(), to):
            self.harness.create({**DATA, "name": f"llm-{number}", "router": ROUTER})
        end = time.monotonic() + DEADLINE_S
        while waiting := list(EndpointStatus.objects.exclude(phase="Ready")):
            if time.monotonic() > end:
                raise SystemExit(f"{len(waiting)} endpoints are not Ready: {waiting[0].message}")
            for status in waiting:
                self.harness.reconciler.reconcile(str(status.pk))

    def run(self, seconds: float) -> int:
        """Run every due pass of this virtual time; return their number."""
        from django.utils import timezone

        from endpoints.models import EndpointStatus

        real, passes = timezone.now, 0
        began = end = timezone.now() + timedelta(seconds=self.ahead_s)
        end += timedelta(seconds=seconds)
        timezone.now = lambda: self.now
        try:
            while True:
                first = EndpointStatus.objects.order_by("due_at").values_list("pk", "due_at")[0]
                self.now = max(first[1], began)
                if self.now >= end:
                    break
                base = (self.now - real()).total_seconds()
                self.ahead_s = base
                self.harness.reconciler.reconcile(str(first[0]))
                passes += 1
        finally:
            timezone.now = real
            self.ahead_s = (end - real()).total_seconds()
        return passes


def measure(
    fleet: Fleet, seconds: float, settled_s: float = 10.0
) -> tuple[float, float, float, float]:
    """Return passes, API requests, queries and CPU (ms) per second of virtual time."""
    from django.db import connection

    queries = 0

    def count(execute: Any, *args: Any) -> Any:
        nonlocal queries
        queries += 1
        return execute(*args)

    fleet.run(settled_s)
    server = fleet.harness.cluster.plane.server
    before, began = len(server.requests), time.thread_time()
    with connection.execute_wrapper(count):
        passes = fleet.run(seconds)
    cpu = time.thread_time() - began
    queries -= passes  # the look for the next one, which a sweep makes for all
    lines = server.requests[before:]
    requests = sum("kubelet" not in line and "/leases/" not in line for line in lines)
    return passes / seconds, requests / seconds, queries / seconds, 1000 * cpu / seconds


@contextmanager
def watched(rounds: Any) -> Iterator[None]:
    """Run the watches with their own threads; deliver their states here."""
    from console.clusters.models import ClusterWatch
    from console.clusters.watches import wanted_places

    rounds._adjust(wanted_places())
    end = time.monotonic() + DEADLINE_S
    while ClusterWatch.objects.filter(error="").count() < 2:
        rounds._deliver()
        if time.monotonic() > end:
            raise SystemExit("the watches do not begin")
        time.sleep(0.05)
    yield
    rounds._adjust({})


def deaths(fleet: Fleet, times: int) -> list[float]:
    """Kill worker pods; return the seconds until the database has the event of each."""
    from django.db import connections

    from console.clusters.watches import ClusterWatches
    from console.system.changes import announce
    from console.tasks import BaseTask
    from endpoints.models import Endpoint, EndpointEvent, EndpointStatus

    nudges: queue.Queue[str] = queue.Queue()
    BaseTask.nudge = lambda _task, *args, **_: nudges.put(args[0])  # type: ignore[method-assign]

    def work() -> None:
        while (pk := nudges.get()) != "":
            fleet.harness.reconciler.reconcile(pk)
        connections.close_all()

    worker, watches = threading.Thread(target=work), ClusterWatches(announce)
    worker.start()
    watches.start()
    found = []
    kube, namespace = fleet.harness.cluster.api, fleet.harness.namespace
    try:
        began = time.monotonic()
        time.sleep(5.0)  # both watches are live
        while not nudges.empty():  # they announce every endpoint once
            time.sleep(0.1)
        print(f"first notices handled after {time.monotonic() - began:.1f} s")
        for number in range(times):
            endpoint = Endpoint.objects.get(name=f"llm-{number}")
            pod = fleet.harness.pods(f"{endpoint.name}-worker")[0]["metadata"]["name"]
            began = time.monotonic()
            kube.delete("Pod", namespace, pod, gracePeriodSeconds=0)
            gone = EndpointEvent.objects.filter(
                endpoint=endpoint, subject=pod, kind__in=("WorkerLost", "WorkerRemoved")
            )
            while not gone.exists():
                if time.monotonic() - began > 60:
                    raise SystemExit(f"{pod}: {EndpointStatus.objects.get(pk=endpoint.pk).phase}")
                time.sleep(0.01)
            found.append(time.monotonic() - began)
    finally:
        watches.stop()
        nudges.put("")
        worker.join()
    return sorted(found)


def report(endpoints: int, how: str, found: tuple[float, float, float, float]) -> None:
    passes, requests, queries, cpu = found
    print(
        f"{endpoints:9} {how:8} {passes:9.2f} {requests:11.1f} {queries:10.1f}   "
        f"CPU {cpu / 10:.2f} % of a core",
        flush=True,
    )


def _pace(controllers: Any) -> None:
    """Run the controllers once a second instead of after each change: each pass reads all."""
    run = controllers._pass

    def paced(namespace: str) -> None:
        run(namespace)
        time.sleep(1.0)

    controllers._pass = paced


@contextmanager
def fleet_on_fake_cluster() -> Iterator[Fleet]:
    from tests.support.endpoints.cluster_harness import ClusterHarness
    from tests.support.kube.cluster import Cluster
    from tests.support.kube.fake.plane import FakePlane
    from tests.support.kube.fixtures import _played

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        plane = FakePlane(Path(folder))
        _pace(plane.controllers)
        plane.start()
        with _played(plane):
            cluster = Cluster("fake", plane)
            for number in range(8):
                cluster.node(f"big-{number}", "m5.24xlarge")
            yield Fleet(ClusterHarness(cluster, patch))
        plane.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoints", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--polled-up-to", type=int, default=100)
    parser.add_argument("--deaths", type=int, default=10)
    options = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    os.environ["EMBERLINE_OUTBOUND_ALLOW"] = "127.0.0.0/8"  # the fake API server
    with console():
        from console.clusters.watches import ClusterWatches
        from console.system.changes import announce
        from console.tasks import BaseTask

        ignore: Callable[..., None] = lambda *_, **__: None  # noqa: E731
        BaseTask.nudge = ignore  # type: ignore[method-assign]
        with fleet_on_fake_cluster() as fleet:
            print(f"endpoints {'':8}  passes/s  requests/s  queries/s")
            for size in sorted(options.endpoints):
                fleet.grow(size)
                if size <= options.polled_up_to:
                    report(size, "polled", measure(fleet, options.seconds))
                with watched(ClusterWatches(announce)):
                    report(size, "watched", measure(fleet, options.seconds, SETTLED_S))
            if options.deaths:
                found = deaths(fleet, min(options.deaths, max(options.endpoints)))
                print(f"death to event (s): {', '.join(f'{one:.2f}' for one in found)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
