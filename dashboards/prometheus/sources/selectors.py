"""Metrics sources with their logins, the endpoints they cover, and clients of the fleet and of
endpoints, with at most two database queries.

Secret files are confined to the console's folder and read each time, so that a replaced token takes
effect at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from console.clusters.selectors import default_cluster
from console.core import confined_files
from console.core.confined_files import FileRefused
from console.core.environment import PrometheusLogin
from console.vault import encryption
from dashboards.prometheus.http import client
from dashboards.prometheus.http.client import Asker, Fault, FaultKind, Prometheus
from dashboards.prometheus.http.federation import Federated, FederatedSource, RefusingAsker
from dashboards.prometheus.http.login import Auth, Login, LoginError
from dashboards.prometheus.http.session import Reply, exchange
from dashboards.prometheus.sources.models import AUTHS, FILE_NAME, MetricsSource
from dashboards.prometheus.sources.models import OWN as OWN
from endpoints import selectors as endpoints

_MOST_BYTES = 64 * 1024


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
            text = f"Metrics source {self.name} cannot be queried. {self.why_not}"
            return RefusingAsker(Fault(FaultKind.UNREACHABLE, text))
        own_name = "" if self.name == OWN else self.name
        return client.connect(self.url, self.login, own_name)


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
    refs = list_in_use()
    if len(refs) == 1:
        return refs[0].asker()
    parts = [FederatedSource(ref.name, ref.asker()) for ref in refs if ref.url]
    return Federated(parts, map_endpoints(refs))


def connect_endpoint(name: str) -> Asker:
    return get_source_of_endpoint(name, list_in_use()).asker()


def connect_endpoints(names: Collection[str]) -> Mapping[str, Asker]:
    """Return the client of each endpoint, with the queries of one."""
    refs = list_in_use()
    owners = map_endpoints(refs) if len(refs) > 1 and names else {}
    askers = {ref.name: ref.asker() for ref in refs}
    return {name: askers[owners.get(name, refs[0].name)] for name in names}


def alertmanagers() -> tuple[Alertmanager, ...]:
    """Return the Alertmanagers that metrics sources name."""
    return tuple(
        Alertmanager(
            ref.name, ref.cluster, ref.alertmanager_url.rstrip("/"), ref.why_not, ref.login
        )
        for ref in list_in_use()
        if ref.alertmanager_url
    )


def rows() -> QuerySet[MetricsSource]:
    return MetricsSource.objects.select_related("created_by")


def existing(wanted: Collection[str], _viewer: object = None) -> Collection[str]:
    return set(MetricsSource.objects.filter(name__in=wanted).values_list("name", flat=True))


def names() -> list[str]:
    return list(rows().values_list("name", flat=True))


def get(name: str) -> MetricsSource | None:
    return rows().filter(name=name).first()


def list_in_use() -> tuple[MetricsSourceRef, ...]:
    """Return the enabled sources, the default (or else the console's own) first."""
    sources = [make_source_ref(row) for row in MetricsSource.objects.filter(enabled=True)]
    default = next((source for source in sources if source.cluster is None), None) or get_own()
    return (default, *(source for source in sources if source.cluster is not None))


def any_known() -> bool:
    return bool(settings.EMBERLINE.prometheus_url) or rows().filter(enabled=True).exists()


def make_source_ref(row: MetricsSource) -> MetricsSourceRef:
    """Build the reference of any row, also of a disabled or unsaved one."""
    login, why_not = Login(), ""
    try:
        login = make_login(row)
    except LoginError as error:
        why_not = str(error)
    return MetricsSourceRef(row.name, row.url, row.cluster, login, row.alertmanager_url, why_not)


def get_own() -> MetricsSourceRef:
    login, why_not = get_own_login()
    return MetricsSourceRef(OWN, settings.EMBERLINE.prometheus_url, None, login, why_not=why_not)


def get_own_login() -> tuple[Login, str]:
    """Return the login of the console's own Prometheus, and why it cannot be used."""
    try:
        return make_own_login(settings.EMBERLINE.prometheus_login), ""
    except LoginError as error:
        return Login(own=True), str(error)


def get_folder() -> Path:
    return Path(settings.EMBERLINE.metrics_secrets)


def make_login(source: MetricsSource) -> Login:
    auth = Auth(source.auth)
    return Login(
        auth=auth,
        username=source.username,
        secret=_secret(source, "secret", source.secret_file),
        tenant=source.tenant,
        tenant_header=source.tenant_header,
        ca=source.ca,
        certificate=source.certificate,
        key=_secret(source, "key", source.key_file),
        region=source.region,
        service=source.service,
    )


def make_own_login(given: PrometheusLogin) -> Login:
    """Build the login of PROMETHEUS_URL. Raises `LoginError` when a file cannot be read."""
    return Login(
        auth=Auth(given.auth),
        username=given.username,
        secret=given.secret or _content(given.secret_file),
        tenant=given.tenant,
        ca=_content(given.ca_file),
        certificate=_content(given.certificate_file),
        key=_content(given.key_file),
        region=given.region,
        own=True,
    )


def _secret(source: MetricsSource, field: str, file: str) -> str:
    if file:
        return _read(file)
    sealed = source.sealed.get(field, "")
    if not sealed:
        return ""
    try:
        return encryption.unseal(sealed, source.purpose(field))
    except encryption.Unreadable:
        text = f"The {field} of {source.name} cannot be decrypted with the current encryption key: "
        raise LoginError(f"{text}enter it again, or append the previous key.") from None


def _read(name: str) -> str:
    if not re.fullmatch(FILE_NAME, name):
        raise LoginError(f"{name!r} is not a file name in the console's secrets folder.")
    try:
        return confined_files.read_text(str(get_folder() / name), get_folder()).strip()
    except FileRefused as refused:
        raise LoginError(f"The secret file {refused}.") from None


def _content(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "not UTF-8 text"
        raise LoginError(f"The file {path.name} cannot be read ({why}).") from None


def map_endpoints(sources: Sequence[MetricsSourceRef]) -> dict[str, str]:
    by_cluster = {source.cluster or "": source.name for source in sources}
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
    return next((source for source in sources if where and source.cluster == where), sources[0])


def _list_placements(only: str = "") -> list[tuple[str, str]]:
    """List endpoints with their clusters; endpoints without one run in the default cluster."""
    default = default_cluster()
    return [(name, cluster or default) for name, cluster in endpoints.endpoint_clusters(only)]


@dataclass(frozen=True, slots=True)
class OwnSourceSummary:
    url: str
    embedded: bool
    login: str
    why_not: str


def summarize_own() -> OwnSourceSummary:
    settings_now, own = settings.EMBERLINE, get_own()
    return OwnSourceSummary(
        client.hide_login(own.url),
        settings_now.prometheus_embedded,
        AUTHS[own.login.auth],
        own.why_not,
    )
