"""Measured worker seconds for an additional prompt token, for each endpoint.

An endpoint uses its own calibration, or that of one with the same model, machine and arguments. One
query for all endpoints. Calibrations with outdated settings are marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from console.accounts.permissions import Somebody
from dashboards.costs.formulas.price_terms import Needs, parse_stored_needs
from dashboards.costs.formulas.savings import HOUR_S, rate
from dashboards.costs.prices.machines import occupied_machines
from dashboards.models import Calibration
from endpoints import selectors
from endpoints.runs import RunState

_READ = (
    *("seconds_per_token", "measured_as", "settings_hash", "created_at"),
    *("endpoint__name", "endpoint__team_id"),
)


@dataclass(frozen=True, slots=True)
class KnownSlope:
    """Calibration used for an endpoint. `lent`: measured on another, equivalent endpoint."""

    calibration: Calibration
    lent: bool

    @property
    def slope(self) -> float:
        """Worker seconds for each additional prompt token."""
        return self.calibration.seconds_per_token or 0.0


def known(wanted: Iterable[tuple[Any, Needs]]) -> Mapping[Any, KnownSlope]:
    """Return calibrations by endpoint id, without endpoints that have none.

    Order: own with current settings, equivalent endpoint, own with other settings.
    """
    own: dict[Any, Calibration] = {}
    alike: dict[str, Calibration] = {}
    done = Calibration.objects.filter(state=RunState.DONE, seconds_per_token__gt=0)
    for row in done.select_related("endpoint").order_by("created_at").only(*_READ):
        own[row.endpoint_id] = row
        if row.measured_as:
            alike[row.measured_as] = row
    factors_known = {}
    for key, needs in wanted:
        mine, like = own.get(key), alike.get(needs.settings)
        if like is not None and (mine is None or mine.measured_as not in ("", needs.settings)):
            factors_known[key] = KnownSlope(like, lent=like.endpoint_id != key)
        elif mine is not None:
            factors_known[key] = KnownSlope(mine, lent=False)
    return factors_known


def by_settings() -> dict[str, float]:
    """Return the latest calibration for each settings key, in seconds a token."""
    done = Calibration.objects.filter(state=RunState.DONE, seconds_per_token__gt=0)
    rows = done.exclude(measured_as="").order_by("created_at")
    measured = rows.values_list("measured_as", "seconds_per_token")
    return {settings: seconds for settings, seconds in measured if seconds}


def factors(viewer: Somebody = None) -> Mapping[str, Mapping[str, float]]:
    """Return cost factors (USD) of the visible endpoints.

    `worker_usd_hour`: price of a worker; `saved_usd_token`: value of a cached prompt token before
    the time to load it and the cost of the cache.
    """
    catalogue = occupied_machines()
    rows = selectors.endpoints(viewer).values_list("pk", "name", "spec")
    listed = [(key, name, parse_stored_needs(spec)) for key, name, spec in rows]
    slopes = known((key, needs) for key, _, needs in listed)
    hours: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for key, name, needs in listed:
        price = rate(needs, catalogue).usd_hour
        if price is None:
            continue
        hours[name] = price
        if key in slopes:
            tokens[name] = slopes[key].slope * price / HOUR_S
    return {"worker_usd_hour": hours, "saved_usd_token": tokens}
