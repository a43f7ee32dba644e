"""Rows of cache proofs and calibrations."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class RunState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"


LIVE = (RunState.QUEUED, RunState.RUNNING)


class EndpointRun(models.Model):
    """A background run on an endpoint. `touched_at` is updated while it makes progress."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    state = models.CharField(max_length=10, choices=RunState.choices, default=RunState.QUEUED)
    stage = models.CharField(max_length=120, default="", blank=True)
    simulated = models.BooleanField(default=False)
    message = models.TextField(default="", blank=True)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    touched_at = models.DateTimeField(default=timezone.now)

    class Meta:
        abstract = True

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @classmethod
    def claim(cls, run_id: str) -> bool:
        """Begin a queued run; False if another process did."""
        queued = cls._default_manager.filter(pk=run_id, state=RunState.QUEUED)
        return queued.update(state=RunState.RUNNING, touched_at=timezone.now()) == 1

    @classmethod
    def update_running(cls, run_id: str, **fields: Any) -> None:
        """Update a run while it is RUNNING: one that was failed as abandoned keeps that state."""
        running = cls._default_manager.filter(pk=run_id, state=RunState.RUNNING)
        running.update(touched_at=timezone.now(), **fields)


class ProofRun(EndpointRun):
    """`shots` and `verdicts` hold cache_proof.Shot and ProofStepVerdict as JSON."""

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="proof_runs"
    )
    generation = models.PositiveBigIntegerField()
    proved = models.BooleanField(default=False)
    shots = models.JSONField(default=list, blank=True)
    verdicts = models.JSONField(default=list, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        indexes = (models.Index(fields=("endpoint", "-created_at"), name="proof_latest"),)
        constraints = (
            # Two proofs at once would warm each other's caches.
            models.UniqueConstraint(
                fields=("endpoint",),
                condition=models.Q(state__in=("queued", "running")),
                name="one_live_proof_an_endpoint",
            ),
        )

    def __str__(self) -> str:
        return f"proof of {self.endpoint_id}: {self.state}"


class Calibration(EndpointRun):
    """Measured prefill time: worker seconds per additional prompt token.

    `settings_hash` identifies the worker settings of the measurement. `measured_as` identifies the
    settings that determine prefill time (costs.formulas.price_terms); the result applies to all
    endpoints with the same value.
    """

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="calibrations"
    )
    settings_hash = models.CharField(max_length=16, default="", blank=True)
    measured_as = models.CharField(max_length=16, default="", blank=True)
    worker = models.CharField(max_length=80, default="", blank=True)
    samples = models.JSONField(default=list, blank=True)
    seconds_per_token = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            # Two calibrations at once would add load to each other.
            models.UniqueConstraint(
                fields=("endpoint",),
                condition=models.Q(state__in=("queued", "running")),
                name="one_live_calibration_an_endpoint",
            ),
        )

    def __str__(self) -> str:
        return f"calibration of {self.endpoint_id}: {self.state}"

    @property
    def milliseconds(self) -> float:
        return 1000 * (self.seconds_per_token or 0.0)
