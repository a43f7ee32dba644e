"""What Prometheus is told of prices, so that boards in somebody's Grafana can show money, too.

A price that is not known is absent, never nought.
"""

from __future__ import annotations

from collections.abc import Sequence

from console.processkit.metrics import Registry
from dashboards.cost.factors import factors
from dashboards.grafana.export.expressions import FACTORS
from dashboards.prometheus.collector import Told

_TEXTS = {
    "worker_usd_hour": "What a worker of the endpoint costs an hour, in US dollars.",
    "saved_usd_token": "What a prompt token found in a cache saves, in US dollars.",
}
Price = tuple[str, str, float]


class Prices(Told[Price]):
    unknown = "prices_unknown"

    def read(self) -> Sequence[Price]:
        return [
            (factor, name, value)
            for factor, known in factors().items()
            for name, value in known.items()
        ]

    def tell(self, registry: Registry, row: Price) -> None:
        factor, name, value = row
        registry.gauge(FACTORS[factor], _TEXTS[factor], endpoint_name=name).set(value)
