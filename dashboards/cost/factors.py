"""What the console knows of each endpoint's prices, for panels which Prometheus cannot reckon.

Promises two queries however many endpoints, and that an unknown price is absent, never nought.
"""

from __future__ import annotations

from collections.abc import Mapping

from console.accounts.permissions import Somebody
from console.catalogue.selectors import instances
from dashboards.cost.rates import rate
from dashboards.costs.formulas.price_terms import of_stored
from dashboards.costs.prices.factors import known
from endpoints import selectors

HOUR_S = 3600.0


def factors(viewer: Somebody = None) -> Mapping[str, Mapping[str, float]]:
    """Of the endpoints the viewer may see, in US dollars: `worker_usd_hour` is what a worker costs
    an hour, `saved_usd_token` what a prompt token found in a cache is worth, before the time of
    bringing it back and the cache's own cost."""
    catalogue = instances()
    rows = selectors.endpoints(viewer).values_list("pk", "name", "spec")
    listed = [(key, name, of_stored(spec)) for key, name, spec in rows]
    slopes = known((key, needs) for key, _, needs in listed)
    hours: dict[str, float] = {}
    tokens: dict[str, float] = {}
    for key, name, needs in listed:
        price = rate(needs, catalogue).usd_hour
        if price is None:
            continue
        hours[name] = price
        if key in slopes:
            tokens[name] = slopes[key].slope.seconds_per_token * price / HOUR_S
    return {"worker_usd_hour": hours, "saved_usd_token": tokens}
