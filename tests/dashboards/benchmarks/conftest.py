"""Two simulated workers behind a real router, and their endpoint."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.conf import settings

from dashboards.benchmarks import lifecycle
from dashboards.benchmarks.models import Benchmark
from endpoints.models import Endpoint
from endpoints.runs import LIVE
from tests.support.cachenode import ROOT
from tests.support.console import make_endpoint, pretend_ready
from tests.support.ports import free_port
from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until


@dataclass(frozen=True)
class Fleet:
    url: str
    workers: dict[str, str]

    def endpoint(self, name: str = "demo", **spec: object) -> Endpoint:
        return pretend_ready(make_endpoint(name, **spec), url=self.url, workers=self._named(name))

    def _named(self, name: str) -> dict[str, str]:
        return {key.replace("demo", name): url for key, url in self.workers.items()}


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    workers = [SimulatedWorker(folder) for _ in range(2)]
    port = free_port()
    argv = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{port}"]
    argv += ["--strategy", "prefixaware", "--model", "demo"]
    for worker in workers:
        argv += ["--worker", f"http://127.0.0.1:{worker.port}"]
    with (folder / "router.log").open("wb") as log:
        router = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log, env=os.environ)
    try:
        until(lambda: b"200" in _request_health(port), what="router")
        named = {f"demo-worker-{n}": f"http://127.0.0.1:{w.port}" for n, w in enumerate(workers)}
        yield Fleet(f"http://127.0.0.1:{port}", named)
    finally:
        router.kill()
        router.wait(60)
        for worker in workers:
            worker.close()


def _request_health(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as peer:
            peer.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            return peer.recv(100)
    except OSError:
        return b""


@pytest.fixture
def tidy(transactional_db: None) -> Iterator[None]:
    """Whatever a test did, no generator of it is left."""
    yield
    Benchmark.objects.filter(state__in=LIVE).update(cancel_at="2026-01-01T00:00:00Z")
    until(lambda: swept() and not Benchmark.objects.filter(left=True).exists(), what="tidied")
    shutil.rmtree(settings.EMBERLINE.var / "benchmarks", ignore_errors=True)


def swept() -> bool:
    lifecycle.sweep()
    return True


def passes(run: Benchmark, *states: str) -> Benchmark:
    """Sweeps until the run is in one of these states."""

    def there() -> bool:
        lifecycle.sweep()
        run.refresh_from_db()
        return run.state in states

    try:
        until(there, 60)
    except AssertionError as late:
        raise AssertionError(f"{run.state}: {run.message} {run.progress}") from late
    return run
