"""Timeline of alerts: firing intervals of each rule and endpoint, from the records.

Overlapping records of one rule and endpoint are one interval. Endpoints that no longer exist keep
their intervals.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import Min, Q, QuerySet

from console.accounts.permissions import allows, team_ids_with_role
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.alertmanager.models import AlertRecord
from dashboards.alerts.evaluation.history import DEFAULT, RANGES
from dashboards.alerts.rules.parameter import format_value
from dashboards.alerts.rules.rule import PAGE, EndpointSelection
from dashboards.alerts.rules.rule_file import BY_NAME, Settings
from dashboards.prometheus.http.client import Asker, Question

MOST_RECORDS: Final = 5000


@dataclass(frozen=True, slots=True)
class AlertInterval:
    """Time in which a rule fired for an endpoint. `start`, `end`: Unix time (s). `ongoing`: still
    fires; `alerts`: labels of the alerts in it.
    """

    rule: str
    endpoint: str
    severity: str
    start: int
    end: int
    ongoing: bool
    alerts: tuple[Mapping[str, str], ...] = ()

    @property
    def duration_s(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Lane:
    """Intervals of one rule and endpoint, the oldest first."""

    rule: str
    endpoint: str
    intervals: tuple[AlertInterval, ...]

    @property
    def severity(self) -> str:
        return _worst(interval.severity for interval in self.intervals)

    @property
    def ongoing(self) -> bool:
        return any(interval.ongoing for interval in self.intervals)

    @property
    def firing_s(self) -> int:
        return sum(interval.duration_s for interval in self.intervals)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes of a range in Unix time (s). `known_from`: the first record of this installation, if
    it is later than the range's start.
    """

    key: str
    start: int
    end: int
    lanes: tuple[Lane, ...] = ()
    known_from: int | None = None

    @property
    def length_s(self) -> int:
        return self.end - self.start

    @property
    def intervals(self) -> list[AlertInterval]:
        """Return all intervals, the latest first."""
        every = [interval for lane in self.lanes for interval in lane.intervals]
        return sorted(every, key=lambda one: (one.start, one.rule, one.endpoint), reverse=True)


def read_timeline(viewer: Any, key: str, rule: str = "") -> Timeline:
    """Return the timeline of the range `key`, of all rules or one: firing lanes first, then the
    latest.
    """
    key = key if key in RANGES else DEFAULT
    now = int(time.time())
    start = now - RANGES[key][0]
    begin = datetime.fromtimestamp(start, UTC)
    rows = _visible(viewer).filter(Q(ended_at=None) | Q(ended_at__gte=begin))
    rows = rows.filter(rule=rule) if rule else rows
    grouped: dict[tuple[str, str], list[AlertRecord]] = {}
    for row in rows.order_by("started_at")[:MOST_RECORDS]:
        grouped.setdefault((row.rule, row.endpoint), []).append(row)
    lanes = [Lane(*names, tuple(_merge(intervals, now))) for names, intervals in grouped.items()]
    lanes.sort(key=lambda one: one.intervals[-1].end, reverse=True)
    lanes.sort(key=lambda one: (not one.ongoing, one.severity != PAGE))
    first = AlertRecord.objects.aggregate(first=Min("started_at"))["first"]
    known_from = int(first.timestamp()) if first is not None and first > begin else None
    return Timeline(key, start, now, tuple(lanes), known_from)


def find_interval(timeline: Timeline, rule: str, endpoint: str, at: int) -> AlertInterval | None:
    return next(
        (
            interval
            for interval in timeline.intervals
            if (interval.rule, interval.endpoint) == (rule, endpoint)
            and interval.start <= at <= interval.end
        ),
        None,
    )


def measure_at_start(asker: Asker, settings: Settings, interval: AlertInterval) -> str:
    """Return the rule's measure when the interval began, empty if it is unknown."""
    rule = BY_NAME.get(interval.rule)
    if rule is None:
        return ""
    named = interval.endpoint and rule.per_endpoint
    only = EndpointSelection((interval.endpoint,) if named else ())
    text = rule.value(settings.of(rule, interval.endpoint), only)
    for series in asker.ask({"value": Question(text, interval.start)})["value"].series:
        own = {pair for pair in series.labels if pair[0] != "__name__"}
        if series.latest is not None and any(
            own <= set(alert.items()) for alert in interval.alerts
        ):
            return format_value(rule.unit, series.latest)
    return ""


def _visible(viewer: Any) -> QuerySet[AlertRecord]:
    """Return the records of endpoints that the viewer may see, and of the viewer's teams."""
    if allows(viewer, "viewer"):
        return AlertRecord.objects.all()
    names = dashboards_selectors.get_fleet_scope(viewer).among or ()
    return AlertRecord.objects.filter(
        Q(endpoint__in=names) | Q(team_id__in=team_ids_with_role(viewer, "viewer") or ())
    )


def _merge(rows: Iterable[AlertRecord], now: int) -> list[AlertInterval]:
    """Return the intervals of the records, which are sorted by their start."""
    merged: list[AlertInterval] = []
    for row in rows:
        start = int(row.started_at.timestamp())
        end = int(row.ended_at.timestamp()) if row.ended_at else now
        interval = AlertInterval(
            *(row.rule, row.endpoint, row.severity, start, max(start, end)),
            *(row.ended_at is None, (row.labels,)),
        )
        if merged and start <= merged[-1].end:
            last = merged.pop()
            interval = AlertInterval(
                *(row.rule, row.endpoint, _worst((last.severity, interval.severity))),
                *(last.start, max(last.end, interval.end), last.ongoing or interval.ongoing),
                (*last.alerts, row.labels),
            )
        merged.append(interval)
    return merged


def _worst(severities: Iterable[str]) -> str:
    every = sorted({severity for severity in severities if severity})
    return PAGE if PAGE in every else (every[0] if every else "")
