"""The endpoint's diary: what the reconciler saw happen, repetitions counted instead of repeated."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from endpoints.choices import Severity
from endpoints.models import Endpoint, EndpointEvent

REPEAT_WITHIN = timedelta(minutes=10)
KEPT = 500
"""Of one endpoint; older ones are pruned."""


@dataclass(frozen=True, slots=True)
class Happening:
    kind: str
    message: str
    subject: str = ""
    severity: Severity = Severity.NORMAL


def write(endpoint: Endpoint, happenings: list[Happening], now: datetime) -> None:
    """Within the caller's transaction, which also writes the status."""
    for happening in happenings:
        same = EndpointEvent.objects.filter(
            endpoint=endpoint,
            kind=happening.kind,
            subject=happening.subject,
            message=happening.message,
            last_at__gte=now - REPEAT_WITHIN,
        ).order_by("-last_at", "-id")
        latest = same.values_list("pk", flat=True).first()
        if latest is not None:
            EndpointEvent.objects.filter(pk=latest).update(count=F("count") + 1, last_at=now)
            continue
        EndpointEvent.objects.create(
            endpoint=endpoint,
            kind=happening.kind,
            severity=happening.severity,
            subject=happening.subject,
            message=happening.message,
            first_at=now,
            last_at=now,
        )
