"""Create, change and expire silences: validate, write, record.

A silence of one endpoint needs the operator role on it; one that may match several endpoints needs
it on the platform. The audit log records author and reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import allows, require, require_in_any_team
from console.audit.record import diff, record
from console.core.errors import Gathered, Problem, Refused
from dashboards.alerts.notify import alertmanagers, input_values
from dashboards.alerts.notify.alertmanagers import DesiredSilence
from dashboards.alerts.notify.models import Silence, SilenceKind
from dashboards.alerts.notify.protocol import matchers
from dashboards.alerts.notify.protocol.matchers import Matchers
from dashboards.prometheus.sources.selectors import Alertmanager
from endpoints import selectors as endpoints

FIELDS: Final = ("matchers", "starts_at", "ends_at", "duration", "comment")
LONGEST = timedelta(days=90)
_DEFAULT_S = 2 * 3600


def create(actor: Any, data: Any, kind: str = SilenceKind.SILENCE) -> Silence:
    require_in_any_team(actor, "operator")
    now = timezone.now()
    acknowledges = kind == SilenceKind.ACKNOWLEDGEMENT
    wanted, endpoint = _validate(actor, data, None, now, reason_needed=not acknowledges)
    remote = alertmanagers.create_silence(_concerned(endpoint), wanted)
    with transaction.atomic():
        made = Silence.objects.create(
            **_columns(wanted, endpoint, remote),
            kind=kind,
            matched_at=now if acknowledges else None,
            author=wanted.author,
            created_by=stored_actor(actor),
        )
        facts = _facts(wanted)
        del facts["starts_at"]
        verb = "acknowledge" if acknowledges else "silence"
        record(actor, verb, f"silence/{made.pk}", facts, of=endpoint)
    return made


def change(actor: Any, silence: Silence, data: Any) -> None:
    """Set the given fields. A started silence keeps its start; an expired one cannot be changed."""
    require(actor, "operator", of=silence.endpoint)
    now = timezone.now()
    if silence.ends_at <= now:
        raise _over()
    reason_needed = not silence.acknowledges
    after, endpoint = _validate(actor, data, silence, now, reason_needed=reason_needed)
    times = silence.starts_at, silence.ends_at
    before = DesiredSilence(silence.conditions, *times, silence.author, silence.comment)
    if after == before:
        return
    remote, refused = alertmanagers.replace_silence(
        _concerned(endpoint), silence.remote, before, after
    )
    live = Silence.objects.filter(pk=silence.pk, ends_at__gt=now)
    if refused is not None:
        live.update(remote=remote)
        raise refused
    with transaction.atomic():
        done = live.update(**_columns(after, endpoint, remote))
        if done:
            changes = diff(_facts(before), _facts(after))
            record(actor, "change silence", f"silence/{silence.pk}", changes, of=endpoint)
    if not done:  # expired concurrently
        alertmanagers.expire_silences(remote)
        raise _over()


def _validate(
    actor: Any, data: Any, silence: Silence | None, now: datetime, *, reason_needed: bool = True
) -> tuple[DesiredSilence, Any]:
    """Return the silence and its only endpoint; fields missing from a change keep their values."""
    given = input_values.parse_mapping(data, FIELDS)
    gathered = Gathered()
    conditions: Matchers = silence.conditions if silence else ()
    if silence is None or "matchers" in given:
        conditions = gathered.take(_conditions, given) or ()
    times = gathered.take(_times, given, silence, now)
    comment = silence.comment if silence else ""
    if silence is None or "comment" in given:
        text = gathered.take(input_values.parse_text, given, "comment", 500, needed=reason_needed)
        comment = text or ""
    endpoint = _bound_to(actor, conditions) if conditions else None
    gathered.end()
    assert times is not None
    author = silence.author if silence else actor.get_username()
    return DesiredSilence(conditions, *times, author, comment), endpoint


def _columns(wanted: DesiredSilence, endpoint: Any, remote: Mapping[str, str]) -> dict[str, Any]:
    matchers = [one.data() for one in wanted.conditions]
    return {**_facts(wanted), "matchers": matchers, "endpoint": endpoint, "remote": remote}


def _facts(wanted: DesiredSilence) -> dict[str, Any]:
    return {
        "matchers": [str(one) for one in wanted.conditions],
        "starts_at": wanted.starts_at,
        "ends_at": wanted.ends_at,
        "comment": wanted.comment,
    }


def _concerned(endpoint: Any) -> list[Alertmanager]:
    return alertmanagers.alertmanagers_of(endpoint.name if endpoint is not None else "")


def _over() -> Refused:
    text, remedy = "This silence has expired.", "Create a new one."
    return Refused(Problem("", None, text, remedy, "ended"), status_code=409)


def expire(actor: Any, silence: Silence) -> None:
    """Expire the silence now; no effect if it has already expired."""
    require(actor, "operator", of=silence.endpoint)
    now = timezone.now()
    if silence.ends_at > now:
        alertmanagers.expire_silences(silence.remote)
    with transaction.atomic():
        live = Silence.objects.filter(pk=silence.pk, ends_at__gt=now)
        if live.update(ends_at=now):
            facts = {"matchers": [str(one) for one in silence.conditions]}
            target = f"silence/{silence.pk}"
            verb = "undo acknowledgement" if silence.acknowledges else "end silence"
            record(actor, verb, target, facts, of=silence.endpoint)


def _conditions(given: Mapping[str, Any]) -> Matchers:
    conditions = matchers.parse(given.get("matchers", ""))
    if not conditions or matchers.matches(conditions, {}):
        text = "The matchers would match every alert."
        remedy = 'Add a matcher such as alertname="HighTTFT" or endpoint="chat".'
        raise Refused(Problem("matchers", given.get("matchers"), text, remedy, "too_wide"))
    return conditions


def _bound_to(actor: Any, conditions: Matchers) -> Any:
    """Return the only endpoint matched; None if there are several and the actor is a platform
    operator.
    """
    name = matchers.pinned_value(conditions, "endpoint")
    found = endpoints.endpoints(actor).filter(name=name).first() if name else None
    if found is not None:
        require(actor, "operator", of=found)
    elif not allows(actor, "operator"):
        text = (
            f"Unknown endpoint {name}." if name else "The matchers may match other teams' alerts."
        )
        remedy = 'Add a matcher for one of your endpoints: endpoint="NAME".'
        problem = Problem("matchers", name, text, remedy, "endpoint_needed")
        raise Refused(problem, status_code=403)
    return found


def _times(
    given: Mapping[str, Any], silence: Silence | None, now: datetime
) -> tuple[datetime, datetime]:
    """Return start and end; `duration` counts from now, or from a later start."""
    wished = input_values.parse_time(given, "starts_at")
    if silence is not None and silence.starts_at <= now:
        if wished not in (None, silence.starts_at):
            text, remedy = "The silence has started.", "Leave the start unchanged."
            value = str(given.get("starts_at"))
            raise Refused(Problem("starts_at", value, text, remedy, "begun"))
        starts = silence.starts_at
    elif wished is None:
        starts = silence.starts_at if silence else now
    else:
        starts = max(wished, now)
    first = max(starts, now)
    ends = input_values.parse_time(given, "ends_at")
    if ends is None and silence is not None and given.get("duration") is None:
        ends = silence.ends_at
    if ends is None:
        most = int(LONGEST.total_seconds())
        seconds = input_values.parse_seconds(given, "duration", _DEFAULT_S, 60, most)
        ends = first + timedelta(seconds=seconds)
    if not first < ends <= first + LONGEST:
        text = "The end must be after the start and within 90 days."
        remedy = "Choose an earlier end, or disable the rule instead."
        raise Refused(Problem("ends_at", str(given.get("ends_at")), text, remedy, "range"))
    return starts, ends


def follow_ends(ended: frozenset[str]) -> None:
    """Expire the silences that were expired in an Alertmanager."""
    now = timezone.now()
    for one in Silence.objects.filter(ends_at__gt=now).exclude(remote={}):
        if ended & set(one.remote.values()):
            Silence.objects.filter(pk=one.pk, ends_at__gt=now).update(ends_at=now)
