"""What this room says on the Settings page: where numbers come from, and where alerts go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse

from console.web.cards import Card, Fact
from dashboards.metrics_sources import selectors


def facts(_viewer: Any) -> Sequence[Fact]:
    return (
        Fact(
            "Prometheus",
            _address(settings.EMBERLINE.prometheus_url) or "none of the console's own",
            reverse("metrics_sources:list"),
        ),
        Fact("Other sources", ", ".join(selectors.names()) or "none"),
        Fact("Alert rules", "alerts.yml, for Prometheus", reverse("dashboards:alert_rules")),
        Fact("Grafana", "use your own", reverse("dashboards:grafana")),
        Fact("Receivers", "those of the Alertmanager beside that Prometheus"),
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
