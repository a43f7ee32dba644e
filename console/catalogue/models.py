"""Added or changed instance types, and prices over time."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone

from console.catalogue.core.builtin import BUILTIN, GIB, Instance
from console.validators import between, plain_text

_NAME = RegexValidator(
    r"\A[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?\Z",
    "Invalid instance type name.",
    "invalid_name",
)


class InstanceType(models.Model):
    """Size and price of one kind of machine; overrides the built-in type of the same name."""

    name = models.CharField(
        "Name",
        max_length=63,
        primary_key=True,
        validators=[_NAME],
        help_text="Value of the node label node.kubernetes.io/instance-type.",
    )
    vcpus = models.PositiveIntegerField(
        "vCPUs", validators=between(1, 4096), help_text="As reported by the node."
    )
    memory_gib = models.FloatField(
        "Memory (GiB)", validators=between(0.5, 65_536), help_text="Per instance."
    )
    gpu = models.CharField(
        "GPU",
        max_length=40,
        blank=True,
        default="",
        validators=[plain_text],
        help_text="GPU model, such as H100; empty for none.",
    )
    gpus = models.PositiveIntegerField(
        "GPUs", default=0, validators=between(0, 16), help_text="Per instance; 0 for none."
    )
    gpu_memory_gib = models.FloatField(
        "Memory per GPU (GiB)",
        default=0,
        validators=between(0, 4096),
        help_text="As reported by the driver.",
    )
    price_usd_hour = models.FloatField(
        "Price (USD/h)",
        null=True,
        blank=True,
        validators=between(0, 100_000),
        help_text="On-demand price per instance in USD/h; empty: unknown.",
    )
    price_date = models.DateField(
        "Valid from",
        null=True,
        blank=True,
        help_text="First day of this price, such as 2026-11-21; earlier days keep their price.",
    )
    price_source = models.CharField(
        "Price source",
        max_length=200,
        blank=True,
        default="",
        validators=[plain_text],
        help_text="Origin of the price.",
    )
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if not self.gpus:
            self.gpu, self.gpu_memory_gib = "", 0.0
        elif not (self.gpu and self.gpu_memory_gib):
            text = "GPUs require a model and a memory size. Without GPUs, set their number to 0."
            field = "gpu_memory_gib" if self.gpu else "gpu"
            raise ValidationError({field: ValidationError(text, "incomplete")})
        if self.price_usd_hour is None:
            self.price_date = None
        elif self.price_date is None:
            raise ValidationError(
                {"price_date": ValidationError("A price requires its first day.", "incomplete")}
            )

    @property
    def origin(self) -> str:
        """Return built-in, changed (overridden) or added."""
        if self._state.adding:
            return "built-in"
        return "changed" if self.name in BUILTIN else "added"

    @property
    def prices(self) -> models.QuerySet[InstancePrice]:
        """Return the prices that were set, latest first."""
        rows = InstancePrice.objects.filter(name=self.name).select_related("changed_by")
        return rows.order_by("-since")

    @property
    def instance(self) -> Instance:
        if self._state.adding:
            return BUILTIN[self.name]
        return Instance(
            self.name,
            self.vcpus,
            int(self.memory_gib * GIB),
            self.gpu,
            self.gpus,
            int(self.gpu_memory_gib * GIB),
            self.price_usd_hour,
            self.price_date,
            self.price_source,
        )


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
