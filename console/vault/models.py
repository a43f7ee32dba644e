"""Encrypted secrets."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class SealedText(models.Model):
    name = models.CharField(max_length=200, primary_key=True)
    sealed = models.TextField()
    changed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name
