"""Latency and query count of each console page with a large fleet.

    python -m bench.console_speed [--endpoints 500] [--workers 10] [--times 20] [--limit-ms 150]

Seeds a temporary SQLite database and requests every page through Django in this process, without
network or a warm template cache. `cpu` is this process's CPU time, independent of other load;
`wall` is the latency. Exits with 1 if a page's p95 of CPU time exceeds the limit.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGES = (
    "/",
    "/overview/now",
    "/overview/numbers",
    "/overview/money",
    "/endpoints/",
    "/endpoints/?page=9&sort=-phase",
    "/endpoints/?q=llm-3&phase=Ready&strategy=prefixaware",
    "/search/?q=llm-25",
    "/endpoints/new/",
    "/endpoints/llm-{0}/",
    "/endpoints/llm-{0}/live/",
    "/endpoints/llm-{0}/head/",
    "/endpoints/llm-{0}/workers/",
    "/endpoints/llm-{0}/cache/",
    "/endpoints/llm-{0}/events/",
    "/endpoints/llm-{0}/configuration/",
    "/endpoints/llm-{0}/configuration/compare/",
    "/endpoints/llm-{0}/revisions/",
    "/endpoints/llm-{0}/access/",
    "/endpoints/llm-{0}/settings/",
    "/endpoints/llm-{0}/edit/",
    "/playground/endpoints/llm-{0}/",
    "/routing/",
    "/cache/",
    "/benchmarks/",
    "/dashboards/",
    "/dashboards/endpoints/llm-{0}/",
    "/costs/",
    "/costs/?by=team",
    "/costs/reports/2026-11/",
    "/costs/budgets/",
    "/alerts/",
    "/alerts/rules/",
    "/keys/",
    "/clusters/",
    "/instance-types/",
    "/audit/",
    "/access/",
    "/access/teams/",
    "/settings/",
    "/about/",
    "/api/v1/endpoints/",
)
PARTS = ("/endpoints/", "/endpoints/llm-{0}/workers/")
PHASES = ("Ready",) * 16 + ("Degraded", "Failed", "Provisioning", "Paused")


@dataclass(frozen=True, slots=True)
class Result:
    label: str
    wall_ms: list[float]
    cpu_ms: list[float]
    queries: int
    size: int


@contextmanager
def console() -> Iterator[None]:
    """Set up a console in this process."""
    with tempfile.TemporaryDirectory(prefix="emberline-speed-") as folder:
        os.environ |= {
            "EMBERLINE_VAR": folder,
            "DATABASE_URL": f"sqlite:///{folder}/speed.sqlite3",
            "REDIS_URL": "memory://",
            "PROMETHEUS_URL": "",
            "EMBERLINE_PROVISIONER": "fake",
            "WORKERS": "simulated",
            "EMBERLINE_ALLOWED_HOSTS": "testserver,localhost,127.0.0.1",
            "EMBERLINE_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "console.settings",
        }
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield


def seed(endpoints: int, workers: int) -> Any:
    """Create a fleet and return a client logged in as an admin."""
    from django.test import Client

    from console.accounts.models import User
    from endpoints import actions
    from endpoints.models import Endpoint

    ada = User.objects.create_user("ada", password="x", role="admin")
    data = {"name": "first", "model": "smollm2-135m-instruct", "engine": "simulated"}
    first = actions.create(ada, data)
    made = [
        Endpoint(name=f"llm-{n}", spec={**first.spec, "name": f"llm-{n}", "replicas": workers})
        for n in range(endpoints)
    ]
    Endpoint.objects.bulk_create(made)
    _observe(made, workers)
    _remember(made, ada)
    client = Client()
    client.force_login(ada)
    return client


def _observe(made: list[Any], workers: int) -> None:
    """Write the status that a reconciler would write."""
    from django.utils import timezone

    from endpoints.models import EndpointStatus, Replica

    EndpointStatus.objects.bulk_create(
        EndpointStatus(
            endpoint=one,
            phase=PHASES[n % len(PHASES)],
            reason="Serving",
            message=f"{workers} of {workers} workers serve.",
            observed_generation=1,
            ready_replicas=workers,
            served_once=True,
            served_generation=1,
            url=f"http://10.0.{n // 250}.{n % 250}:9000",
            steps=[{"code": "Accepted", "state": "done", "message": ""} for _ in range(1)],
        )
        for n, one in enumerate(made)
    )
    Replica.objects.bulk_create(
        (
            Replica(
                endpoint=one,
                name=f"{one.name}-worker-{index}",
                index=index,
                state="ready",
                url=f"http://10.1.0.1:{8000 + index}",
                simulated=True,
                started_at=timezone.now(),
            )
            for one in made
            for index in range(workers)
        ),
        batch_size=500,
    )


def _remember(made: list[Any], ada: Any) -> None:
    """Create revisions, events and audit entries."""
    from console.audit.record import record
    from endpoints.models import EndpointEvent, Revision

    Revision.objects.bulk_create(
        (
            Revision(endpoint=one, number=number, spec=one.spec, verb="update", author="ada")
            for one in made
            for number in (1, 2, 3)
        ),
        batch_size=500,
    )
    EndpointEvent.objects.bulk_create(
        (
            EndpointEvent(endpoint=one, kind="WorkerReady", message=f"worker {n} is ready")
            for one in made
            for n in range(20)
        ),
        batch_size=500,
    )
    for one in made:
        record(ada, "update", f"endpoint/{one.name}", {"replicas": [1, 10]})


def ask(client: Any, path: str, times: int, *, part: bool = False) -> Result:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    headers = {"HX-Request": "true"} if part else {}
    wall, cpu = [], []
    answer = client.get(path, headers=headers)
    if answer.status_code != 200:
        raise SystemExit(f"{path} answered {answer.status_code}")
    for _ in range(times):
        began, began_cpu = time.perf_counter(), time.process_time()
        client.get(path, headers=headers)
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - began_cpu))
    with CaptureQueriesContext(connection) as seen:
        client.get(path, headers=headers)
    label = f"{path} (part)" if part else path
    return Result(label, sorted(wall), sorted(cpu), len(seen), len(answer.content))


def at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoints", type=int, default=500)
    parser.add_argument("--workers", type=int, default=10, help="of each endpoint")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--limit-ms", type=float, default=150.0)
    options = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    with console():
        client = seed(options.endpoints, options.workers)
        from django.core.checks.urls import check_resolver
        from django.urls import get_resolver

        check_resolver(get_resolver())  # as in console.asgi
        # Seeded objects are not part of a server's memory: exclude them from garbage collection.
        gc.collect()
        gc.freeze()
        print(
            f"{options.endpoints} endpoints, {options.endpoints * options.workers} workers, SQLite"
        )
        print(
            f"{'page':56} {'cpu p50':>8} {'cpu p95':>8} {'wall p95':>9} {'queries':>8} {'KiB':>6}"
        )
        slow = []
        for path, part in [*((p, False) for p in PAGES), *((p, True) for p in PARTS)]:
            path = path.format(options.endpoints // 2)
            one = ask(client, path, options.times, part=part)
            print(
                f"{one.label:56} {at(one.cpu_ms, 0.5):8.1f} {at(one.cpu_ms, 0.95):8.1f} "
                f"{at(one.wall_ms, 0.95):9.1f} {one.queries:8} {one.size / 1024:6.0f}",
                flush=True,
            )
            if at(one.cpu_ms, 0.95) > options.limit_ms:
                slow.append(one.label)
    print("above the limit: " + (", ".join(slow) or "none"))
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
