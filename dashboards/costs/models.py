"""Rows of daily usage, prices and budgets, kept longer than Prometheus' retention.

`ledger.hours` writes MeasuredHour and CostDay, `actions` TierPrice and Budget, `budgets`
BudgetCrossing.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone

from console.validators import between, plain_text

MAX_USD = 1_000_000_000


class MeasuredHour(models.Model):
    """Hour (UTC) queried from Prometheus. `covered_s`: seconds with any scrape; the rest is
    unknown.
    """

    hour = models.DateTimeField(primary_key=True)
    covered_s = models.FloatField()
    endpoints = models.PositiveIntegerField(default=0)
    looked_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-hour",)

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}"


class CostPlace(models.TextChoices):
    """Location of a cache tier, which determines its price."""

    HERE = "here", "This machine"
    CLUSTER = "cluster", "A cluster"
    FOREIGN = "foreign", "External Redis"
    GONE = "gone", "Deleted before it was measured: its size is unknown"
    KEPT = "kept", "Reckoned when only its cost was kept: stays as it is"


class CostDay(models.Model):
    """Usage of an endpoint on one day (UTC) in the state `key`, with prices, so that cost is a
    product of columns.

    Names and tags are copied, so that deleted endpoints stay in reports. `part`: a worker's
    share of its machine, determined by `held`; `l1_part`: the part of it due to L1; `price`:
    USD/h of the machine; `slope`: worker seconds for an additional prompt token. None: unknown.

    `tier_h`: hours of the cache tier times the endpoint's share of its use; `tier_memory_h` and
    `tier_disk_h`: the same times the GiB of all nodes. Each has its price.
    """

    id = models.BigAutoField(primary_key=True)
    endpoint_name = models.CharField(max_length=40)
    day = models.DateField()
    key = models.CharField(max_length=16)
    team_id = models.BigIntegerField(null=True)
    team = models.CharField(max_length=80, default="", blank=True)
    tags = models.JSONField(default=dict, blank=True)
    model = models.CharField(max_length=300, default="", blank=True)
    machine = models.CharField(max_length=63, default="", blank=True)
    settings = models.CharField(max_length=16, default="", blank=True)
    held = models.JSONField(default=dict, blank=True)
    simulated = models.BooleanField(default=False)
    hours = models.PositiveIntegerField(default=0)
    worker_s = models.FloatField(default=0.0)
    busy_s = models.FloatField(default=0.0)
    prompt = models.FloatField(default=0.0)
    generated = models.FloatField(default=0.0)
    requests = models.FloatField(default=0.0)
    cached_device = models.FloatField(default=0.0)
    cached_l1 = models.FloatField(default=0.0)
    cached_l2 = models.FloatField(default=0.0)
    load_s = models.FloatField(default=0.0)
    part = models.FloatField(null=True)
    l1_part = models.FloatField(null=True)
    price = models.FloatField(null=True)
    slope = models.FloatField(null=True)
    tier = models.CharField(max_length=200, default="", blank=True)
    tier_place = models.CharField(max_length=10, choices=CostPlace.choices, default="", blank=True)
    tier_h = models.FloatField(default=0.0)
    tier_memory_h = models.FloatField(default=0.0)
    tier_disk_h = models.FloatField(default=0.0)
    tier_price = models.FloatField(null=True, default=0.0)
    tier_memory_price = models.FloatField(null=True, default=0.0)
    tier_disk_price = models.FloatField(null=True, default=0.0)

    class Meta:
        ordering = ("day", "endpoint_name")
        constraints = (
            models.UniqueConstraint(
                fields=("endpoint_name", "day", "key"), name="one_cost_a_day_and_state"
            ),
        )
        indexes = (models.Index(fields=("day",), name="costs_of_a_day"),)

    def __str__(self) -> str:
        return f"{self.endpoint_name} on {self.day}"


class TierPrice(models.Model):
    """Price of a cache tier from the day `since` (UTC) until the next row: `usd_hour` for the whole
    tier, or the instance type of its nodes and the monthly price of a GiB of disk. Neither: unknown
    from then on.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(
        "Name",
        max_length=200,
        validators=[plain_text],
        help_text="Name of the cache tier, or redis:HOST:PORT.",
    )
    since = models.DateField(
        "Valid from",
        help_text="First day of this price, such as 2026-11-21; default: today. Earlier days keep "
        "the earlier price.",
    )
    usd_hour = models.FloatField(
        "Price (USD/h)",
        null=True,
        blank=True,
        validators=between(0, MAX_USD),
        help_text="USD per hour of the whole tier; empty: calculated from the instance type.",
    )
    machine = models.CharField(
        "Instance type",
        max_length=63,
        default="",
        blank=True,
        validators=[plain_text],
        help_text="Instance type of its nodes, as under Instance types.",
    )
    disk_usd_gib_month = models.FloatField(
        "Disk price (USD/GiB/month)",
        null=True,
        blank=True,
        validators=between(0, MAX_USD),
        help_text="USD per month and GiB of disk.",
    )
    source = models.CharField(
        "Source",
        max_length=200,
        default="",
        blank=True,
        validators=[plain_text],
        help_text="Source of the price.",
    )
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name", "-since")
        constraints = (
            models.UniqueConstraint(fields=("name", "since"), name="one_tier_price_a_day"),
        )

    def __str__(self) -> str:
        return f"{self.name} from {self.since} on"

    @property
    def is_set(self) -> bool:
        return bool(self.machine) or (self.usd_hour, self.disk_usd_gib_month) != (None, None)


class Whose(models.TextChoices):
    ALL = "all", "All endpoints"
    TEAM = "team", "Team"
    TAG = "tag", "Tag"
    ENDPOINT = "endpoint", "Endpoint"


class Budget(models.Model):
    """USD for each calendar month (UTC). `subject`: team slug, KEY=VALUE or endpoint name; empty
    for everything.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(
        "Name",
        max_length=60,
        unique=True,
        validators=[plain_text],
        help_text="At most 60 characters, unique.",
        error_messages={"unique": "A budget with this name exists."},
    )
    whose = models.CharField(
        "Scope",
        max_length=10,
        choices=Whose.choices,
        default=Whose.ALL,
        help_text=f"One of: {', '.join(Whose.values)}.",
        error_messages={"invalid_choice": "Choose the scope: all, team, tag or endpoint."},
    )
    subject = models.CharField(
        "Subject",
        max_length=200,
        default="",
        blank=True,
        validators=[plain_text],
        help_text="Team slug, tag as KEY=VALUE, or endpoint name; empty for all.",
    )
    usd = models.FloatField(
        "Budget (USD/month)",
        validators=between(0.01, MAX_USD),
        help_text="USD per calendar month, above 0.",
    )
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if self.whose == Whose.ALL:
            self.subject = ""
        elif not self.subject:
            raise ValidationError({"subject": ValidationError("", "required")})
        elif self.whose == Whose.TAG and not all(self.subject.partition("=")):
            text = "Write a tag as KEY=VALUE, such as app=search."
            raise ValidationError({"subject": ValidationError(text, "invalid_tag")})


class BudgetCrossing(models.Model):
    """A budget crossed a mark in a month: 50, 80 or 100 percent spent, or (mark 0) forecast above
    budget.
    """

    id = models.BigAutoField(primary_key=True)
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="crossings")
    month = models.DateField()
    mark = models.PositiveSmallIntegerField()
    spent = models.FloatField()
    usd = models.FloatField()
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-at",)
        constraints = (
            models.UniqueConstraint(
                fields=("budget", "month", "mark"), name="one_crossing_a_month_and_mark"
            ),
        )

    def __str__(self) -> str:
        return f"{self.budget_id} passed {self.mark} % in {self.month:%Y-%m}"
