"""What people set of alert rules: thresholds, rules of their own, and what became of the file.

Promises names and invariants only: `actions` writes settings and rules, `loading` alone writes
what became of the file. What a rule is without a setting stands in dashboards.alerts.rules.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class RuleSetting(models.Model):
    """Of a rule for all endpoints, or for one; what is empty is as the next wider one has it.
    `values`: of the rule's parameters, by name."""

    rule = models.CharField(max_length=80)
    endpoint = models.ForeignKey(
        "endpoints.Endpoint", null=True, on_delete=models.CASCADE, related_name="alert_settings"
    )
    values = models.JSONField(default=dict, blank=True)
    lasting_s = models.PositiveIntegerField(null=True, blank=True)
    severity = models.CharField(max_length=8, default="", blank=True)
    enabled = models.BooleanField(null=True, blank=True)
    generation = models.PositiveIntegerField(default=1)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("rule", "id")
        constraints = (
            models.UniqueConstraint(
                fields=("rule", "endpoint"), name="one_alert_setting_an_endpoint"
            ),
            models.UniqueConstraint(
                fields=("rule",),
                condition=models.Q(endpoint__isnull=True),
                name="one_alert_setting_for_all",
            ),
        )

    def __str__(self) -> str:
        return f"setting of {self.rule}"


class OwnRule(models.Model):
    """A rule somebody wrote here. `name` is unique among the built-in ones too."""

    name = models.CharField(max_length=80, unique=True)
    expr = models.TextField()
    lasting_s = models.PositiveIntegerField(default=300)
    severity = models.CharField(max_length=8, default="ticket")
    summary = models.CharField(max_length=200)
    remedy = models.TextField(default="", blank=True)
    enabled = models.BooleanField(default=True)
    generation = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Load(models.TextChoices):
    LOADED = "loaded", "Loaded"
    REFUSED = "refused", "Refused"
    WAITING = "waiting", "Not yet read"


class RuleFile(models.Model):
    """What became of the latest rules, in the Prometheus that this installation runs: one row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    digest = models.CharField(max_length=32, default="", blank=True)
    state = models.CharField(max_length=8, choices=Load.choices, default=Load.WAITING)
    message = models.TextField(default="", blank=True)
    at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"rule file: {self.state}"
