"""Silences and acknowledgements in Alertmanager: list, create, change, expire.

Alertmanager keeps them; the console adds rights and the audit log. A silence of one endpoint needs
the operator role on it; one that may match several endpoints needs it on the platform. An
acknowledgement is a silence of one rule and endpoint whose comment begins with `ACK!` (a
convention that karma shares); the console ends it when its alert is resolved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.accounts.permissions import allows, require, require_in_any_team
from console.api.bodies import read_body
from console.audit.record import diff, record
from console.core.errors import Problem, Refused
from dashboards import selectors as dashboards_selectors
from dashboards.alerts.alertmanager import api_client
from dashboards.alerts.alertmanager.config import matchers
from dashboards.alerts.alertmanager.config.matchers import Matcher, Matchers
from dashboards.alerts.alertmanager.silence_fields import (
    LONGEST,
    AcknowledgementFields,
    SilenceFields,
)
from dashboards.alerts.evaluation import firing_alerts
from dashboards.prometheus.http.session import NoReplyError
from dashboards.prometheus.sources import selectors as connections
from dashboards.prometheus.sources.selectors import Alertmanager
from endpoints import selectors as endpoints

log = logging.getLogger(__name__)
STATES: Final = ("active", "pending", "expired")
KINDS: Final = (("silence", "Silence"), ("acknowledgement", "Acknowledgement"))
ACKNOWLEDGED: Final = "ACK!"
_LONGEST_ACKNOWLEDGEMENT_S: Final = 7 * 86_400
_DEFAULT_S = 2 * 3600
_MOST = 1000
_OPERATORS: Final = {
    (True, False): "=",
    (False, False): "!=",
    (True, True): "=~",
    (False, True): "!~",
}
"""By isEqual and isRegex of the API."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Silence of the Alertmanager of the metrics source `source`. `endpoint`: the only one that
    it matches, else "".
    """

    id: str
    source: str
    conditions: Matchers
    starts_at: datetime
    ends_at: datetime
    author: str
    comment: str
    state: str
    updated_at: datetime

    @property
    def acknowledges(self) -> bool:
        return self.comment.startswith(ACKNOWLEDGED)

    @property
    def kind(self) -> str:
        return "acknowledgement" if self.acknowledges else "silence"

    @property
    def reason(self) -> str:
        return self.comment.removeprefix(ACKNOWLEDGED).strip()

    @property
    def endpoint(self) -> str:
        return matchers.pinned_value(self.conditions, "endpoint")


@dataclass(frozen=True, slots=True)
class SilenceList:
    """Visible silences, the latest first. `faults`: Alertmanagers that did not respond."""

    rows: tuple[Silence, ...] = ()
    faults: tuple[str, ...] = ()

    def muting(self, labels: Mapping[str, str]) -> Silence | None:
        """Return the active silence or acknowledgement of an alert."""
        active = (row for row in self.rows if row.state == "active")
        return next(
            (silence for silence in active if matchers.matches(silence.conditions, labels)), None
        )


def list_silences(viewer: Any) -> SilenceList:
    """Return the silences of all Alertmanagers. Those of one endpoint are visible to users who may
    see it, all others to users with a role on the whole platform.
    """
    read = _read(api_client.list_alertmanagers())
    if allows(viewer, "viewer"):
        return read
    pinned = [row.endpoint for row in read.rows if row.endpoint]
    visible = endpoints.existing(pinned, viewer)
    return SilenceList(tuple(row for row in read.rows if row.endpoint in visible), read.faults)


def get(viewer: Any, identity: str) -> Silence:
    """Raise `Refused` (404) if there is no such silence that the viewer may see."""
    listed = list_silences(viewer)
    row = next((row for row in listed.rows if row.id == identity), None)
    if row is None:
        text, remedy = "Unknown silence.", "Select one from the list."
        if listed.faults:
            text = " ".join((text, *listed.faults))
        raise Refused(Problem("silence", identity[:80], text, remedy, "not_found"), status_code=404)
    return row


def create(actor: Any, data: Any) -> list[Silence]:
    """Create the silence in each Alertmanager concerned; return one row for each."""
    require_in_any_team(actor, "operator")
    return _create(actor, read_body(SilenceFields, data), "silence.create")


def acknowledge(actor: Any, data: Any) -> list[Silence]:
    """Acknowledge the firing alerts of a rule and endpoint ("" for alerts without endpoint)."""
    values = read_body(AcknowledgementFields, data)
    alert, endpoint = values["alert"], values["endpoint"]
    _expect_firing(actor, alert, endpoint)
    conditions = Matcher("alertname", "=", alert), Matcher("endpoint", "=", endpoint)
    for row in list_silences(actor).rows:
        if row.acknowledges and row.state == "active" and set(row.conditions) == set(conditions):
            text = f"{alert} is already acknowledged by {row.author}."
            remedy = "Undo that acknowledgement first to replace it."
            raise Refused(Problem("alert", alert, text, remedy, "acknowledged"), status_code=409)
    fields = {
        "matchers": conditions,
        "comment": f"{ACKNOWLEDGED} {values['note']}".strip(),
        "duration": values.get("duration") or _LONGEST_ACKNOWLEDGEMENT_S,
    }
    return _create(actor, fields, "acknowledgement.create")


def _create(actor: Any, values: Mapping[str, Any], verb: str) -> list[Silence]:
    conditions, times = values["matchers"], _times(values, None, timezone.now())
    endpoint = _bound_to(actor, conditions)
    managers = api_client.of_endpoint(endpoint.name if endpoint is not None else "")
    if not managers:
        raise Refused(api_client.NONE_CONFIGURED, status_code=409)
    body = make_body(conditions, times, actor.get_username(), values["comment"])
    made: list[Silence] = []
    for manager in managers:
        try:
            made.append(_put(manager, body))
        except NoReplyError as error:
            _take_back(made)
            raise api_client.refusal(manager, error) from None
    for row in made:
        record(actor, verb, f"silence/{row.id}", _facts(row, starts=False), of=endpoint)
    return made


def change(actor: Any, row: Silence, data: Any) -> Silence:
    """Set the given fields. A started silence keeps its start; an expired one cannot be changed.

    Alertmanager may give the changed silence another ID.
    """
    require(actor, "operator", of=_endpoint_of(row))
    if row.state == "expired":
        text, remedy = "This silence has expired.", "Create a new one."
        raise Refused(Problem("", None, text, remedy, "ended"), status_code=409)
    values = read_body(SilenceFields, data, partial=True)
    conditions = values.get("matchers", row.conditions)
    times = _times(values, row, timezone.now())
    comment = values.get("comment", row.comment)
    if row.acknowledges:
        comment = f"{ACKNOWLEDGED} {comment.removeprefix(ACKNOWLEDGED).strip()}".strip()
    endpoint = _bound_to(actor, conditions)
    manager = _manager(row)
    body = {**make_body(conditions, times, row.author, comment), "id": row.id}
    try:
        after = _put(manager, body)
    except NoReplyError as error:
        raise api_client.refusal(manager, error) from None
    record(
        actor,
        "silence.update",
        f"silence/{after.id}",
        diff(_facts(row), _facts(after)),
        of=endpoint,
    )
    return after


def expire(actor: Any, row: Silence) -> None:
    """Expire the silence now; no effect if it has already expired."""
    endpoint = _endpoint_of(row)
    require(actor, "operator", of=endpoint)
    if row.state == "expired":
        return
    _expire(row)
    verb = "acknowledgement.end" if row.acknowledges else "silence.end"
    details = {"matchers": [str(condition) for condition in row.conditions]}
    record(actor, verb, f"silence/{row.id}", details, of=endpoint)


def end_resolved(rows: Iterable[Silence], firing: Sequence[Mapping[str, str]]) -> None:
    """End the active acknowledgements whose alerts are not among the labels of `firing`."""
    for row in rows:
        live = row.acknowledges and row.state == "active"
        if live and not any(matchers.matches(row.conditions, labels) for labels in firing):
            try:
                _expire(row)
            except Refused as refused:
                log.warning("could not end acknowledgement %s: %s", row.id, refused)


def read_acknowledgements() -> list[Silence]:
    """Return the active acknowledgements of all Alertmanagers."""
    rows = _read(api_client.list_alertmanagers()).rows
    return [row for row in rows if row.acknowledges and row.state == "active"]


def make_fault(faults: Iterable[str]) -> Refused:
    """Return the error of a list that would be incomplete."""
    remedy = "Check Alertmanager under System, and try again."
    return Refused(Problem("", None, " ".join(faults), remedy, "alertmanager"), status_code=502)


def _read(managers: Iterable[Alertmanager]) -> SilenceList:
    rows: list[Silence] = []
    faults: list[str] = []
    for manager in managers:
        try:
            rows += [
                _parse(manager.source, silence) for silence in api_client.list_silences(manager)
            ]
        except (NoReplyError, KeyError, TypeError, AttributeError) as error:
            faults.append(str(api_client.refusal(manager, error)))
    rows.sort(key=lambda one: (one.updated_at, one.id), reverse=True)
    return SilenceList(tuple(rows[:_MOST]), tuple(faults))


def _parse(source: str, row: Mapping[str, Any]) -> Silence:
    conditions = tuple(
        Matcher(
            str(matcher["name"]),
            _OPERATORS[bool(matcher.get("isEqual", True)), bool(matcher["isRegex"])],
            str(matcher["value"]),
        )
        for matcher in row["matchers"]
    )
    return Silence(
        id=str(row["id"]),
        source=source,
        conditions=conditions,
        starts_at=_time(row["startsAt"]),
        ends_at=_time(row["endsAt"]),
        author=str(row.get("createdBy", "")),
        comment=str(row.get("comment", "")),
        state=str(row["status"]["state"]),
        updated_at=_time(row.get("updatedAt") or row["startsAt"]),
    )


def _time(text: str) -> datetime:
    moment = parse_datetime(text)
    if moment is None:
        raise TypeError(f"invalid time {text[:40]!r}")
    return moment


def make_body(
    conditions: Matchers, times: tuple[datetime, datetime], author: str, comment: str
) -> dict[str, Any]:
    return {
        "matchers": [
            {
                "name": condition.name,
                "value": condition.value,
                "isRegex": condition.op.endswith("~"),
                "isEqual": not condition.op.startswith("!"),
            }
            for condition in conditions
        ],
        "startsAt": times[0].isoformat(),
        "endsAt": times[1].isoformat(),
        "createdBy": author,
        "comment": comment,
    }


def _put(manager: Alertmanager, body: Mapping[str, Any]) -> Silence:
    """Create or replace the silence and return it as Alertmanager keeps it."""
    identity = api_client.put_silence(manager, body)
    try:
        return _parse(manager.source, api_client.get_silence(manager, identity))
    except (KeyError, TypeError, AttributeError):
        raise NoReplyError("The response is not from an Alertmanager.") from None


def _take_back(made: Iterable[Silence]) -> None:
    for row in made:
        try:
            _expire(row)
        except Refused as refused:
            log.warning("silence %s not taken back: %s", row.id, refused)


def _expire(row: Silence) -> None:
    manager = _manager(row)
    try:
        api_client.expire_silence(manager, row.id)
    except NoReplyError as error:
        raise api_client.refusal(manager, error) from None


def _manager(row: Silence) -> Alertmanager:
    every = api_client.list_alertmanagers()
    manager = next((manager for manager in every if manager.source == row.source), None)
    if manager is None:
        raise Refused(api_client.NONE_CONFIGURED, status_code=409)
    return manager


def _endpoint_of(row: Silence) -> Any:
    return endpoints.endpoints().filter(name=row.endpoint).first() if row.endpoint else None


def _facts(row: Silence, *, starts: bool = True) -> dict[str, Any]:
    details = {
        "matchers": [str(condition) for condition in row.conditions],
        "starts_at": row.starts_at,
        "ends_at": row.ends_at,
        "comment": row.reason,
    }
    return details if starts else {k: v for k, v in details.items() if k != "starts_at"}


def _expect_firing(actor: Any, alert: str, endpoint: str) -> None:
    """Raise `Refused` if the alert is known not to fire."""
    scope = dashboards_selectors.get_fleet_scope(actor)
    firing = firing_alerts.query_firing(connections.fleet(), scope)
    if firing.why or any(
        (firing_alert.name, firing_alert.endpoint) == (alert, endpoint)
        for firing_alert in firing.alerts
    ):
        return
    whose = f"{alert} of {endpoint}" if endpoint else alert
    text = f"{whose} is not firing, so there is nothing to acknowledge."
    remedy = "To suppress notifications in advance, create a silence."
    raise Refused(Problem("alert", alert, text, remedy, "not_firing"), status_code=409)


def _bound_to(actor: Any, conditions: Matchers) -> Any:
    """Return the only endpoint matched; None if there are several and the actor is a platform
    operator.
    """
    name = matchers.pinned_value(conditions, "endpoint")
    bound = endpoints.endpoints(actor).filter(name=name).first() if name else None
    if bound is not None:
        require(actor, "operator", of=bound)
    elif not allows(actor, "operator"):
        text = (
            f"Unknown endpoint {name}." if name else "The matchers may match other teams' alerts."
        )
        remedy = 'Add a matcher for one of your endpoints: endpoint="NAME".'
        problem = Problem("matchers", name, text, remedy, "endpoint_needed")
        raise Refused(problem, status_code=403)
    return bound


def _times(
    values: Mapping[str, Any], row: Silence | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return start and end."""
    wished = values.get("starts_at")
    if row is not None and row.starts_at <= now:
        if wished not in (None, row.starts_at):
            text, remedy = "The silence has started.", "Leave the start unchanged."
            raise Refused(Problem("starts_at", wished, text, remedy, "begun"))
        starts = row.starts_at
    elif wished is None:
        starts = row.starts_at if row else now
    else:
        starts = max(wished, now)
    first = max(starts, now)
    ends, seconds = values.get("ends_at"), values.get("duration")
    if ends is None and row is not None and seconds is None:
        ends = row.ends_at
    if ends is None:
        ends = first + timedelta(seconds=seconds or _DEFAULT_S)
    if not first < ends <= first + LONGEST:
        text = "The end must be after the start and within 90 days."
        remedy = "Choose an earlier end, or disable the rule instead."
        raise Refused(Problem("ends_at", ends, text, remedy, "range"))
    return starts, ends
