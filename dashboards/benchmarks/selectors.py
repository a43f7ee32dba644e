"""Read benchmarks for pages and the API. Lists omit traces and samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from console.accounts.permissions import Somebody, visible
from console.core.errors import Problem, Refused
from dashboards.benchmarks.generator import files
from dashboards.benchmarks.generator.samples import RequestSample
from dashboards.benchmarks.models import LIVE, Benchmark, BenchmarkData
from endpoints.models import Endpoint


def runs(viewer: Somebody) -> QuerySet[Benchmark]:
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return visible(rows, viewer, "endpoint__team").order_by("-created_at", "-id")


def of_endpoint(name: str) -> QuerySet[Benchmark]:
    """Return the endpoint's runs; the gate has checked access to the endpoint."""
    rows = Benchmark.objects.select_related("endpoint", "started_by")
    return rows.filter(endpoint__name=name).order_by("-created_at", "-id")


def one(name: str, run: UUID) -> Benchmark:
    rows = Benchmark.objects.select_related(
        "endpoint__status", "endpoint__team", "started_by", "after__endpoint"
    )
    found = rows.filter(endpoint__name=name, pk=run).first()
    if found is None:
        raise no_run(run)
    return found


def seen_by(viewer: Somebody, run: Any) -> Benchmark:
    try:
        wanted = run if isinstance(run, UUID) else UUID(str(run))
    except ValueError:
        raise no_run(run) from None
    found = runs(viewer).filter(pk=wanted).first()
    if found is None:
        raise no_run(run)
    return found


def live_count() -> int:
    return Benchmark.objects.filter(state__in=LIVE).count()


def live_of(endpoint: Endpoint) -> Benchmark | None:
    return endpoint.benchmarks.filter(state__in=LIVE).first()


def samples(run: Benchmark) -> list[RequestSample]:
    kept = BenchmarkData.objects.filter(run=run).values_list("samples", flat=True).first()
    return files.unpack(bytes(kept)) if kept else []


def followers(run: Benchmark) -> Iterable[Benchmark]:
    return run.then.select_related("endpoint").order_by("created_at")


def no_run(run: Any) -> Refused:
    remedy = "Choose one of the list of benchmarks."
    problem = Problem("run", str(run)[:80], "There is no such benchmark.", remedy, "not_found")
    return Refused(problem, status_code=404)
