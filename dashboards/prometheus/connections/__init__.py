"""Which Prometheus is asked about what: the fleet, or one endpoint.

Promises that everything which wants numbers gets them through `fleet` or `of_endpoint`, so that
where they are kept is decided here only; and that asking makes two queries of the database at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dashboards.prometheus.http.client import Asker
from dashboards.prometheus.http.federation import Federated, FederatedSource
from dashboards.prometheus.http.login import Login
from dashboards.prometheus.http.session import Reply, exchange
from dashboards.prometheus.sources import selectors


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """The one beside the source of that name. `cluster`: whose endpoints' alerts it has;
    None stands for all that have no source of their own. `why_not`: why it cannot be asked."""

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
        """`path` begins with a slash, as in "/api/v2/silences". Raises `NoReplyError`."""
        url = f"{self.url}{path}"
        return exchange(self.login, method, url, json=json, params=params, deadline_s=deadline_s)


def fleet() -> Asker:
    """Where the numbers of all endpoints are: one Prometheus, or several as if they were one."""
    found = selectors.asked()
    if len(found) == 1:
        return found[0].asker()
    parts = [FederatedSource(one.name, one.asker()) for one in found if one.url]
    return Federated(parts, selectors.owners(found))


def of_endpoint(name: str) -> Asker:
    """Where the numbers of that endpoint are."""
    return selectors.source_of(name, selectors.asked()).asker()


def any_known() -> bool:
    """Whether there is a Prometheus to ask at all."""
    return selectors.any_known()


def alertmanagers() -> tuple[Alertmanager, ...]:
    """Those which sources name; where there is none the console tells people itself."""
    return tuple(
        Alertmanager(
            one.name, one.cluster, one.alertmanager_url.rstrip("/"), one.why_not, one.login
        )
        for one in selectors.asked()
        if one.alertmanager_url
    )
