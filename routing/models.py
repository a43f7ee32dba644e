"""Models: names of prompt prefixes, strategy canaries, recorded and imported traffic."""

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


class TracePiece(models.Model):
    """Some minutes of one router's traffic as it was recorded; `data` is gzip of keyed hashes and
    lengths. Pieces of one `stream` are read together; a stream stays within an hour.
    """

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="trace_pieces"
    )
    router = models.CharField(max_length=40)
    number = models.PositiveBigIntegerField()
    stream = models.PositiveBigIntegerField()
    hour = models.DateTimeField()
    first = models.DateTimeField()  # arrivals
    last = models.DateTimeField()
    requests = models.PositiveIntegerField()
    prompt_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    lost = models.PositiveIntegerField()  # requests not recorded before this piece
    size = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("router", "number")
        constraints = (
            models.UniqueConstraint(
                fields=("endpoint", "router", "number"), name="trace_piece_once"
            ),
        )
        indexes = (models.Index(fields=("endpoint", "hour"), name="trace_piece_hour"),)

    def __str__(self) -> str:
        return f"{self.router} {self.number}"


class TraceSource(models.Model):
    """A router process whose traffic is collected, and how far. `active`: it may have more."""

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="trace_sources"
    )
    router = models.CharField(max_length=40)
    url = models.CharField(max_length=200)
    collected = models.PositiveBigIntegerField(default=0)
    lost = models.PositiveBigIntegerField(default=0)
    active = models.BooleanField(default=True)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("seen_at",)
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "router"), name="trace_source_once"),
        )

    def __str__(self) -> str:
        return self.router


class ImportedTrace(models.Model):
    """A trace from a file; `data` is gzip of it as Emberline writes it."""

    endpoint = models.ForeignKey(
        "endpoints.Endpoint", on_delete=models.CASCADE, related_name="imported_traces"
    )
    name = models.CharField(max_length=80)
    source_format = models.CharField(max_length=16)
    imported_at = models.DateTimeField(default=timezone.now)
    imported_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    requests = models.PositiveIntegerField()
    sessions = models.PositiveIntegerField()
    prompt_tokens = models.PositiveBigIntegerField()
    output_tokens = models.PositiveBigIntegerField()
    duration_s = models.FloatField()
    size = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "name"), name="imported_trace_once"),
        )

    def __str__(self) -> str:
        return self.name
