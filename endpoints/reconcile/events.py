"""Event history of an endpoint; repetitions are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import F

from console.provisioners.base import ClusterEvent
from endpoints.choices import Origin, Severity
from endpoints.models import Endpoint, EndpointEvent

REPEAT_WITHIN = timedelta(minutes=10)
EVENTS_KEPT = 500
"""Events kept per endpoint; older ones are pruned."""
_KIND = 40  # maximum length of a stored reason


@dataclass(frozen=True, slots=True)
class Occurrence:
    kind: str
    message: str
    subject: str = ""
    severity: Severity = Severity.NORMAL


def write(endpoint: Endpoint, happenings: list[Occurrence], now: datetime) -> None:
    for happening in happenings:
        same = EndpointEvent.objects.filter(
            endpoint=endpoint,
            origin=Origin.CONSOLE,
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


def write_cluster(endpoint: Endpoint, seen: Iterable[ClusterEvent], now: datetime) -> None:
    """Write the cluster's events with its counts. One query if nothing is new."""
    grouped: dict[tuple[str, str, str], list[ClusterEvent]] = {}
    for event in seen:
        grouped.setdefault((event.subject, event.reason[:_KIND], event.message), []).append(event)
    if not grouped:
        return
    rows = EndpointEvent.objects.filter(
        endpoint=endpoint, origin=Origin.CLUSTER, subject__in={subject for subject, _, _ in grouped}
    )
    rows_before = {(row.subject, row.kind, row.message): row for row in rows}
    for (subject, kind, message), same in grouped.items():
        first_at = min(_moment(event.first_at or event.last_at, now) for event in same)
        last_at = max(_moment(event.last_at or event.first_at, first_at) for event in same)
        count = sum(event.count for event in same)
        row = rows_before.get((subject, kind, message))
        if row is None:
            EndpointEvent.objects.create(
                endpoint=endpoint,
                origin=Origin.CLUSTER,
                kind=kind,
                severity=Severity.WARNING if same[0].warning else Severity.NORMAL,
                subject=subject,
                message=message,
                count=count,
                first_at=first_at,
                last_at=last_at,
            )
        elif row.count < count or row.last_at < last_at:
            row.count, row.last_at = count, last_at
            row.save(update_fields=["count", "last_at"])


def _moment(epoch_s: float, otherwise: datetime) -> datetime:
    return datetime.fromtimestamp(epoch_s, UTC) if epoch_s else otherwise
