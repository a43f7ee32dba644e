"""Read benchmarks for pages and the API. Lists omit traces and samples."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import QuerySet

from console.accounts.permissions import Somebody, filter_visible
from dashboards.benchmarks.generator import files
from dashboards.benchmarks.generator.samples import RequestSample
from dashboards.benchmarks.models import Benchmark, BenchmarkData
from endpoints.models import Endpoint
from endpoints.runs import LIVE, find_run


def list_runs(viewer: Somebody) -> QuerySet[Benchmark]:
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return filter_visible(rows, viewer, "endpoint__team")


def list_endpoint_runs(name: str) -> QuerySet[Benchmark]:
    """Return the endpoint's runs; the gate has checked access to the endpoint."""
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return rows.filter(endpoint__name=name)


def get_run(name: str, run: UUID) -> Benchmark:
    rows = Benchmark.objects.select_related(
        "endpoint__status", "endpoint__team", "started_by", "after__endpoint"
    )
    return find_run(rows.filter(endpoint__name=name), run, "benchmark")


def get_visible_run(viewer: Somebody, run: object) -> Benchmark:
    return find_run(list_runs(viewer), run, "benchmark")


def count_live() -> int:
    return Benchmark.list_live().count()


def get_live_run(endpoint: Endpoint) -> Benchmark | None:
    return endpoint.benchmarks.filter(state__in=LIVE).first()


def read_samples(run: Benchmark) -> list[RequestSample]:
    benchmark_data = BenchmarkData.objects.filter(run=run).values_list("samples", flat=True).first()
    return files.unpack(bytes(benchmark_data)) if benchmark_data else []


def list_followers(run: Benchmark) -> Iterable[Benchmark]:
    return run.then.select_related("endpoint").order_by("created_at")
