"""What-if analyses: input, progress and result."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone


class WhatIfState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"


class WhatIfKind(models.TextChoices):
    ANALYSIS = "analysis", "Analysis"  # of one candidate
    SURVEY = "survey", "Survey"  # of many


LIVE = (WhatIfState.QUEUED, WhatIfState.RUNNING)


class WhatIf(models.Model):
    """Row of a what-if analysis. `present`, `candidate`: values of inputs.FIELDS; `candidates`:
    those of a survey, whose `candidate` is the present. `trace`: imported trace that is replayed
    instead of the recorded requests, "" for none. `result`: model.analysis.as_document or
    as_survey.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="whatifs"
    )
    kind = models.CharField(max_length=10, choices=WhatIfKind.choices, default=WhatIfKind.ANALYSIS)
    title = models.CharField(max_length=80, default="", blank=True)
    begin = models.DateTimeField()
    end = models.DateTimeField()
    trace = models.CharField(max_length=80, default="", blank=True)
    present = models.JSONField()
    candidate = models.JSONField()
    candidates = models.JSONField(default=list, blank=True)
    state = models.CharField(max_length=10, choices=WhatIfState.choices, default=WhatIfState.QUEUED)
    share = models.FloatField(default=0.0)
    stage = models.CharField(max_length=80, default="", blank=True)
    message = models.TextField(default="", blank=True)
    result = models.JSONField(default=dict, blank=True)
    cancel_at = models.DateTimeField(null=True, blank=True)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    touched_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (
            models.Index(fields=("endpoint", "-created_at"), name="whatif_latest"),
            models.Index(fields=("state",), name="whatif_state"),
        )

    def __str__(self) -> str:
        return f"what-if analysis of {self.endpoint_id}: {self.state}"

    def get_absolute_url(self) -> str:
        return reverse("whatif:run", args=[self.endpoint.name, self.pk])

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def percent(self) -> int:
        return round(100 * self.share)
