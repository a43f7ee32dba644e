"""Stored responses to create requests with an Idempotency-Key."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class GivenAnswer(models.Model):
    caller = models.CharField(max_length=80)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(default=0)
    sealed = models.TextField(default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("caller", "key"), name="one_answer_a_key"),)

    def __str__(self) -> str:
        return f"{self.caller}: {self.status}"
