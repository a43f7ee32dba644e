"""Rows of an endpoint's router: names of prompt prefixes and strategy canaries."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone


class PrefixName(models.Model):
    """Prefix name; `digest` is the keyed hash reported by the endpoint's routers."""

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="prefix_names"
    )
    digest = models.CharField(max_length=16)
    name = models.CharField(max_length=80)
    named_at = models.DateTimeField(default=timezone.now)
    named_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name", "digest")
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "digest"), name="prefix_name_once"),
        )

    def __str__(self) -> str:
        return self.name


class CanaryState(models.TextChoices):
    RUNNING = "running", "Running"
    STOPPED = "stopped", "Stopped"
    PROMOTED = "promoted", "Promoted"


class Canary(models.Model):
    """A candidate strategy for a share of an endpoint's sessions; at most one runs.

    `control`: strategy of the endpoint at the start. `session_key` "": that of the endpoint.
    `reports`: by router process, its latest cumulative statistics. `history`: results over time
    (canary.collection). `routers`: most that reported at a time. `revision`: made by the promotion.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="canaries"
    )
    state = models.CharField(
        max_length=10, choices=CanaryState.choices, default=CanaryState.RUNNING
    )
    strategy = models.CharField(max_length=20)
    control = models.CharField(max_length=20)
    share = models.FloatField()
    session_key = models.CharField(max_length=100, default="", blank=True)
    settle_s = models.FloatField(default=60.0)
    started_at = models.DateTimeField(default=timezone.now)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_reason = models.CharField(max_length=300, default="", blank=True)
    revision = models.PositiveBigIntegerField(null=True, blank=True)
    verdict = models.CharField(max_length=20, default="collecting")
    message = models.CharField(max_length=300, default="", blank=True)
    error = models.CharField(max_length=300, default="", blank=True)
    routers = models.PositiveSmallIntegerField(default=0)
    reports = models.JSONField(default=dict, blank=True)
    history = models.JSONField(default=list, blank=True)
    collected_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-started_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("endpoint",), condition=models.Q(state="running"), name="one_running_canary"
            ),
        )

    def __str__(self) -> str:
        return f"{self.control} or {self.strategy}"

    @property
    def is_running(self) -> bool:
        return self.state == CanaryState.RUNNING
