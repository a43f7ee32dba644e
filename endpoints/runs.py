"""Background run on an endpoint: benchmark, what-if analysis, cache proof, calibration.

A row is queued, claimed once by a conditional UPDATE, updated while it makes progress, and ended
once. Whoever runs it may be killed at any line: a row that is silent for too long is failed.
"""

from __future__ import annotations

import uuid
from typing import Any, Self, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import QuerySet
from django.utils import timezone

from console.core.errors import Problem, Refused

Run = TypeVar("Run", bound="EndpointRun")


class RunState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    ABORTED = "aborted", "Aborted"  # of a benchmark: its results up to then are kept
    CANCELLED = "cancelled", "Cancelled"
    FAILED = "failed", "Failed"


LIVE = (RunState.QUEUED, RunState.RUNNING)
COLOURS = {
    RunState.QUEUED: "secondary",
    RunState.RUNNING: "blue",
    RunState.DONE: "green",
    RunState.ABORTED: "orange",
    RunState.CANCELLED: "orange",
    RunState.FAILED: "red",
}


class EndpointRun(models.Model):
    """A background run on an endpoint. `touched_at` is updated while it makes progress.

    `endpoint`, a foreign key, is each model's own, for the name of its reverse.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    state = models.CharField(max_length=10, choices=RunState.choices, default=RunState.QUEUED)
    stage = models.CharField(max_length=120, default="", blank=True)
    message = models.TextField(default="", blank=True)
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    touched_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        ordering = ("-created_at", "-id")

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def colour(self) -> str:
        return COLOURS[RunState(self.state)]

    @classmethod
    def list_live(cls, *, over: bool = False) -> QuerySet[Self]:
        """Return the queued and running rows; with `over` all others."""
        rows = cls._default_manager
        return rows.exclude(state__in=LIVE) if over else rows.filter(state__in=LIVE)

    @classmethod
    def claim(cls, run: UUID | str, **fields: Any) -> bool:
        """Begin a queued run; False if it is not queued, for example since another process did."""
        now = timezone.now()
        queued = cls._default_manager.filter(pk=run, state=RunState.QUEUED)
        changed = {"state": RunState.RUNNING, "started_at": now, "touched_at": now, **fields}
        return queued.update(**changed) == 1

    @classmethod
    def update_running(cls, run: UUID | str, **fields: Any) -> bool:
        """Update a run while it is RUNNING; False if it is not: the first end is kept."""
        running = cls._default_manager.filter(pk=run, state=RunState.RUNNING)
        return running.update(touched_at=timezone.now(), **fields) == 1

    @classmethod
    def finish(cls, rows: QuerySet[Self], state: RunState, message: str = "", **fields: Any) -> int:
        """End those of `rows` that are live; return their number."""
        now = timezone.now()
        ended = {"state": state, "message": message, "stage": "", **fields}
        return rows.filter(state__in=LIVE).update(finished_at=now, touched_at=now, **ended)

    @classmethod
    def delete_old(cls, rows: QuerySet[Self], kept: int) -> None:
        """Delete ended ones of `rows`, which come latest first, except for the first `kept`."""
        old = list(rows.exclude(state__in=LIVE).values_list("pk", flat=True)[kept:])
        cls._default_manager.filter(pk__in=old).delete()


class CancellableRun(EndpointRun):
    """A run that a user can end early, at the next look of its process at `cancel_at`."""

    cancel_at = models.DateTimeField(null=True, blank=True)

    class Meta(EndpointRun.Meta):
        abstract = True

    @classmethod
    def request_cancel(cls, run: UUID) -> bool:
        """Ask a live run to end; False if it is over or was asked before."""
        rows = cls._default_manager.filter(pk=run, cancel_at__isnull=True, state__in=LIVE)
        return rows.update(cancel_at=timezone.now(), stage="Ending") == 1


def find_run(rows: QuerySet[Run], run: object, kind: str) -> Run:
    """Return the row with this id. Raise Refused (404) for another text and for none."""
    try:
        row = rows.filter(pk=run if isinstance(run, UUID) else UUID(str(run))).first()
    except ValueError:
        row = None
    if row is None:
        remedy, text = "Choose one from the list.", f"{kind.capitalize()} not found."
        raise Refused(Problem("run", str(run)[:80], text, remedy, "not_found"), status_code=404)
    return row
