"""Columns of the endpoint list: cache hit rate, TTFT, requests and hourly cost.

One Prometheus round and one price query for any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from console.accounts.permissions import allows
from console.web.shell.cards import Card, Fact
from console.web.templatetags.emberline import duration, percent, usd
from dashboards.alerts.alertmanager import status
from dashboards.alerts.rules.rule_file import RULES
from dashboards.alerts.settings import selectors as alerting
from dashboards.boards.queries import Scope
from dashboards.boards.results import evidence
from dashboards.boards.results.board import make_fault_message
from dashboards.boards.results.fleet_summary import NO_PROMPT, RECENT_S
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.formulas.savings import rate
from dashboards.costs.prices.machines import occupied_machines
from dashboards.prometheus.http.client import QueryResult
from dashboards.prometheus.sources import selectors
from endpoints.models import Endpoint
from endpoints.pages.head import HeadFigure, register_figures
from endpoints.pages.list.columns import Cell, Column, FilledColumns, register
from endpoints.selectors import NAMESPACE

Cells = Mapping[str, Mapping[str, Cell]]
_QUERIES = {
    "reuse": ("reuse_each", "endpoint"),
    "ttft": ("ttft_p90_each", "endpoint"),
    "requests": ("requests_each", "endpoint"),
}
_NOTHING = {
    "reuse": NO_PROMPT,
    "ttft": "No streamed responses to callers in the last 15 minutes.",
    "requests": "No requests of callers in the last 15 minutes.",
}
_SHOWN: Mapping[str, Callable[[float], str]] = {
    "reuse": percent,
    "ttft": duration,
    "requests": lambda each_s: f"{each_s:.3g}/s",
}


def register_columns() -> None:
    register_figures(head_figures)
    register(
        FilledColumns(Column("requests", "Requests/s", default=False, number=True), metric_cells)
    )
    register(FilledColumns(Column("reuse", "Hit rate", number=True), metric_cells))
    register(FilledColumns(Column("ttft", "TTFT p90", number=True), metric_cells))
    register(
        FilledColumns(Column("cost", "Hourly cost (USD/h)", default=False, number=True), cost_cells)
    )


def metric_cells(rows: Sequence[Endpoint]) -> Cells:
    names = [name for name, _ in _QUERIES.values()]
    answers = evidence.ask_recent_totals(selectors.fleet(), Scope(), names, RECENT_S)
    return {key: _column(key, answers[name], rows) for key, (name, _) in _QUERIES.items()}


def head_figures(endpoint: Endpoint) -> Sequence[HeadFigure]:
    """Return TTFT p90 and hit rate of one endpoint in one Prometheus round."""
    scope = Scope(endpoint.name, NAMESPACE)
    asker = selectors.connect_endpoint(endpoint.name)
    answers = evidence.ask_recent_totals(asker, scope, ["ttft_p90", "reuse"], RECENT_S)
    return (
        _figure("TTFT p90", answers["ttft_p90"], duration, _NOTHING["ttft"], "no streams"),
        _figure("Hit rate", answers["reuse"], percent, NO_PROMPT, "no prompts"),
    )


def _figure(
    label: str, answer: QueryResult, show: Callable[[float], str], nothing: str, absent: str
) -> HeadFigure:
    if answer.fault is not None:
        message = make_fault_message(answer.fault)
        return HeadFigure(label, why=f"{message.title}: {message.text}")
    value = next((series.latest for series in answer.series), None)
    if value is None:
        missing = " ".join(absence.detail for absence in answer.missing)
        if missing:
            return HeadFigure(label, why=missing)
        return HeadFigure(label, why=nothing, absent=absent)
    return HeadFigure(label, show(value))


def cost_cells(rows: Sequence[Endpoint]) -> Cells:
    catalogue = occupied_machines()
    cells = {}
    for row in rows:
        each = rate(parse_stored_needs(row.spec), catalogue)
        price = None if each.usd_hour is None else each.usd_hour * row.status.ready_replicas
        cells[row.name] = Cell(
            "" if price is None else usd(price), each.why, reverse("dashboards:costs")
        )
    return {"cost": cells}


def _column(key: str, answer: QueryResult, rows: Sequence[Endpoint]) -> dict[str, Cell]:
    if answer.fault is not None:
        message = make_fault_message(answer.fault)
        return {row.name: Cell("", f"{message.title}: {message.text}") for row in rows}
    label = _QUERIES[key][1]
    nothing = " ".join(fault.detail for fault in answer.missing) or _NOTHING[key]
    values = {series.label(label): series.latest for series in answer.series}
    cells = {}
    for row in rows:
        value = values.get(row.name)
        text = "" if value is None else _SHOWN[key](value)
        url = reverse("dashboards:endpoint", args=[row.name])
        cells[row.name] = Cell(text, nothing, url)
    return cells


def facts(viewer: Any) -> Sequence[Fact]:
    rules = alerting.settings()
    on = sum(bool(rules.rendered(rule)) for rule in RULES)
    own = sum(rule.enabled for rule in rules.own)
    return (
        Fact(
            "Prometheus",
            _hide_login(settings.EMBERLINE.prometheus_url) or "Not configured",
            reverse("metrics_sources:list"),
        ),
        Fact("Other sources", ", ".join(selectors.names()) or "None"),
        Fact(
            "Alert rules",
            f"{on} of {len(RULES)} built-in rules enabled, {own} custom",
            reverse("alerting:rules"),
        ),
        Fact("Receivers", status.deliverers(), reverse("notify:receivers")),
        *(
            [Fact("Add receiver", "Slack, e-mail, PagerDuty, …", reverse("notify:receiver_new"))]
            if allows(viewer, "admin")
            else []
        ),
        Fact("Grafana", "Export boards to your own Grafana", reverse("dashboards:grafana")),
    )


def _hide_login(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""


CARD = Card(
    "metrics",
    "Metrics and alerts",
    "Metrics sources, alert rules and receivers.",
    40,
    facts,
    "dashboards:fleet",
    "Dashboards",
)
