"""Which Prometheus is asked about what: the fleet, or one endpoint.

Promises that everything which wants numbers gets them through `fleet` or `of_endpoint`, so that
where they are kept is decided here only.
"""

from __future__ import annotations

from django.conf import settings

from dashboards import prom
from dashboards.prom import Asker


def fleet() -> Asker:
    """Where the numbers of all endpoints are."""
    return prom.connect(settings.EMBERLINE.prometheus_url)


def of_endpoint(_name: str) -> Asker:
    """Where the numbers of that endpoint are."""
    return prom.connect(settings.EMBERLINE.prometheus_url)


def any_known() -> bool:
    """Whether there is a Prometheus to ask at all."""
    return bool(settings.EMBERLINE.prometheus_url)
