"""Added or changed instance types and their price history; written by `actions` only."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.catalogue.core.builtin import Instance


class InstanceType(models.Model):
    """Overrides the built-in type of the same name."""

    name = models.CharField(max_length=63, primary_key=True)
    vcpus = models.PositiveIntegerField()
    memory_bytes = models.PositiveBigIntegerField()
    gpu = models.CharField(max_length=40, blank=True, default="")
    gpus = models.PositiveIntegerField(default=0)
    gpu_bytes = models.PositiveBigIntegerField(default=0)
    price_usd_hour = models.FloatField(null=True, blank=True)
    price_date = models.DateField(null=True, blank=True)
    price_source = models.CharField(max_length=200, blank=True, default="")
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def instance(self) -> Instance:
        return Instance(**{name: getattr(self, name) for name in Instance.__dataclass_fields__})


class InstancePrice(models.Model):
    """Price from the day `since` (UTC) until the next row; None means unknown."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=63)
    since = models.DateField()
    price_usd_hour = models.FloatField(null=True, blank=True)
    source = models.CharField(max_length=200, blank=True, default="")
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name", "-since")
        constraints = (models.UniqueConstraint(fields=("name", "since"), name="one_price_a_day"),)

    def __str__(self) -> str:
        return f"{self.name} from {self.since} on"
