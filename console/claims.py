"""What is wanted, what is seen, and who may act on it now.

Promises that of any number of processes at most one holds the claim on a row; that a holder who
lost it (its time ran out) writes nothing more; and that a wish made while somebody holds the claim
is not forgotten. Knows no endpoint, no router and no cache: only rows.

Theory of operation. Both marks live in the status row and are only changed by conditional UPDATE,
so no lock outlives a statement:

    claim_token, claim_until   whose turn it is, and until when
    due_at                     when the row next wants attention; NULL means when somebody says so

`claim` sets `due_at` to the same moment as `claim_until`. If the holder dies, the row is therefore
due again exactly when its claim runs out. If `mark_due` is called meanwhile, the two differ, and
`release` keeps the earlier wish instead of replacing it by its own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Least
from django.utils import timezone


class Desired(models.Model):
    """What a person asked for. Written by actions only, which count `generation` up."""

    generation = models.PositiveBigIntegerField(default=1)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


class Observed(models.Model):
    """What is. Written by the reconciler only, through a `Claim`."""

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
    """The right to act on one status row, for as long as `claim` gave it."""

    model: type[Observed]
    pk: int | str
    token: str

    def write(self, **fields: Any) -> bool:
        """Write the fields if the claim still holds; False (and nothing written) if it is lost."""
        return self._update(updated_at=timezone.now(), **fields)

    def release(self, due_in_s: float | None = None) -> bool:
        """Give it back, to be looked at again in `due_in_s` seconds (None: when somebody asks)."""
        due: Any
        if due_in_s is None:
            due = Case(When(due_at=F("claim_until"), then=Value(None)), default=F("due_at"))
        else:
            moment = Value(timezone.now() + timedelta(seconds=due_in_s))
            due = Case(
                When(due_at=F("claim_until"), then=moment), default=Least(F("due_at"), moment)
            )
        return self._update(claim_token="", claim_until=None, due_at=due)

    def _update(self, **fields: Any) -> bool:
        held = self.model._default_manager.filter(
            pk=self.pk, claim_token=self.token, claim_until__gt=timezone.now()
        )
        return held.update(**fields) == 1


def claim(model: type[Observed], pk: int | str, ttl_s: float = 60) -> Claim | None:
    """The claim on the row, or None when another holds it or the row is gone."""
    now = timezone.now()
    until = now + timedelta(seconds=ttl_s)
    token = uuid.uuid4().hex
    taken = (
        model._default_manager.filter(_free(now), pk=pk).update(
            claim_token=token, claim_until=until, due_at=until
        )
        == 1
    )
    return Claim(model, pk, token) if taken else None


def due(model: type[Observed], now: datetime, limit: int = 100) -> list[Any]:
    """Keys of the rows that want attention and that nobody holds, the longest waiting first."""
    rows = model._default_manager.filter(_free(now), due_at__lte=now).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def mark_due(model: type[Observed], pk: int | str) -> None:
    """Ask for attention now, whoever holds the row; actions call it with every change."""
    model._default_manager.filter(pk=pk).update(due_at=timezone.now())


def _free(now: datetime) -> Q:
    return Q(claim_until__isnull=True) | Q(claim_until__lte=now)
