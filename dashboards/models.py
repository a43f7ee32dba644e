"""Rows of cache proofs and calibrations."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from endpoints.runs import EndpointRun


class ProofRun(EndpointRun):
    """Run of the cache proof. `shots` and `verdicts` hold cache_proof.Shot and ProofStepVerdict as
    JSON.
    """

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="proof_runs"
    )
    generation = models.PositiveBigIntegerField()
    simulated = models.BooleanField(default=False)
    proved = models.BooleanField(default=False)
    shots = models.JSONField(default=list, blank=True)
    verdicts = models.JSONField(default=list, blank=True)

    class Meta(EndpointRun.Meta):
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


class CalibrationEnd(models.TextChoices):
    """Reason why a calibration ended without a result."""

    TRAFFIC = "traffic", "Requests arrived"
    TIME = "time_limit", "Time limit"
    TOKENS = "token_limit", "Token limit"
    NOT_READY = "not_ready", "Endpoint not ready"
    SWITCHED_OFF = "switched_off", "Automatic calibration switched off"
    NO_RESULT = "no_result", "No usable measurement"
    CRASHED = "crashed", "Background task failed"


class Calibration(EndpointRun):
    """Measured prefill time: worker seconds per additional prompt token.

    `settings_hash` identifies the worker settings of the measurement. `measured_as` identifies the
    settings that determine prefill time (costs.formulas.price_terms); the result applies to all
    endpoints with the same value. `reason` is set when it ended without a result.
    """

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="calibrations"
    )
    simulated = models.BooleanField(default=False)
    settings_hash = models.CharField(max_length=16, default="", blank=True)
    measured_as = models.CharField(max_length=16, default="", blank=True)
    worker = models.CharField(max_length=80, default="", blank=True)
    samples = models.JSONField(default=list, blank=True)
    seconds_per_token = models.FloatField(null=True, blank=True)
    automatic = models.BooleanField(default=False)
    reason = models.CharField(max_length=12, choices=CalibrationEnd.choices, default="", blank=True)

    class Meta(EndpointRun.Meta):
        constraints = (
            models.UniqueConstraint(
                fields=("automatic",),
                condition=models.Q(automatic=True, state__in=("queued", "running")),
                name="one_live_automatic_calibration",
            ),
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


class CalibrationSwitch(models.Model):
    """Automatic calibration on or off: for one endpoint, or (without one) for all others.

    Without a row the default of the installation applies.
    """

    endpoint = models.OneToOneField(
        "endpoints.Endpoint", null=True, on_delete=models.CASCADE, related_name="+"
    )
    enabled = models.BooleanField()
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    def __str__(self) -> str:
        return f"automatic calibration of {self.endpoint_id or 'all'}: {self.enabled}"
