"""Last observation of each managed program; written by `program_watch` only."""

from __future__ import annotations

from django.db import models


class ProcessSeen(models.Model):
    """Observed process.

    `supervisor` identifies the supervisord run of `pid` (0: none yet). `deaths` is the launcher's
    count of unrequested exits.
    """

    name = models.CharField(max_length=100, unique=True)
    supervisor = models.CharField(max_length=60)
    pid = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    deaths = models.PositiveIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0)
    last_restart_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "processes seen"

    def __str__(self) -> str:
        return self.name
