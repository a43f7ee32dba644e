"""Firing and pending alerts from Prometheus, with the texts of their rules.

If Prometheus cannot be queried, the result holds the reason instead of alerts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from dashboards.alerts.rules.rule import PAGE, EndpointSelection
from dashboards.alerts.rules.rule_file import BY_NAME, Settings, fill_in
from dashboards.boards import queries
from dashboards.boards.queries import Scope
from dashboards.boards.results.board import make_fault_message
from dashboards.prometheus.http.client import Asker, Question, Series

FIRING, PENDING = "firing", "pending"
_OWN = ("__name__", "alertstate")  # labels added by Prometheus
_NOTHING_STORED = (
    "Alerts unknown: a Prometheus has stored no samples for 5 minutes. Check its disk and its log."
)
_SHOWN_APART = ("alertname", "severity", "endpoint", "endpoint_name", "namespace")


@dataclass(frozen=True, slots=True)
class FiringAlert:
    """Firing or pending alert. `summary` and `remedy` are empty before `describe`, and for rules
    that are not ours. `labels`: as in Prometheus. Pending: the condition holds, but not yet for the
    rule's `for` duration. `value`: current value of the rule's measure, None if unknown.
    """

    name: str
    endpoint: str
    worker: str
    severity: str
    since: datetime | None
    summary: str = ""
    remedy: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = FIRING
    value: float | None = None

    @property
    def pages(self) -> bool:
        return self.severity == PAGE

    @property
    def others(self) -> list[tuple[str, str]]:
        """Return the labels that tell it apart from other alerts of the same rule and endpoint."""
        return [(key, value) for key, value in self.labels.items() if key not in _SHOWN_APART]


@dataclass(frozen=True, slots=True)
class FiringAlerts:
    """Alerts of one query. `why`: reason why nothing is known, else empty. `missing`: reason of a
    partial result, if one of several sources did not respond.
    """

    alerts: tuple[FiringAlert, ...] = ()
    why: str = ""
    missing: str = ""


def query_firing(prometheus: Asker, scope: Scope) -> FiringAlerts:
    """Return the firing alerts without texts and values, pages first, then the oldest."""
    return _query(prometheus, scope, queries.alerts(scope))


def query_active(prometheus: Asker, scope: Scope, settings: Settings) -> FiringAlerts:
    """Return firing, then pending alerts, with texts and current values."""
    active = _query(prometheus, scope, queries.alerts_active(scope))
    return replace(active, alerts=describe(prometheus, active.alerts, settings))


def describe(
    prometheus: Asker, alerts: tuple[FiringAlert, ...], settings: Settings
) -> tuple[FiringAlert, ...]:
    """Return the alerts with current values, and with texts by the settings of their rules."""
    values = _values(prometheus, alerts, settings)
    return tuple(_describe(alert, values.get(id(alert)), settings) for alert in alerts)


def _describe(alert: FiringAlert, value: float | None, settings: Settings) -> FiringAlert:
    """Texts of unknown rules stay empty."""
    rule, own = BY_NAME.get(alert.name), settings.user_rule(alert.name)
    if rule is not None:
        summary, remedy = rule.summarize(settings.of(rule, alert.endpoint)), rule.remedy
    elif own is not None:
        summary, remedy = (fill_in(text, alert.labels, value) for text in (own.summary, own.remedy))
    else:
        return alert
    return replace(alert, summary=summary, remedy=remedy, value=value)


def _values(
    prometheus: Asker, alerts: tuple[FiringAlert, ...], settings: Settings
) -> dict[int, float | None]:
    """Query each rule and setting with an alert once; return values by `id` of the alert.

    A value belongs to an alert if the alert has all labels of its series.
    """
    by_series: dict[tuple[str, str], list[FiringAlert]] = {}
    for alert in alerts:
        of_endpoints = settings.of_endpoints.get(alert.name, {})
        whose = alert.endpoint if alert.endpoint in of_endpoints else ""
        if alert.name in BY_NAME or settings.user_rule(alert.name):
            by_series.setdefault((alert.name, whose), []).append(alert)
    now = _now()
    questions = {}
    for name, whose in by_series:
        only = EndpointSelection((whose,)) if whose else EndpointSelection()
        if own := settings.user_rule(name):
            value = own.expr
        else:
            value = BY_NAME[name].value(settings.of(BY_NAME[name], whose), only)
        questions[f"{name} {whose}"] = Question(value, now)
    answers = prometheus.ask(questions) if questions else {}
    values: dict[int, float | None] = {}
    for (name, whose), some in by_series.items():
        series = answers[f"{name} {whose}"].series
        for alert in some:
            same = (sample for sample in series if set(_key(sample)) <= set(alert.labels.items()))
            values[id(alert)] = next((sample.latest for sample in same), None)
    return values


def _query(prometheus: Asker, scope: Scope, query: str) -> FiringAlerts:
    now = _now()
    texts = {"alerts": query, "since": queries.alerts_since(scope), "stored": queries.stored()}
    answers = prometheus.ask({name: Question(text, now) for name, text in texts.items()})
    fault = next((answer.fault for answer in answers.values() if answer.fault), None)
    if fault is not None:
        message = make_fault_message(fault)
        return FiringAlerts(why=f"{message.title}: {message.text}")
    if any(series.latest == 0 for series in answers["stored"].series):
        return FiringAlerts(why=_NOTHING_STORED)
    begun = {_key(series): series.latest for series in answers["since"].series}
    alerts = [_alert(series, begun.get(_key(series))) for series in answers["alerts"].series]
    lost = next((absence for answer in answers.values() for absence in answer.missing), None)
    return FiringAlerts(tuple(sorted(alerts, key=_place)), missing=lost.detail if lost else "")


def _now() -> int:
    return int(time.time()) // queries.SCRAPE_S * queries.SCRAPE_S


def _place(alert: FiringAlert) -> tuple[bool, bool, float, str]:
    began = alert.since.timestamp() if alert.since else 0.0
    return alert.state != FIRING, not alert.pages, began, alert.name


def _key(series: Series) -> tuple[tuple[str, str], ...]:
    """Return the labels that the ALERTS and ALERTS_FOR_STATE series of an alert share."""
    return tuple(pair for pair in series.labels if pair[0] not in _OWN)


def _alert(series: Series, begun: float | None) -> FiringAlert:
    return FiringAlert(
        name=series.label("alertname"),
        endpoint=series.label("endpoint") or series.label("endpoint_name"),
        worker=series.label("worker") or series.label("pod"),
        severity=series.label("severity"),
        since=datetime.fromtimestamp(begun, UTC) if begun else None,
        labels=dict(_key(series)),
        state=series.label("alertstate") or FIRING,
    )
