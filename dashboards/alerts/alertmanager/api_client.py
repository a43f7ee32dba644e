"""Alertmanagers in use and their API v2.

The Alertmanager of this installation (`ALERTMANAGER_URL`) delivers the alerts of every metrics
source that names none of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from django.utils.crypto import salted_hmac

from console.core.errors import Problem, Refused
from dashboards.prometheus.http.login import Auth, Login
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources import selectors as metrics_sources
from dashboards.prometheus.sources.selectors import OWN, Alertmanager

_API: Final = "/api/v2"
NONE_CONFIGURED: Final = Problem(
    *("", None, "No Alertmanager is configured."),
    "Install Alertmanager and run make up again, or set ALERTMANAGER_URL.",
    "no_alertmanager",
)


def own_alertmanager() -> Alertmanager | None:
    """Return the Alertmanager of this installation."""
    settings_now = settings.EMBERLINE
    if not settings_now.alertmanager_url:
        return None
    if not settings_now.alertmanager_username:
        login, why_not = metrics_sources.get_own_login()
        return Alertmanager(OWN, None, settings_now.alertmanager_url, why_not, login)
    password, why_not = "", ""
    try:
        password = own_password()
    except OSError as error:
        why_not = f"ALERTMANAGER_PASSWORD_FILE cannot be read ({error.strerror})."
    login = Login(Auth.BASIC, settings_now.alertmanager_username, password, own=True)
    return Alertmanager(OWN, None, settings_now.alertmanager_url, why_not, login)


def own_password() -> str:
    """Return the password of this installation's Alertmanager; without a file it follows from the
    installation's key, which all pods have. Raises OSError.
    """
    file = settings.EMBERLINE.alertmanager_password_file
    if file is not None:
        return file.read_text().strip()
    return salted_hmac("emberline.alertmanager", "", algorithm="sha256").hexdigest()


def list_alertmanagers() -> list[Alertmanager]:
    """Return this installation's, then those of metrics sources."""
    own = own_alertmanager()
    return [*([own] if own else []), *metrics_sources.alertmanagers()]


def of_endpoint(endpoint: str) -> list[Alertmanager]:
    """Return the Alertmanagers of an endpoint's alerts; all of them if it is empty."""
    every = list_alertmanagers()
    if not endpoint:
        return every
    owner = metrics_sources.get_source_of_endpoint(endpoint, metrics_sources.list_in_use()).name
    of_source = [rule for rule in every if rule.source == owner and owner != OWN]
    return of_source or [rule for rule in every if rule.source == OWN]


def forwards() -> Callable[[str], bool]:
    """Return a predicate: whether the console forwards an endpoint's alerts to Alertmanager,
    because its Prometheus does not send them there. An empty name means the default source.
    """
    settings_now = settings.EMBERLINE
    if not settings_now.alertmanager_url:
        return lambda _endpoint: False
    sources = metrics_sources.list_in_use()
    sent = {source.name for source in sources if source.alertmanager_url}
    if settings_now.prometheus_embedded or settings_now.alertmanager_file is None:
        sent.add(OWN)
    owners, default = metrics_sources.map_endpoints(sources), sources[0].name
    return lambda endpoint: owners.get(endpoint, default) not in sent


def call(
    manager: Alertmanager, method: str, path: str, body: Any = None, also: tuple[int, ...] = ()
) -> Any:
    """Send a request and return the decoded reply, None for statuses in `also`.

    Raises NoReplyError with the reason, for users.
    """
    if manager.why_not:
        raise NoReplyError(manager.why_not)
    reply = manager.exchange(method, f"{_API}{path}", json=body)
    if reply.status in also:
        return None
    if not 200 <= reply.status < 300:
        raise NoReplyError(f"It returned HTTP {reply.status}.")
    try:
        return json.loads(reply.body) if reply.body.strip() else None
    except ValueError:
        raise NoReplyError("The response is not from an Alertmanager.") from None


def why_unreachable() -> str:
    """Return why this installation's Alertmanager cannot be used, "" if it responds."""
    manager = own_alertmanager()
    if manager is None:
        return ""
    try:
        call(manager, "GET", "/status")
    except NoReplyError as error:
        return str(error)
    return ""


def version(manager: Alertmanager) -> tuple[int, int] | None:
    """Return the version, None if Alertmanager does not respond."""
    try:
        text = str(call(manager, "GET", "/status")["versionInfo"]["version"])
        major, minor = text.split(".")[:2]
        return int(major), int(minor)
    except (NoReplyError, KeyError, TypeError, ValueError):
        return None


def post_alerts(manager: Alertmanager, alerts: Iterable[Mapping[str, Any]]) -> None:
    """Send alerts as Prometheus does. Raises NoReplyError."""
    call(manager, "POST", "/alerts", list(alerts))


def list_silences(manager: Alertmanager) -> list[dict[str, Any]]:
    rows = call(manager, "GET", "/silences")
    if not isinstance(rows, list):
        raise NoReplyError("The response is not from an Alertmanager.")
    return rows


def get_silence(manager: Alertmanager, identity: str) -> dict[str, Any]:
    row = call(manager, "GET", f"/silence/{quote(identity, safe='')}")
    if not isinstance(row, dict):
        raise NoReplyError("The response is not from an Alertmanager.")
    return row


def put_silence(manager: Alertmanager, body: Mapping[str, Any]) -> str:
    """Create or replace (`id`) a silence and return its ID."""
    reply = call(manager, "POST", "/silences", body)
    if not isinstance(reply, dict) or not isinstance(reply.get("silenceID"), str):
        raise NoReplyError("The response is not from an Alertmanager.")
    return str(reply["silenceID"])


def expire_silence(manager: Alertmanager, identity: str) -> None:
    """Expire a silence; one that has expired or is forgotten is no error.

    Alertmanager 0.25 replies 500 for a silence it has forgotten.
    """
    call(manager, "DELETE", f"/silence/{quote(identity, safe='')}", also=(404, 500))


def refusal(manager: Alertmanager, error: Exception) -> Refused:
    where = "Alertmanager" if manager.source == OWN else f"The Alertmanager of {manager.source}"
    remedy = "Check it under System, or its address under Metrics sources, and try again."
    text = f"{where} rejected the request. {error}"
    return Refused(Problem("", None, text, remedy, "alertmanager"), status_code=502)
