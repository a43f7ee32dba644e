"""Desired and observed state in the database, and exclusive claims on status rows.

At most one process holds the claim on a row. A holder whose claim expired writes nothing more. A
request made while a claim is held is not lost. Both marks are in the status row and change only by
conditional UPDATE, so no lock outlives a statement:

    claim_token, claim_until   the holder, and the expiry of its claim
    due_at                     when the row is next processed; NULL: only on request

`claim` sets `due_at` to `claim_until`, so if the holder is killed, the row is due again when the
claim expires. If `mark_due` is called meanwhile, the two differ, and `release` keeps the earlier
time instead of overwriting it.

No claim and no wait is longer than LONGEST_S: a later time was written by a clock that was ahead,
and counts as past.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Least
from django.utils import timezone

LONGEST_S = 3600.0


class Desired(models.Model):
    """User-requested state. Written only by actions, which increment `generation`."""

    generation = models.PositiveBigIntegerField(default=1)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Observed(models.Model):
    """Observed state. Written only by the reconciler, through a `Claim`."""

    observed_generation = models.PositiveBigIntegerField(default=0)
    phase = models.CharField(max_length=16, default="Pending")
    reason = models.CharField(max_length=64, default="", blank=True)
    message = models.TextField(default="", blank=True)
    steps = models.JSONField(default=list, blank=True)
    claim_token = models.CharField(max_length=32, default="", blank=True)
    claim_until = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(null=True, blank=True, default=timezone.now, db_index=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        abstract = True


@dataclass(frozen=True, slots=True)
class Claim:
    """Exclusive, expiring right to write one status row."""

    model: type[Observed]
    pk: int | str
    token: str

    def write(self, **fields: Any) -> bool:
        """Write the fields if the claim is still held; return False (nothing written) if it is
        lost.
        """
        return self._update(updated_at=timezone.now(), **fields)

    def release(self, due_in_s: float | None = None) -> bool:
        """Release the claim; the row is due again in `due_in_s` seconds (None: on request)."""
        due: Any
        if due_in_s is None:
            due = Case(When(due_at=F("claim_until"), then=Value(None)), default=F("due_at"))
        else:
            moment = Value(timezone.now() + timedelta(seconds=min(due_in_s, LONGEST_S)))
            due = Case(
                When(due_at=F("claim_until"), then=moment), default=Least(F("due_at"), moment)
            )
        return self._update(claim_token="", claim_until=None, due_at=due)

    def _update(self, **fields: Any) -> bool:
        held = self.model._default_manager.filter(
            pk=self.pk, claim_token=self.token, claim_until__gt=timezone.now()
        )
        return held.update(**fields) == 1


def take_claim(model: type[Observed], pk: int | str, ttl_s: float = 60) -> Claim | None:
    """Claim the row; return None if another process holds it or the row is gone."""
    now = timezone.now()
    until = now + timedelta(seconds=min(ttl_s, LONGEST_S))
    token = uuid.uuid4().hex
    taken = (
        model._default_manager.filter(_free(now), pk=pk).update(
            claim_token=token, claim_until=until, due_at=until
        )
        == 1
    )
    return Claim(model, pk, token) if taken else None


def due(model: type[Observed], now: datetime, limit: int = 100) -> list[Any]:
    """Return the keys of due, unclaimed rows, longest waiting first."""
    is_due = Q(due_at__lte=now) | Q(due_at__gt=_latest(now))
    rows = model._default_manager.filter(_free(now), is_due).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def any_due(model: type[Observed]) -> bool:
    """Return whether `due` would find a row. Beat calls it every few seconds per model, and
    compiling a query costs ten times as much as this one.
    """
    moment = timezone.now()
    now, latest = map(connection.ops.adapt_datetimefield_value, (moment, _latest(moment)))
    table = connection.ops.quote_name(model._meta.db_table)
    free = "(claim_until IS NULL OR claim_until <= %s OR claim_until > %s)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 1 FROM {table} WHERE (due_at <= %s OR due_at > %s) AND {free} LIMIT 1",  # noqa: S608
            [now, latest, now, latest],
        )
        return cursor.fetchone() is not None


def mark_due(model: type[Observed], pk: int | str) -> None:
    """Make the row due now, claimed or not; actions call it with every change."""
    model._default_manager.filter(pk=pk).update(due_at=timezone.now())


def mark_all_due(model: type[Observed]) -> None:
    """Make every row due now that has a time."""
    model._default_manager.filter(due_at__isnull=False).update(due_at=timezone.now())


def _free(now: datetime) -> Q:
    return Q(claim_until__isnull=True) | Q(claim_until__lte=now) | Q(claim_until__gt=_latest(now))


def _latest(now: datetime) -> datetime:
    return now + timedelta(seconds=LONGEST_S)
