"""How often what a Prometheus keeps was measured, as its own samples tell.

Promises that a rate looks back far enough for whoever scrapes: our own Prometheus does it every
five seconds, one in a cluster every fifteen, thirty or sixty, and a rate over twenty seconds would
find nothing there. Asked once in ten minutes for each endpoint, and for the fleet.
"""

from __future__ import annotations

from dashboards import queries
from dashboards.prom import Asker, Question
from dashboards.queries import SCRAPE_S, Scope

KEPT_S = 600
_MOST = 10_000  # of endpoints remembered

_known: dict[str, tuple[float, int]] = {}


def interval_s(asker: Asker, scope: Scope, now: float) -> int:
    """Never less than our own Prometheus' interval, which is also what is assumed when nothing is
    told."""
    learned, interval = _known.get(scope.endpoint, (0.0, 0))
    if interval and 0 <= now - learned < KEPT_S:
        return interval
    at = int(now) // SCRAPE_S * SCRAPE_S
    question = Question(queries.scraped_every(scope), at, join="max")
    found = asker.ask({"scraped_every": question})["scraped_every"].series
    told = next((series.latest for series in found if series.latest is not None), None)
    if told is None:
        return SCRAPE_S
    if len(_known) >= _MOST:
        _known.clear()
    _known[scope.endpoint] = now, max(SCRAPE_S, round(told))
    return _known[scope.endpoint][1]


def forget() -> None:
    """Another Prometheus may be asked from now on."""
    _known.clear()
