"""The trail: who did what to which object, with the values before and after.

Rows are written by `record` and never changed.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEvent(models.Model):
    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    # Kept beside the key, so that the trail outlives the account.
    actor_name = models.CharField(max_length=150)
    # Whose the thing was when it was done: its members see the row. None: nobody's.
    team = models.ForeignKey(
        "accounts.Team", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    verb = models.CharField(max_length=60, db_index=True)
    target = models.CharField(max_length=200, db_index=True)
    changes = models.JSONField(default=dict, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    # What the actor said of it, in their own words.
    note = models.CharField(max_length=500, default="", blank=True)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.target}"
