"""Cost of an idle console: background work at 1 to 500 endpoints, and CPU of each process.

    python -m bench.idle_console [--endpoints 1 10 100 500] [--seconds 120] [--polled-up-to 500]
    python -m bench.idle_console --live VAR [--seconds 60] [--kill demo --times 5]

The first form runs beat's schedule and all its tasks in this process in virtual time, on a
temporary SQLite database and simulated workers, once as if nothing were announced (each endpoint
observed every 3 s, each sweep sent) and once as on one machine. Tasks that query routers or
Prometheus are excluded. The second form reads the CPU time of the processes of a running console;
with `--kill` it kills workers of that endpoint and waits for the event in the database.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from bench.console_speed import console
from console.provisioners.fake import FakeProvisioner

EXCLUDED = ("routing.tasks.collect_usage", "dashboards.notify.tasks.look")
KINDS = {
    "uvicorn": "web",
    "celery_app worker": "celery-worker",
    "celery_app beat": "celery-beat",
    "local.daemon": "supervisord",
    "prometheus": "prometheus",
    "valkey": "valkey",
    "routing.engine": "routers",
    "simulated_worker": "workers",
    "cachetier.engine": "cache nodes",
    "processkit.launch": "launchers",
}
DEADLINE_S = 60.0
FAKE: Any = FakeProvisioner()
"""In memory: the workloads outlive a change of the mode."""


class Console:
    """The background work of a console in virtual time."""

    def __init__(self, *, announced: bool) -> None:
        from console import tasks
        from console.celery_app import app
        from console.provisioners import registry
        from endpoints.lifecycle.components import all_components
        from endpoints.reconcile.reconciler import Reconciler

        app.loader.import_default_modules()
        self.app = app
        self.announced = announced
        self.now = datetime.now(UTC)
        self.counts: Counter[str] = Counter()
        self.messages: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self.fake = FAKE
        self.fake.announces = announced
        registry._MAKERS["fake"] = lambda _var: self.fake
        for verb in ("apply", "observe"):
            setattr(self.fake, verb, self._counted(getattr(type(self.fake), verb)))
        made = Reconciler(lambda _spec: self.fake, all_components(), lambda *_: "")
        Reconciler.configured = classmethod(lambda _cls: made)  # type: ignore[method-assign,assignment]
        tasks.BaseTask.nudge = lambda task, *args, **_: self.messages.append((task, args))  # type: ignore[method-assign]
        reconcile_endpoint = app.tasks["endpoints.tasks.reconcile_endpoint"]
        run = reconcile_endpoint.run

        def counted_pass(endpoint_id: str) -> None:
            self.counts["passes"] += 1
            run(endpoint_id)

        reconcile_endpoint.run = counted_pass

    def _counted(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.counts["calls"] += 1
            return verb(self.fake, *args)

        return call

    def run(self, seconds: float) -> None:
        schedule = {
            name: entry["schedule"]
            for name, entry in self.app.conf.beat_schedule.items()
            if name not in EXCLUDED and entry["schedule"] <= 60
        }
        end, due = self.now + timedelta(seconds=seconds), dict.fromkeys(schedule, self.now)
        while True:
            name = min(due, key=lambda one: due[one])
            if due[name] >= end:
                break
            self.now = max(self.now, due[name])
            due[name] += timedelta(seconds=schedule[name])
            self._beat(self.app.tasks[name])
        self.now = end

    def _beat(self, task: Any) -> None:
        if self.announced and task.has_work is not None and not task.has_work():
            return
        self.messages.append((task, ()))
        while self.messages:
            found, args = self.messages.popleft()
            self.counts["messages"] += 1
            found.run(*args)


@contextmanager
def virtual_time(running: Console) -> Iterator[None]:
    from django.utils import timezone

    real = timezone.now
    timezone.now = lambda: running.now
    try:
        yield
    finally:
        timezone.now = real


def measure(endpoints: int, seconds: float, *, announced: bool) -> tuple[float, ...]:
    """Return passes, messages, provisioner calls, queries and CPU (ms) per second, when idle."""
    from django.db import connection

    from endpoints.models import EndpointStatus

    running = Console(announced=announced)
    queries = 0

    def count(execute: Any, *args: Any) -> Any:
        nonlocal queries
        queries += 1
        return execute(*args)

    with virtual_time(running):
        EndpointStatus.objects.update(due_at=running.now)
        for _ in range(20):
            running.run(6.0)
            ready = EndpointStatus.objects.filter(phase="Ready").count()
            if ready == endpoints:
                break
        else:
            raise SystemExit(f"{ready} of {endpoints} endpoints are Ready")
        running.run(30.0)
        running.counts.clear()
        began = time.process_time()
        with connection.execute_wrapper(count):
            running.run(seconds)
        cpu = time.process_time() - began
    found = (*(running.counts[name] for name in ("passes", "messages", "calls")), queries)
    return (*(number / seconds for number in found), 1000 * cpu / seconds)


def seed(endpoints: int) -> None:
    from endpoints import actions
    from endpoints.models import Endpoint

    present = Endpoint.objects.count()
    for number in range(present, endpoints):
        data = {"name": f"llm-{number}", "model": "smollm2-135m-instruct", "engine": "simulated"}
        actions.create(actions.SYSTEM, {**data, "replicas": 2})


def simulate(sizes: list[int], seconds: float, polled_up_to: int) -> None:
    print(
        f"{'endpoints':>9} {'':10} {'passes/s':>9} {'tasks/s':>8} {'calls/s':>8} {'queries/s':>10}"
    )
    with console():
        for size in sorted(sizes):
            seed(size)
            for announced in (False, True) if size <= polled_up_to else (True,):
                found = measure(size, seconds, announced=announced)
                label = "announced" if announced else "polled"
                print(
                    f"{size:9} {label:10} {found[0]:9.2f} {found[1]:8.2f} {found[2]:8.2f} "
                    f"{found[3]:10.1f}   CPU {found[4] / 10:.2f} % of a core",
                    flush=True,
                )


def processes(var: Path) -> dict[int, tuple[str, float]]:
    """Return kind and CPU time (s) of each process of the console in `var`, by pid."""
    found = {}
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("EMBERLINE_SUPERVISED") == str(var)
            if not mine and process.cwd() != str(var / "run"):
                continue
            line, spent = " ".join(process.cmdline()), process.cpu_times()
        except psutil.Error:
            continue
        kind = next((KINDS[word] for word in KINDS if word in line), "other")
        found[process.pid] = (kind, spent.user + spent.system)
    return found


def watch(var: Path, seconds: float) -> None:
    before, began = processes(var), time.monotonic()
    time.sleep(seconds)
    spent, count = Counter[str](), Counter[str]()
    for pid, (kind, cpu) in processes(var).items():
        spent[kind] += cpu - before.get(pid, (kind, 0.0))[1]  # type: ignore[assignment]
        count[kind] += 1
    for kind, cpu in spent.most_common():
        print(
            f"{kind:14} {count[kind]:4} {100 * cpu / (time.monotonic() - began):6.2f} % of a core"
        )


def kill(var: Path, name: str, times: int) -> None:
    """Kill a worker `times` times; print the seconds until the console has recorded it."""
    os.environ |= {"EMBERLINE_VAR": str(var), "DJANGO_SETTINGS_MODULE": "console.settings"}
    import django

    django.setup()
    from django.db.models import Sum

    from endpoints.models import Endpoint, EndpointEvent, EndpointStatus, Replica

    endpoint = Endpoint.objects.get(name=name)

    def until(condition: Callable[[], bool]) -> float:
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > DEADLINE_S:
                raise SystemExit("the console does not notice")
            time.sleep(0.01)
        return time.monotonic() - began

    def phase() -> str:
        return str(EndpointStatus.objects.values_list("phase", flat=True).get(endpoint=endpoint))

    def losses() -> int:
        rows = EndpointEvent.objects.filter(endpoint=endpoint, kind__startswith="Worker")
        return int(rows.aggregate(count=Sum("count"))["count"] or 0)

    found = []
    for _ in range(times):
        until(lambda: phase() == "Ready")
        time.sleep(5.0)  # settled
        before = losses()
        os.kill(Replica.objects.filter(endpoint=endpoint).first().pid, signal.SIGKILL)  # type: ignore[union-attr]
        found.append(until(lambda known=before: losses() > known))
    print(f"death to event (s): {', '.join(f'{one:.2f}' for one in sorted(found))}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoints", type=int, nargs="+", default=[1, 10, 100, 500])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--polled-up-to", type=int, default=500, help="endpoints")
    parser.add_argument("--live", type=Path, metavar="VAR")
    parser.add_argument("--kill", metavar="ENDPOINT")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    if options.live is None:
        simulate(options.endpoints, options.seconds, options.polled_up_to)
        return 0
    watch(options.live.resolve(), options.seconds)
    if options.kill:
        kill(options.live.resolve(), options.kill, options.times)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
