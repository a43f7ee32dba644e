"""Benchmarks: job, progress and result. Traces and samples have a separate table."""

from __future__ import annotations

from django.db import models
from django.urls import reverse

from endpoints.runs import CancellableRun


class Benchmark(CancellableRun):
    """Run of a benchmark. `job` is generator.job.Job as JSON; `endpoint_facts` the endpoint's state
    at the start; `progress` and `result` come from the generator (player). `after` is the run that
    must end first. `left`: process or folder may still exist.
    """

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="benchmarks"
    )
    title = models.CharField(max_length=80, default="", blank=True)
    job = models.JSONField()
    endpoint_facts = models.JSONField(default=dict, blank=True)
    progress = models.JSONField(default=dict, blank=True)
    result = models.JSONField(default=dict, blank=True)
    simulated = models.BooleanField(default=False)
    trace_digest = models.CharField(max_length=16, default="", blank=True)
    host = models.CharField(max_length=120, default="", blank=True)
    left = models.BooleanField(default=False)
    after = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="then")

    class Meta(CancellableRun.Meta):
        indexes = (
            models.Index(fields=("endpoint", "-created_at"), name="benchmark_latest"),
            models.Index(fields=("state",), name="benchmark_state"),
        )
        constraints = (
            # Two runs at once would add load to each other.
            models.UniqueConstraint(
                fields=("endpoint",),
                condition=models.Q(state__in=("queued", "running")),
                name="one_live_benchmark_an_endpoint",
            ),
        )

    def __str__(self) -> str:
        return f"benchmark of {self.endpoint_id}: {self.state}"

    def get_absolute_url(self) -> str:
        return reverse("benchmarks:run", args=[self.endpoint.name, self.pk])


class BenchmarkData(models.Model):
    """Large data of a benchmark. `trace`: gzipped lines in Mooncake's format; `samples`: as packed
    by generator.files.
    """

    run = models.OneToOneField(
        Benchmark, on_delete=models.CASCADE, primary_key=True, related_name="data"
    )
    trace = models.BinaryField(default=b"")
    samples = models.BinaryField(default=b"")

    def __str__(self) -> str:
        return f"data of {self.run_id}"
