"""The cost page's rows: every endpoint with its price, its counts and what its cache saved.

Promises three queries of the database and one look at Prometheus, however many endpoints there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from console.accounts.permissions import Somebody
from console.catalogue.selectors import instances
from dashboards.boards import Message, fault_message
from dashboards.cost.counting import Counted, count
from dashboards.cost.formulas import Costs, Counts, Slope, costs, per_day
from dashboards.cost.rates import rate
from dashboards.models import Calibration, RunState
from dashboards.prom import Asker
from endpoints import selectors
from endpoints.models import Endpoint

RANGES = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
DEFAULT_RANGE = "24h"


@dataclass(frozen=True, slots=True)
class Row:
    """`calibration` is the latest that measured something, `latest` the latest of all."""

    endpoint: Endpoint
    counts: Counts | None
    costs: Costs
    calibration: Calibration | None
    latest: Calibration | None

    @property
    def stale(self) -> bool:
        """Measured with other settings than the workers have now."""
        made = self.calibration
        return made is not None and made.settings_hash != self.endpoint.status.worker_hash

    @property
    def usd_hour(self) -> float | None:
        """Of the workers which are ready now."""
        each = self.costs.rate.usd_hour
        return None if each is None else each * self.endpoint.status.ready_replicas


@dataclass(frozen=True, slots=True)
class Report:
    key: str
    range_s: int
    rows: Sequence[Row]
    fault: Message | None = None

    @property
    def total(self) -> float | None:
        return _sum([row.costs.total for row in self.rows])

    @property
    def saved(self) -> float | None:
        return _sum([row.costs.saving.usd for row in self.rows if row.costs.saving])

    @property
    def usd_hour(self) -> float | None:
        return _sum([row.usd_hour for row in self.rows])

    @property
    def saved_a_day(self) -> float | None:
        return per_day(self.saved, self.range_s)


def report(prometheus: Asker, key: str, now: float, viewer: Somebody = None) -> Report:
    key = key if key in RANGES else DEFAULT_RANGE
    counted = count(prometheus, RANGES[key], now)
    message = fault_message(counted.fault) if counted.fault else None
    return Report(key, RANGES[key], _rows(counted, viewer), message)


def _rows(counted: Counted, viewer: Somebody) -> list[Row]:
    catalogue = instances()
    listed = list(
        selectors.endpoints(viewer).annotate(
            latest_run=Subquery(_latest()[:1]),
            good_run=Subquery(_latest().filter(state=RunState.DONE)[:1]),
        )
    )
    wanted = {run for one in listed for run in (one.latest_run, one.good_run) if run}
    made = Calibration.objects.in_bulk(wanted)
    rows = []
    for endpoint in listed:
        latest, good = made.get(endpoint.latest_run), made.get(endpoint.good_run)
        counts = counted.by_endpoint.get(endpoint.name)
        slope = Slope(good.seconds_per_token or 0.0) if good else None
        price = rate(endpoint.parsed, catalogue)
        found = costs(price, counts or Counts(), slope)
        rows.append(Row(endpoint, counts, found, good, latest))
    return rows


def _latest() -> QuerySet[Any, Any]:
    """For each endpoint, the id of its latest run."""
    mine = Calibration.objects.filter(endpoint=OuterRef("pk")).order_by("-created_at")
    return mine.values("pk")


def _sum(values: list[float | None]) -> float | None:
    """Of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
