"""Rows of notifications: receivers and routes of Alertmanager, and recorded alerts.

`receivers` and `routes` write their rows, `config_file` the state of the configuration,
`transitions` the alerts. Secrets of receivers are in the vault.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from console.claims import Observed
from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.config.matchers import Matchers
from dashboards.alerts.alertmanager.config.receiver_kinds import KINDS


class Receiver(models.Model):
    """Destination of notifications. `config`: fields of its kind without secrets; `secrets`: names
    of those that the vault holds; `shown`: destination without its secret part.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=60, unique=True)
    kind = models.CharField(max_length=20)
    config = models.JSONField(default=dict, blank=True)
    secrets = models.JSONField(default=list, blank=True)
    shown = models.CharField(max_length=300, default="", blank=True)
    enabled = models.BooleanField(default=True)
    send_resolved = models.BooleanField(default=True)
    generation = models.PositiveBigIntegerField(default=1)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("notify:receiver", args=[self.name])

    @property
    def kind_label(self) -> str:
        return KINDS[self.kind].label

    def secret_name(self, field: str) -> str:
        """Return the name in the vault."""
        return f"notify/{self.pk}/{field}"


class Route(models.Model):
    """Alerts that go to a receiver, their grouping and intervals. Every matching route is used."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="routes")
    matchers = models.JSONField(default=list, blank=True)
    group_by = models.JSONField(default=list, blank=True)
    wait_s = models.PositiveIntegerField(default=30)
    interval_s = models.PositiveIntegerField(default=300)
    repeat_s = models.PositiveIntegerField(default=14400)
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("created_at", "id")

    def __str__(self) -> str:
        return f"route to {self.receiver_id}"

    @property
    def conditions(self) -> Matchers:
        return matchers.from_data(self.matchers)

    @conditions.setter
    def conditions(self, conditions: Matchers) -> None:
        self.matchers = [matcher.data() for matcher in conditions]


class ConfigState(models.TextChoices):
    LOADED = "loaded", "Loaded"
    REFUSED = "refused", "Refused"
    WAITING = "waiting", "Not yet read"


class ConfigFile(models.Model):
    """Load status of the configuration of this installation's Alertmanager; a singleton."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    digest = models.CharField(max_length=64, default="", blank=True)
    state = models.CharField(max_length=8, choices=ConfigState.choices, default=ConfigState.WAITING)
    message = models.TextField(default="", blank=True)
    at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"Alertmanager configuration: {self.state}"


class AlertRecord(models.Model):
    """One firing of an alert, from the first to the last evaluation at which it fired. `endpoint`:
    its name, which outlives the endpoint; `team`: whose members see the record afterwards.
    """

    fingerprint = models.CharField(max_length=16)
    rule = models.CharField(max_length=80)
    endpoint = models.CharField(max_length=63, default="", blank=True)
    team = models.ForeignKey(
        "accounts.Team", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    severity = models.CharField(max_length=20, default="", blank=True)
    labels = models.JSONField()
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("fingerprint", "started_at"), name="one_record_a_firing"
            ),
        )

    def __str__(self) -> str:
        return f"{self.rule} {self.endpoint}"


class StoredSilence(models.Model):
    """Silence of a version before Alertmanager, until Alertmanager has it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=20)
    matchers = models.JSONField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    comment = models.CharField(max_length=500)
    author = models.CharField(max_length=150)

    def __str__(self) -> str:
        return f"{self.kind} by {self.author}"


class AlertWatch(Observed):
    """Singleton: claim and last result of the pass over firing alerts. `unknown_since`: time since
    which they are unknown.
    """

    unknown_since = models.DateTimeField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.reason or "watching"
