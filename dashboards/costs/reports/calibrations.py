"""Calibrations by endpoint: the value in use, the latest run and the switch."""

from __future__ import annotations

from dataclasses import dataclass

from console.accounts.permissions import Somebody, allows
from dashboards.calibration_switches import read_switches
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.prices.factors import KnownSlope, known
from dashboards.costs.reports.endpoints import latest_runs
from dashboards.models import Calibration
from endpoints import selectors
from endpoints.models import Endpoint


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """`own`: the endpoint's own switch, None for the default; `enabled`: the effective one."""

    endpoint: Endpoint
    known: KnownSlope | None
    latest: Calibration | None
    own: bool | None
    enabled: bool
    may_operate: bool
    lent_by: str = ""

    @property
    def stale(self) -> bool:
        """Return whether the workers' settings changed since the calibration."""
        if self.known is None or self.known.lent:
            return False
        return self.known.calibration.settings_hash != self.endpoint.status.worker_hash


def list_calibrations(viewer: Somebody) -> list[CalibrationRow]:
    """Return the visible endpoints by name; the number of queries is constant."""
    listed = [(one, parse_stored_needs(one.spec)) for one in selectors.endpoints(viewer)]
    slopes = known((one.pk, needs) for one, needs in listed)
    latest, switches = latest_runs(), read_switches()
    names = {one.name for one, _ in listed}
    rows = []
    for endpoint, _ in listed:
        found = slopes.get(endpoint.pk)
        source = found.calibration.endpoint.name if found and found.lent else ""
        rows.append(
            CalibrationRow(
                endpoint,
                found,
                latest.get(endpoint.pk),
                switches.of.get(endpoint.pk),
                switches.enabled(endpoint.pk),
                allows(viewer, "operator", of=endpoint),
                source if source in names else "",
            )
        )
    return rows
