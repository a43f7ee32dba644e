"""Prometheus clients of the fleet and of endpoints, with at most two database queries;
Alertmanagers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboards.prometheus.http.client import Asker
from dashboards.prometheus.http.federation import Federated, FederatedSource
from dashboards.prometheus.http.login import Login
from dashboards.prometheus.http.session import Reply, exchange
from dashboards.prometheus.sources import selectors


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Alertmanager of the metrics source `name`. `cluster`: the cluster whose alerts it holds; None
    means all clusters without a source of their own. `why_not`: reason it cannot be queried.
    """

    source: str
    cluster: str | None
    url: str
    why_not: str = ""
    login: Login = field(default_factory=Login, repr=False)

    def exchange(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Any = None,
        deadline_s: float = 5.0,
    ) -> Reply:
        url = f"{self.url}{path}"
        return exchange(self.login, method, url, json=json, params=params, deadline_s=deadline_s)


def fleet() -> Asker:
    found = selectors.list_in_use()
    if len(found) == 1:
        return found[0].asker()
    parts = [FederatedSource(one.name, one.asker()) for one in found if one.url]
    return Federated(parts, selectors.map_endpoints(found))


def connect_endpoint(name: str) -> Asker:
    return selectors.get_source_of_endpoint(name, selectors.list_in_use()).asker()


def connect_endpoints(names: Collection[str]) -> Mapping[str, Asker]:
    """Return the client of each endpoint, with the queries of one."""
    found = selectors.list_in_use()
    owners = selectors.map_endpoints(found) if len(found) > 1 and names else {}
    askers = {one.name: one.asker() for one in found}
    return {name: askers[owners.get(name, found[0].name)] for name in names}


def any_known() -> bool:
    return selectors.any_known()


def alertmanagers() -> tuple[Alertmanager, ...]:
    return tuple(
        Alertmanager(
            one.name, one.cluster, one.alertmanager_url.rstrip("/"), one.why_not, one.login
        )
        for one in selectors.list_in_use()
        if one.alertmanager_url
    )
