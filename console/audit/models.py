"""The audit log: who did what to which object, with the values before and after.

Rows are written by `record` and never changed, not even when their actor or team is deleted: they
are sealed (see chain.py), so keys of people and teams are kept without a constraint.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEvent(models.Model):
    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="+",
    )
    # Kept beside the key, so that the trail outlives the account.
    actor_name = models.CharField(max_length=150)
    # Whose the thing was when it was done: its members see the row. None: nobody's.
    team = models.ForeignKey(
        "accounts.Team",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="+",
    )
    verb = models.CharField(max_length=60, db_index=True)
    target = models.CharField(max_length=200, db_index=True)
    changes = models.JSONField(default=dict, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    # What the actor said of it, in their own words.
    note = models.CharField(max_length=500, default="", blank=True)
    # Place in the chain; None until the row is linked.
    sequence = models.BigIntegerField(null=True, blank=True, unique=True, editable=False)
    seal = models.CharField(max_length=64, default="", blank=True, editable=False)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.target}"


class AuditChain(models.Model):
    """One row: the key of the seals (encrypted), both ends of the chain, and the last check."""

    key = models.TextField(editable=False)
    # The last row that was pruned: the chain begins behind it.
    first_sequence = models.BigIntegerField(default=0)
    first_seal = models.CharField(max_length=64, default="", blank=True)
    last_sequence = models.BigIntegerField(default=0)
    last_seal = models.CharField(max_length=64, default="", blank=True)
    seal = models.CharField(max_length=64)
    linked_at = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    checked_sequence = models.BigIntegerField(default=0)
    problem = models.CharField(max_length=300, default="", blank=True)

    def __str__(self) -> str:
        return f"{self.first_sequence} to {self.last_sequence}"
