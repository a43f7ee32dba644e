"""Boards of users and teams: ordered panels with their scope and width."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from console.accounts.models import Team


class CustomBoard(models.Model):
    """A board of `user`, of `team`, or, without either, of everyone with a console-wide role.

    `shared`: every user with a role may open it by its link. `panels` are the documents of
    `documents.BoardPanel`, in order.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    title = models.CharField(max_length=100)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="custom_boards"
    )
    team = models.ForeignKey(
        Team, on_delete=models.CASCADE, null=True, related_name="custom_boards"
    )
    shared = models.BooleanField(default=False)
    panels = models.JSONField(default=list, blank=True)
    generation = models.PositiveBigIntegerField(default=1)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("title", "id")

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("custom_boards:board", args=[self.pk])

    @property
    def owner(self) -> str:
        """Return "user/NAME", "team/SLUG" or "console"."""
        if self.user is not None:
            return f"user/{self.user.username}"
        return f"team/{self.team.slug}" if self.team is not None else "console"

    @property
    def owner_label(self) -> str:
        if self.user is not None:
            return self.user.username
        return f"Team {self.team.name}" if self.team is not None else "All console-wide roles"
