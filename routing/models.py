"""Models: names of prompt prefixes, written by `actions`."""

from __future__ import annotations

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
