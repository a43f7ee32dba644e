"""Settings card of metrics and alerts: Prometheus, metrics sources, alert rules and receivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from console.web.shell.cards import Card, Fact
from dashboards.alerts.notify import health
from dashboards.alerts.rules import RULES
from dashboards.alerts.settings import selectors as alerting
from dashboards.prometheus.sources import selectors


def facts(_viewer: Any) -> Sequence[Fact]:
    rules = alerting.settings()
    on = sum(bool(rules.rendered(rule)) for rule in RULES)
    own = sum(one.enabled for one in rules.own)
    return (
        Fact(
            "Prometheus",
            _address(settings.EMBERLINE.prometheus_url) or "none of the console's own",
            reverse("metrics_sources:list"),
        ),
        Fact("Other sources", ", ".join(selectors.names()) or "none"),
        Fact(
            "Alert rules",
            f"{on} of {len(RULES)} built-in rules enabled, {own} custom",
            reverse("alerting:rules"),
        ),
        Fact("Receivers", health.deliverers(), reverse("notify:receivers")),
        Fact("Grafana", "Export boards to your own Grafana", reverse("dashboards:grafana")),
    )


def _address(url: str) -> str:
    """Without a user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""


CARD = Card(
    "metrics",
    "Metrics and alerts",
    "Where numbers come from, and where alerts go.",
    40,
    facts,
    "dashboards:fleet",
    "Dashboards",
)
