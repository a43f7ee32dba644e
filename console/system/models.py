"""What was last seen of each managed program; `watching` alone writes it."""

from __future__ import annotations

from django.db import models


class ProcessSeen(models.Model):
    """`supervisor` names the run of supervisord under which `pid` was seen (0: none yet).
    `deaths` is what the launcher of a workload's program had counted by then."""

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
