"""Read benchmarks for pages and the API. Lists omit traces and samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from console.accounts.permissions import Somebody, filter_visible
from console.core.errors import Problem, Refused
from dashboards.benchmarks.generator import files
from dashboards.benchmarks.generator.samples import RequestSample
from dashboards.benchmarks.models import LIVE, Benchmark, BenchmarkData
from endpoints.models import Endpoint


def list_runs(viewer: Somebody) -> QuerySet[Benchmark]:
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return filter_visible(rows, viewer, "endpoint__team").order_by("-created_at", "-id")


def list_endpoint_runs(name: str) -> QuerySet[Benchmark]:
    """Return the endpoint's runs; the gate has checked access to the endpoint."""
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return rows.filter(endpoint__name=name).order_by("-created_at", "-id")


def get_run(name: str, run: UUID) -> Benchmark:
    rows = Benchmark.objects.select_related(
        "endpoint__status", "endpoint__team", "started_by", "after__endpoint"
    )
    benchmark = rows.filter(endpoint__name=name, pk=run).first()
    if benchmark is None:
        raise make_not_found(run)
    return benchmark


def get_visible_run(viewer: Somebody, run: Any) -> Benchmark:
    try:
        wanted = run if isinstance(run, UUID) else UUID(str(run))
    except ValueError:
        raise make_not_found(run) from None
    visible_run = list_runs(viewer).filter(pk=wanted).first()
    if visible_run is None:
        raise make_not_found(run)
    return visible_run


def count_live() -> int:
    return Benchmark.objects.filter(state__in=LIVE).count()


def get_live_run(endpoint: Endpoint) -> Benchmark | None:
    return endpoint.benchmarks.filter(state__in=LIVE).first()


def read_samples(run: Benchmark) -> list[RequestSample]:
    benchmark_data = BenchmarkData.objects.filter(run=run).values_list("samples", flat=True).first()
    return files.unpack(bytes(benchmark_data)) if benchmark_data else []


def list_followers(run: Benchmark) -> Iterable[Benchmark]:
    return run.then.select_related("endpoint").order_by("created_at")


def make_not_found(run: Any) -> Refused:
    remedy = "Choose one from the list of benchmarks."
    problem = Problem("run", str(run)[:80], "Benchmark not found.", remedy, "not_found")
    return Refused(problem, status_code=404)
