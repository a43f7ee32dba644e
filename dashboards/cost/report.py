"""The cost page's rows: every endpoint with its price, its counts and what its cache saved.

Promises four queries of the database and one look at Prometheus, however many endpoints there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from console.accounts.permissions import Somebody
from console.catalogue.selectors import instances
from dashboards.boards import Message, fault_message
from dashboards.cost.counting import Counted, count
from dashboards.cost.formulas import Costs, Counts, costs, per_day
from dashboards.cost.needs import Needs, of_stored
from dashboards.cost.rates import rate
from dashboards.cost.slopes import Known, known
from dashboards.models import Calibration
from dashboards.prom import Asker
from endpoints import selectors
from endpoints.models import Endpoint

RANGES = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400}
DEFAULT_RANGE = "24h"


@dataclass(frozen=True, slots=True)
class Row:
    """`known`: the measurement its saving is reckoned with; `latest`: its own latest run."""

    endpoint: Endpoint
    needs: Needs
    counts: Counts | None
    costs: Costs
    known: Known | None
    latest: Calibration | None

    @property
    def calibration(self) -> Calibration | None:
        return self.known.calibration if self.known else None

    @property
    def stale(self) -> bool:
        """Measured with other settings than the workers have now."""
        if self.known is None or self.known.lent:
            return False
        return self.known.calibration.settings_hash != self.endpoint.status.worker_hash

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
    listed = [(one, of_stored(one.spec)) for one in selectors.endpoints(viewer)]
    slopes = known((one.pk, needs) for one, needs in listed)
    latest = _latest()
    rows = []
    for endpoint, needs in listed:
        counts, measured = counted.by_endpoint.get(endpoint.name), slopes.get(endpoint.pk)
        slope = measured.slope if measured else None
        found = costs(rate(needs, catalogue), counts or Counts(), slope)
        rows.append(Row(endpoint, needs, counts, found, measured, latest.get(endpoint.pk)))
    return rows


def _latest() -> dict[Any, Calibration]:
    """By endpoint's id."""
    rows = Calibration.objects.order_by("endpoint_id", "created_at").defer("samples")
    return {row.endpoint_id: row for row in rows}


def _sum(values: list[float | None]) -> float | None:
    """Of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
