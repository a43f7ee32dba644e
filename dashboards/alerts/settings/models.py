"""Rows of alert rules: settings, user-written rules, and the load status of the rule file.

`actions` writes settings and rules; only `rule_file` writes the status. dashboards.alerts.rules
defines the defaults.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class RuleSetting(models.Model):
    """Setting of a rule, platform-wide or for one endpoint; empty fields inherit from the next
    wider one. `values`: parameters by name.
    """

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
    """User-written rule. `name` is unique among built-in rules too."""

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
    """Load status of the rule file in the Prometheus of this installation; a singleton."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    digest = models.CharField(max_length=32, default="", blank=True)
    state = models.CharField(max_length=8, choices=Load.choices, default=Load.WAITING)
    message = models.TextField(default="", blank=True)
    at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"rule file: {self.state}"
