"""What-if analyses: input, progress and result."""

from __future__ import annotations

from django.db import models
from django.urls import reverse

from endpoints.runs import CancellableRun


class WhatIfKind(models.TextChoices):
    ANALYSIS = "analysis", "Analysis"  # of one candidate
    SURVEY = "survey", "Survey"  # of many


class WhatIf(CancellableRun):
    """Row of a what-if analysis. `present`, `candidate`: values of inputs.FIELDS; `candidates`:
    those of a survey, whose `candidate` is the present. `trace`: imported trace that is replayed
    instead of the recorded requests, "" for none. `result`: model.analysis.as_document or
    as_survey.
    """

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
    share = models.FloatField(default=0.0)
    result = models.JSONField(default=dict, blank=True)

    class Meta(CancellableRun.Meta):
        indexes = (
            models.Index(fields=("endpoint", "-created_at"), name="whatif_latest"),
            models.Index(fields=("state",), name="whatif_state"),
        )

    def __str__(self) -> str:
        return f"what-if analysis of {self.endpoint_id}: {self.state}"

    def get_absolute_url(self) -> str:
        return reverse("whatif:run", args=[self.endpoint.name, self.pk])

    @property
    def percent(self) -> int:
        return round(100 * self.share)
