"""Advice: a survey of candidate changes with the prices and misses of its time."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class Advice(models.Model):
    """Row of a survey with its advice. `run`: the survey, an analysis of `insight.whatif`.
    `generation`: of the endpoint's spec that was surveyed. `facts`: prices, L2 tier and misses, see
    `facts.collect_facts`. `applied`: rows that were applied, by key, with the outcome, and layouts
    that callers may apply; `waiting`: one waits for recorded requests. Revisions up to
    `checked_generation` and the L2 tier of `checked_tier_generation` were compared with the rows;
    the layouts are next checked at `layouts_at`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey("endpoints.Endpoint", on_delete=models.CASCADE, related_name="+")
    run = models.OneToOneField("whatif.WhatIf", on_delete=models.CASCADE, related_name="+")
    generation = models.PositiveBigIntegerField()
    facts = models.JSONField(default=dict)
    applied = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    checked_generation = models.PositiveBigIntegerField()
    checked_tier_generation = models.PositiveBigIntegerField(default=0)
    layouts_at = models.DateTimeField(null=True, blank=True)
    waiting = models.BooleanField(default=False)

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (models.Index(fields=("endpoint", "-created_at"), name="advice_latest"),)

    def __str__(self) -> str:
        return f"advice on {self.endpoint_id}"
