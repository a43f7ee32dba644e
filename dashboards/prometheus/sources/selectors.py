"""Read metrics sources in one query and map endpoints to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import QuerySet

from console.clusters.selectors import default_cluster
from dashboards.prometheus.http import client
from dashboards.prometheus.http.client import Fault, FaultKind, Prometheus
from dashboards.prometheus.http.federation import RefusingAsker
from dashboards.prometheus.http.login import Login, LoginError
from dashboards.prometheus.sources import credentials
from dashboards.prometheus.sources.models import MetricsSource
from endpoints import selectors as endpoints

OWN = "console"  # the console's own Prometheus: PROMETHEUS_URL, or started by `make up`


@dataclass(frozen=True, slots=True)
class MetricsSourceRef:
    """A source with its login. `cluster` None is the default; `why_not`: reason it cannot be
    queried.
    """

    name: str
    url: str
    cluster: str | None
    login: Login
    alertmanager_url: str = ""
    why_not: str = ""

    def asker(self) -> Prometheus | RefusingAsker:
        if self.why_not:
            text = f"The metrics source {self.name} cannot be asked. {self.why_not}"
            return RefusingAsker(Fault(FaultKind.UNREACHABLE, text))
        shown = "" if self.name == OWN else self.name
        return client.connect(self.url, self.login, shown)


def rows() -> QuerySet[MetricsSource]:
    return MetricsSource.objects.select_related("created_by")


def names() -> list[str]:
    return list(rows().values_list("name", flat=True))


def get(name: str) -> MetricsSource | None:
    return rows().filter(name=name).first()


def list_in_use() -> tuple[MetricsSourceRef, ...]:
    """Return the enabled sources, the default (or else the console's own) first."""
    found = [make_source_ref(row) for row in MetricsSource.objects.filter(enabled=True)]
    default = next((one for one in found if one.cluster is None), None) or get_own()
    return (default, *(one for one in found if one.cluster is not None))


def any_known() -> bool:
    return bool(settings.EMBERLINE.prometheus_url) or rows().filter(enabled=True).exists()


def make_source_ref(row: MetricsSource) -> MetricsSourceRef:
    """Build the reference of any row, also of a disabled or unsaved one."""
    login, why_not = Login(), ""
    try:
        login = credentials.make_login(row)
    except LoginError as error:
        why_not = str(error)
    return MetricsSourceRef(row.name, row.url, row.cluster, login, row.alertmanager_url, why_not)


def get_own() -> MetricsSourceRef:
    facts = settings.EMBERLINE
    login, why_not = Login(own=True), ""
    try:
        login = credentials.make_own_login(facts.prometheus_login)
    except LoginError as error:
        why_not = str(error)
    return MetricsSourceRef(OWN, facts.prometheus_url, None, login, facts.alertmanager_url, why_not)


def map_endpoints(sources: Sequence[MetricsSourceRef]) -> dict[str, str]:
    by_cluster = {one.cluster or "": one.name for one in sources}
    default = by_cluster[""]
    return {name: by_cluster.get(cluster, default) for name, cluster in _list_placements()}


def get_source_of_endpoint(endpoint: str, sources: Sequence[MetricsSourceRef]) -> MetricsSourceRef:
    if len(sources) == 1:
        return sources[0]
    return get_source_of_cluster(
        next((cluster for _, cluster in _list_placements(endpoint)), ""), sources
    )


def get_source_of_cluster(cluster: str, sources: Sequence[MetricsSourceRef]) -> MetricsSourceRef:
    where = cluster or default_cluster()
    return next((one for one in sources if where and one.cluster == where), sources[0])


def _list_placements(only: str = "") -> list[tuple[str, str]]:
    """List endpoints with their clusters; endpoints without one run in the default cluster."""
    default = default_cluster()
    return [(name, cluster or default) for name, cluster in endpoints.endpoint_clusters(only)]


LOGINS = {
    "none": "nothing",
    "bearer": "a bearer token",
    "basic": "a user name and a password",
    "sigv4": "AWS' signature",
    "mtls": "a client's certificate",
}


@dataclass(frozen=True, slots=True)
class OwnSourceSummary:
    url: str
    embedded: bool
    login: str
    why_not: str


def summarize_own() -> OwnSourceSummary:
    facts, found = settings.EMBERLINE, get_own()
    return OwnSourceSummary(
        client.hide_login(found.url),
        facts.prometheus_embedded,
        LOGINS[found.login.auth],
        found.why_not,
    )
