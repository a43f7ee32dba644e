"""Rows of notifications: receivers, routes, silences, alerts seen, groups and deliveries.

`receivers`, `routes` and `silences` write their rows; `dispatcher` writes alerts, groups and new
deliveries; `deliveries` writes their outcome. Addresses and secrets of receivers are in the vault.
"""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from console.claims import Observed
from dashboards.alerts.notify.protocol import matchers as protocol_matchers
from dashboards.alerts.notify.protocol.matchers import Matchers


class ReceiverKind(models.TextChoices):
    WEBHOOK = "webhook", "Webhook"
    EMAIL = "email", "E-mail"
    SLACK = "slack", "Slack-compatible webhook"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Failed"
    DROPPED = "dropped", "Superseded"


class SilenceKind(models.TextChoices):
    SILENCE = "silence", "Silence"
    ACKNOWLEDGEMENT = "acknowledgement", "Acknowledgement"


class Receiver(models.Model):
    """`shown`: destination without its secret part; `to`: e-mail addresses."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=60, unique=True)
    kind = models.CharField(max_length=10, choices=ReceiverKind.choices)
    to = models.JSONField(default=list, blank=True)
    shown = models.CharField(max_length=300, default="", blank=True)
    signed = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
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


class Route(models.Model):
    """Alerts that go to a receiver, their grouping and intervals. Every matching route is used."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="routes")
    matchers = models.JSONField(default=list, blank=True)
    group_by = models.JSONField(default=list, blank=True)
    wait_s = models.PositiveIntegerField(default=30)
    interval_s = models.PositiveIntegerField(default=300)
    repeat_s = models.PositiveIntegerField(default=14400)
    send_resolved = models.BooleanField(default=True)
    generation = models.PositiveBigIntegerField(default=1)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("created_at", "id")

    def __str__(self) -> str:
        return f"route to {self.receiver_id}"

    @property
    def conditions(self) -> Matchers:
        return protocol_matchers.from_data(self.matchers)


class Silence(models.Model):
    """`endpoint`: the one selected by a matcher `endpoint="..."`; its team may see and expire the
    silence. None: platform-wide. `remote`: id in each Alertmanager that has it too, by metrics
    source. An acknowledgement ends when its alerts are resolved; `matched_at`: when one fired last.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        "endpoints.Endpoint", null=True, on_delete=models.CASCADE, related_name="silences"
    )
    kind = models.CharField(max_length=20, choices=SilenceKind.choices, default=SilenceKind.SILENCE)
    matched_at = models.DateTimeField(null=True, blank=True)
    matchers = models.JSONField()
    remote = models.JSONField(default=dict, blank=True)
    starts_at = models.DateTimeField(default=timezone.now)
    ends_at = models.DateTimeField(db_index=True)
    comment = models.CharField(max_length=500)
    author = models.CharField(max_length=150)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.kind} by {self.author}"

    @property
    def acknowledges(self) -> bool:
        return self.kind == SilenceKind.ACKNOWLEDGEMENT

    @property
    def conditions(self) -> Matchers:
        return protocol_matchers.from_data(self.matchers)

    def state(self, now: datetime) -> str:
        if self.ends_at <= now:
            return "expired"
        return "active" if self.starts_at <= now else "pending"

    @property
    def current_state(self) -> str:
        return self.state(timezone.now())


class SeenAlert(models.Model):
    """Alert since it was first seen; `ended_at` is set once it has been missing for long enough."""

    fingerprint = models.CharField(max_length=16, primary_key=True)
    labels = models.JSONField()
    annotations = models.JSONField(default=dict)
    started_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.labels.get("alertname", self.fingerprint))


class Group(models.Model):
    """Alerts that a route sends together. `sent` maps fingerprints to the state last sent; `due_at`
    is the next evaluation.
    """

    route = models.ForeignKey(Route, on_delete=models.CASCADE, related_name="groups")
    key = models.CharField(max_length=32)
    labels = models.JSONField(default=dict)
    sent = models.JSONField(default=dict)
    sent_at = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("route", "key"), name="one_group_a_route"),)

    def __str__(self) -> str:
        return f"group {self.key}"


class Delivery(models.Model):
    """One message to one receiver. `body`: Alertmanager webhook document; `next_at`: next attempt.
    `endpoint`: the only one concerned, None for several or none.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    receiver = models.ForeignKey(
        Receiver, null=True, on_delete=models.SET_NULL, related_name="deliveries"
    )
    receiver_name = models.CharField(max_length=60)
    kind = models.CharField(max_length=10, choices=ReceiverKind.choices)
    group = models.ForeignKey(
        Group, null=True, on_delete=models.SET_NULL, related_name="deliveries"
    )
    endpoint = models.ForeignKey(
        "endpoints.Endpoint", null=True, on_delete=models.CASCADE, related_name="+"
    )
    title = models.CharField(max_length=200)
    body = models.JSONField()
    state = models.CharField(
        max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING
    )
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    error = models.CharField(max_length=300, default="", blank=True)
    test = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (
            models.Index(fields=("state", "next_at"), name="delivery_due"),
            models.Index(fields=("receiver", "-created_at"), name="delivery_latest"),
        )

    def __str__(self) -> str:
        return f"{self.title} to {self.receiver_name}: {self.state}"

    @property
    def next_attempt_at(self) -> datetime | None:
        return self.next_at if self.state == DeliveryState.WAITING else None


class Dispatch(Observed):
    """Singleton: the dispatcher's claim and last result. `unknown_since`: time since which the
    firing alerts are unknown.
    """

    unknown_since = models.DateTimeField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.reason or "looking"
