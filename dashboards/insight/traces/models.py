"""Rows of recorded and imported traffic. Their tables keep the names they had in routing."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


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
        db_table = "routing_tracepiece"
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
        db_table = "routing_tracesource"
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
        db_table = "routing_importedtrace"
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "name"), name="imported_trace_once"),
        )

    def __str__(self) -> str:
        return self.name
