"""Audit log: actor, action, object, and values before and after.

Rows are written by `record` and never changed, even when their actor or team is deleted: they are
sealed (chain.py), so foreign keys to users and teams have no constraint.
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
    # Stored with the key, so that the log outlives the account.
    actor_name = models.CharField(max_length=150)
    # Owning team at the time of the action, whose members see the row; None for no team.
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
    # Free-text note of the actor.
    note = models.CharField(max_length=500, default="", blank=True)
    # Position in the chain; None until linked.
    sequence = models.BigIntegerField(null=True, blank=True, unique=True, editable=False)
    seal = models.CharField(max_length=64, default="", blank=True, editable=False)

    class Meta:
        ordering = ("-at", "-pk")

    def __str__(self) -> str:
        return f"{self.actor_name} {self.verb} {self.target}"


class AuditChain(models.Model):
    """Single row: key of the seals (encrypted), both ends of the chain, and the last check."""

    key = models.TextField(editable=False)
    # Last pruned row: the chain starts after it.
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
