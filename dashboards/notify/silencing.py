"""Making and ending silences: check, do, notify.

Promises that who silences an endpoint may change it, that a silence which could touch more than one
endpoint is made by an operator of the platform, and that the trail says who silenced what and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from console.accounts.local import row
from console.accounts.permissions import allows, require, require_somewhere
from console.audit.record import record
from console.refusals import Problem, Refused
from dashboards.notify import managers, matching, reading
from dashboards.notify.matching import Matchers
from dashboards.notify.models import Silence
from endpoints import selectors as endpoints

FIELDS: Final = ("matchers", "starts_at", "ends_at", "duration", "comment")
LONGEST = timedelta(days=90)
_DEFAULT_S = 2 * 3600


def create(actor: Any, data: Any, *, request_id: str = "") -> Silence:
    require_somewhere(actor, "operator")
    given = reading.mapping(data, FIELDS)
    conditions = _conditions(given)
    endpoint = _bound_to(actor, conditions)
    starts, ends = _times(given, timezone.now())
    comment = reading.text(given, "comment", 500, needed=True)
    author = actor.get_username()
    concerned = managers.of(endpoint.name if endpoint is not None else "")
    remote = managers.silence(concerned, conditions, starts, ends, author, comment)
    with transaction.atomic():
        made = Silence.objects.create(
            endpoint=endpoint,
            matchers=[one.data() for one in conditions],
            starts_at=starts,
            ends_at=ends,
            comment=comment,
            author=author,
            remote=remote,
            created_by=row(actor),
        )
        said = {"matchers": [str(one) for one in conditions], "ends_at": ends, "comment": comment}
        record(actor, "silence", f"silence/{made.pk}", said, request_id, of=endpoint)
    return made


def expire(actor: Any, silence: Silence, *, request_id: str = "") -> None:
    """At once; one that has ended stays as it is."""
    require(actor, "operator", of=silence.endpoint)
    now = timezone.now()
    if silence.ends_at > now:
        managers.expire(silence.remote)
    with transaction.atomic():
        live = Silence.objects.filter(pk=silence.pk, ends_at__gt=now)
        if live.update(ends_at=now):
            said = {"matchers": [str(one) for one in silence.conditions]}
            target = f"silence/{silence.pk}"
            record(actor, "end silence", target, said, request_id, of=silence.endpoint)


def _conditions(given: Mapping[str, Any]) -> Matchers:
    conditions = matching.parse(given.get("matchers", ""))
    if not conditions or matching.matches(conditions, {}):
        text = "This would silence alerts nobody has named."
        remedy = 'Say which, such as alertname="HighTTFT" and endpoint="chat".'
        raise Refused(Problem("matchers", given.get("matchers"), text, remedy, "too_wide"))
    return conditions


def _bound_to(actor: Any, conditions: Matchers) -> Any:
    """The endpoint whose alerts alone these are; None for an operator of the platform only."""
    name = matching.pinned(conditions, "endpoint")
    found = endpoints.endpoints(actor).filter(name=name).first() if name else None
    if found is not None:
        require(actor, "operator", of=found)
    elif not allows(actor, "operator"):
        text = f"There is no endpoint {name}." if name else "This may touch other teams' alerts."
        remedy = 'Bind it to an endpoint of yours: endpoint="NAME".'
        problem = Problem("matchers", name, text, remedy, "endpoint_needed")
        raise Refused(problem, status_code=403)
    return found


def _times(given: Mapping[str, Any], now: datetime) -> tuple[datetime, datetime]:
    starts = max(reading.moment(given, "starts_at") or now, now)
    ends = reading.moment(given, "ends_at")
    if ends is None:
        most = int(LONGEST.total_seconds())
        ends = starts + reading.span(reading.seconds(given, "duration", _DEFAULT_S, 60, most))
    if not starts < ends <= starts + LONGEST:
        text = "A silence ends after its beginning and within 90 days."
        remedy = "Choose an earlier end; what is silenced for ever is better switched off."
        raise Refused(Problem("ends_at", str(given.get("ends_at")), text, remedy, "range"))
    return starts, ends


def follow_ends(ended: frozenset[str]) -> None:
    """Those which somebody ended in an Alertmanager are over here too."""
    now = timezone.now()
    for one in Silence.objects.filter(ends_at__gt=now).exclude(remote={}):
        if ended & set(one.remote.values()):
            Silence.objects.filter(pk=one.pk, ends_at__gt=now).update(ends_at=now)
