"""Alertmanagers of the metrics sources: which alerts they deliver, and silences over API v2.

An alert is delivered either by an Alertmanager or by the console, never by both. A silence that
concerns an Alertmanager's alerts is created there first and saved here only if that succeeded.
Unreachable Alertmanagers raise `Refused`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from console.core.errors import Problem, Refused
from dashboards.alerts.notify.protocol.alert import TEAM
from dashboards.alerts.notify.protocol.matchers import Matchers
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources import selectors as metrics_sources
from dashboards.prometheus.sources.selectors import Alertmanager

log = logging.getLogger(__name__)
_API: Final = "/api/v2"


@dataclass(frozen=True, slots=True)
class ForeignSilence:
    """Silence created in an Alertmanager by others."""

    source: str
    id: str
    matchers: tuple[str, ...]
    starts_at: str
    ends_at: str
    author: str
    comment: str


@dataclass(frozen=True, slots=True)
class AlertmanagerSnapshot:
    """`ended`: ids of our silences that expired there; `why`: an error for each unreachable
    source."""

    foreign: tuple[ForeignSilence, ...] = ()
    ended: frozenset[str] = frozenset()
    why: tuple[str, ...] = ()


def alertmanagers_of(endpoint: str) -> list[Alertmanager]:
    """Return the Alertmanagers that may have alerts of the endpoint; all of them if it is empty."""
    found = list(metrics_sources.alertmanagers())
    if not found or not endpoint:
        return found
    sources = metrics_sources.list_in_use()
    owner = metrics_sources.get_source_of_endpoint(endpoint, sources).name
    return [one for one in found if one.source == owner]


def alertmanager_delivers() -> Callable[[str], bool]:
    """Return a predicate: whether an Alertmanager delivers the alerts of an endpoint.

    An empty endpoint name means the default source.
    """
    having = {one.source for one in metrics_sources.alertmanagers()}
    if not having:
        return lambda _endpoint: False
    sources = metrics_sources.list_in_use()
    owners, default = metrics_sources.map_endpoints(sources), sources[0].name
    return lambda endpoint: owners.get(endpoint, default) in having


@dataclass(frozen=True, slots=True)
class DesiredSilence:
    """Silence as it should exist in an Alertmanager."""

    conditions: Matchers
    starts_at: datetime
    ends_at: datetime
    author: str
    comment: str

    def body(self) -> dict[str, Any]:
        return {
            "matchers": [
                {
                    "name": one.name,
                    "value": one.value,
                    "isRegex": one.op.endswith("~"),
                    "isEqual": not one.op.startswith("!"),
                }
                for one in self.conditions
            ],
            "startsAt": self.starts_at.isoformat(),
            "endsAt": self.ends_at.isoformat(),
            "createdBy": self.author,
            "comment": self.comment or "Acknowledged in Emberline",  # Alertmanager requires one
        }


def create_silence(managers: Iterable[Alertmanager], wanted: DesiredSilence) -> dict[str, str]:
    """Create the silence in each Alertmanager and return its ids by source.

    Raise `Refused` on failure, after the silences created so far are expired.
    """
    queried = list(managers)
    _judge(queried, wanted)
    made: dict[str, str] = {}
    for one in queried:
        try:
            made[one.source] = _posted(one, wanted.body())
        except (NoReplyError, KeyError, TypeError) as error:
            _take_back(queried, made)
            raise _away(one, error) from None
    return made


def replace_silence(
    managers: Iterable[Alertmanager],
    remote: Mapping[str, str],
    before: DesiredSilence,
    after: DesiredSilence,
) -> tuple[dict[str, str], Refused | None]:
    """Change the silence; return its ids by source, and the error if the change was rolled back.

    An Alertmanager may assign another id even on rollback. Where the silence no longer applies it
    is expired.
    """
    queried, now = list(managers), dict(remote)
    _judge(queried, after)
    done: list[Alertmanager] = []
    for one in queried:
        try:
            now[one.source] = _put(one, now.get(one.source), after)
            done.append(one)
        except (NoReplyError, KeyError, TypeError) as error:
            return _put_back(done, remote, now, before), _away(one, error)
    kept = {one.source for one in queried}
    try:
        expire_silences(
            {source: identity for source, identity in now.items() if source not in kept}
        )
    except Refused as refused:
        return _put_back(done, remote, now, before), refused
    return {source: identity for source, identity in now.items() if source in kept}, None


def _judge(managers: list[Alertmanager], wanted: DesiredSilence) -> None:
    if managers and any(one.name == TEAM for one in wanted.conditions):
        text = "Alertmanager has no label team."
        raise Refused(Problem("matchers", TEAM, text, "Match endpoints instead.", "team"))


def _put(one: Alertmanager, identity: str | None, wanted: DesiredSilence) -> str:
    """Replace the silence with that id; create a new one if the Alertmanager has forgotten it."""
    if identity is not None:
        found = _call_api(one, "POST", "/silences", {**wanted.body(), "id": identity}, also=(404,))
        if found is not None:
            return str(found["silenceID"])
    return _posted(one, wanted.body())


def _posted(one: Alertmanager, body: dict[str, Any]) -> str:
    return str(_call_api(one, "POST", "/silences", body)["silenceID"])


def _deleted(one: Alertmanager, identity: str, also: tuple[int, ...] = ()) -> None:
    _call_api(one, "DELETE", f"/silence/{quote(identity, safe='')}", None, also)


def _put_back(
    done: list[Alertmanager], remote: Mapping[str, str], now: dict[str, str], before: DesiredSilence
) -> dict[str, str]:
    """Restore the silence; what cannot be restored is logged and keeps its id."""
    _take_back(done, {source: now.pop(source) for source in [*now] if source not in remote})
    for one in done:
        if one.source in remote:
            try:
                now[one.source] = _put(one, now[one.source], before)
            except (NoReplyError, KeyError, TypeError) as error:
                log.warning(
                    "Alertmanager of %s: could not restore a silence: %s", one.source, error
                )
    return now


def expire_silences(remote: Mapping[str, str]) -> None:
    """Expire the silences; unknown sources and silences already expired are skipped.

    Raise `Refused` if an Alertmanager does not respond.
    """
    known = {one.source: one for one in metrics_sources.alertmanagers()}
    for source, identity in remote.items():
        if source in known:
            try:
                _deleted(known[source], identity, also=(404, 500))
            except NoReplyError as error:
                raise _away(known[source], error) from None


def take_snapshot(ours: Iterable[str]) -> AlertmanagerSnapshot:
    """Return the silences of others, and which of `ours` have expired there."""
    mine = set(ours)
    foreign: list[ForeignSilence] = []
    ended: set[str] = set()
    why: list[str] = []
    for one in metrics_sources.alertmanagers():
        try:
            rows = _call_api(one, "GET", "/silences", None)
            for row in rows:
                over = row["status"]["state"] == "expired"
                if row["id"] in mine:
                    ended |= {row["id"]} if over else set()
                elif not over:
                    foreign.append(_foreign(one.source, row))
        except (NoReplyError, KeyError, TypeError, AttributeError) as error:
            why.append(str(_away(one, error)))
    return AlertmanagerSnapshot(tuple(foreign), frozenset(ended), tuple(why))


def _foreign(source: str, row: Any) -> ForeignSilence:
    shown = []
    for one in row["matchers"]:
        op = ("" if one.get("isEqual", True) else "!") + ("~" if one["isRegex"] else "")
        sign = {"": "=", "!": "!=", "~": "=~", "!~": "!~"}[op]
        shown.append(f"{one['name']}{sign}{json.dumps(one['value'], ensure_ascii=False)}")
    return ForeignSilence(
        source,
        str(row["id"]),
        tuple(shown),
        str(row["startsAt"]),
        str(row["endsAt"]),
        str(row.get("createdBy", "")),
        str(row.get("comment", "")),
    )


def _call_api(
    one: Alertmanager, method: str, path: str, body: Any, also: tuple[int, ...] = ()
) -> Any:
    """Send a request and return the decoded reply, None for statuses in `also`.

    Alertmanager 0.25 replies 500 for a silence it has forgotten.
    """
    if one.why_not:
        raise NoReplyError(one.why_not)
    reply = one.exchange(method, f"{_API}{path}", json=body)
    if reply.status in also:
        return None
    if not 200 <= reply.status < 300:
        raise NoReplyError(f"It returned HTTP {reply.status}.")
    try:
        return json.loads(reply.body) if reply.body.strip() else None
    except ValueError:
        raise NoReplyError("The response is not from an Alertmanager.") from None


def _take_back(managers: Iterable[Alertmanager], made: dict[str, str]) -> None:
    for one in managers:
        if one.source in made:
            try:
                _deleted(one, made[one.source])
            except NoReplyError as error:
                log.warning("Alertmanager of %s: could not expire a silence: %s", one.source, error)


def _away(one: Alertmanager, error: Exception) -> Refused:
    words = str(error) if isinstance(error, NoReplyError) else "Its response is invalid."
    text = f"The Alertmanager of {one.source} rejected the change. {words}"
    remedy = "Check its address under Metrics sources, or try again later."
    return Refused(Problem("", None, text, remedy, "alertmanager"), status_code=502)
