"""Which alerts fire now, of one endpoint or of all: Prometheus' word, with ours on what to do.

Promises words instead of alerts where Prometheus cannot be asked. Must not know requests.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from dashboards import queries
from dashboards.alerts import BY_NAME, PAGE
from dashboards.boards import fault_message
from dashboards.prom import Asker, Question, Series
from dashboards.queries import Scope


@dataclass(frozen=True, slots=True)
class Alert:
    """`remedy` is "" for a rule which is not ours."""

    name: str
    endpoint: str
    worker: str
    severity: str
    since: datetime | None
    summary: str
    remedy: str

    @property
    def pages(self) -> bool:
        return self.severity == PAGE


@dataclass(frozen=True, slots=True)
class Firing:
    """`why` says why nothing is known, "" when it is."""

    alerts: tuple[Alert, ...] = ()
    why: str = ""


def firing(prometheus: Asker, scope: Scope) -> Firing:
    """Pages first, then the oldest."""
    at = int(time.time()) // queries.SCRAPE_S * queries.SCRAPE_S
    answers = prometheus.ask(
        {
            "alerts": Question(queries.alerts(scope), at),
            "since": Question(queries.alerts_since(scope), at),
        }
    )
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        message = fault_message(fault)
        return Firing(why=f"{message.title}: {message.text}")
    begun = {_key(series): series.latest for series in answers["since"].series}
    found = [_alert(series, begun.get(_key(series))) for series in answers["alerts"].series]
    return Firing(tuple(sorted(found, key=lambda one: (not one.pages, _epoch(one), one.name))))


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    """What both series of one alert share."""
    own = ("__name__", "alertstate")
    return tuple(pair for pair in series.labels if pair[0] not in own)


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
    )
