"""Per-user page settings; read and written by `preferences` only."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Preference(models.Model):
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="preferences"
    )
    key = models.CharField(max_length=60)
    value = models.JSONField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("user", "key"), name="one_preference_a_key"),
        )

    def __str__(self) -> str:
        return f"{self.key} of {self.user_id}"
