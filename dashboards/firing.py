"""Which alerts fire now, or are about to, of one endpoint or of all: Prometheus' word, with ours
on what to do.

Promises words instead of alerts where Prometheus cannot be asked. Must not know requests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dashboards import queries
from dashboards.alerts import BY_NAME, PAGE
from dashboards.boards import fault_message
from dashboards.prom import Asker, Question, Series
from dashboards.queries import Scope

FIRING, PENDING = "firing", "pending"
_OWN = ("__name__", "alertstate")  # labels of Prometheus' own series, not of the alert
_SHOWN_APART = ("alertname", "severity", "endpoint", "endpoint_name", "namespace")


@dataclass(frozen=True, slots=True)
class Alert:
    """`remedy` is "" for a rule which is not ours. `labels` are all of the alert's, as Prometheus
    has them; pending: its condition holds, and has not held for long enough."""

    name: str
    endpoint: str
    worker: str
    severity: str
    since: datetime | None
    summary: str
    remedy: str
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = FIRING

    @property
    def pages(self) -> bool:
        return self.severity == PAGE

    @property
    def others(self) -> list[tuple[str, str]]:
        """What tells it apart from alerts of the same rule and endpoint."""
        return [(key, value) for key, value in self.labels.items() if key not in _SHOWN_APART]


@dataclass(frozen=True, slots=True)
class Firing:
    """`why` says why nothing is known, "" when it is."""

    alerts: tuple[Alert, ...] = ()
    why: str = ""


def firing(prometheus: Asker, scope: Scope) -> Firing:
    """Pages first, then the oldest."""
    return _asked(prometheus, scope, queries.alerts(scope))


def active(prometheus: Asker, scope: Scope) -> Firing:
    """With those whose condition holds, and not yet for as long as their rule wants; the firing
    first."""
    return _asked(prometheus, scope, queries.alerts_active(scope))


def _asked(prometheus: Asker, scope: Scope, query: str) -> Firing:
    at = int(time.time()) // queries.SCRAPE_S * queries.SCRAPE_S
    answers = prometheus.ask(
        {
            "alerts": Question(query, at),
            "since": Question(queries.alerts_since(scope), at),
        }
    )
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        message = fault_message(fault)
        return Firing(why=f"{message.title}: {message.text}")
    begun = {_key(series): series.latest for series in answers["since"].series}
    found = [_alert(series, begun.get(_key(series))) for series in answers["alerts"].series]
    return Firing(tuple(sorted(found, key=_place)))


def _place(alert: Alert) -> tuple[bool, bool, float, str]:
    return alert.state != FIRING, not alert.pages, _epoch(alert), alert.name


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    """What both series of one alert share."""
    return tuple(pair for pair in series.labels if pair[0] not in _OWN)


def _epoch(alert: Alert) -> float:
    return alert.since.timestamp() if alert.since else 0.0


def _alert(series: Series, begun: float | None) -> Alert:
    name = series.label("alertname")
    rule = BY_NAME.get(name)
    return Alert(
        name=name,
        endpoint=series.label("endpoint") or series.label("endpoint_name"),
        worker=series.label("worker") or series.label("pod"),
        severity=series.label("severity"),
        since=datetime.fromtimestamp(begun, UTC) if begun else None,
        summary=rule.summary if rule else "",
        remedy=rule.remedy if rule else "",
        labels=dict(_key(series)),
        state=series.label("alertstate") or FIRING,
    )
