"""When a group of alerts is told to its receiver, and what: a decision, without a row. Pure.

    a first alert        told `wait_s` after it began: others of its group may follow
    more begin or end    told `interval_s` after the last look, together
    nothing changes      told again after `repeat_s`, while anything fires
    all have ended       told, and the group is over

Silenced alerts are not told, but that one has ended is told to who heard that it began, silenced or
not: else it would burn there for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dashboards.alerts.notify.protocol.alert import Alert


@dataclass(frozen=True, slots=True)
class Terms:
    wait_s: int = 30
    interval_s: int = 300
    repeat_s: int = 14400
    send_resolved: bool = True


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """`told`: fingerprints of the alerts the receiver believes to fire."""

    due_at: datetime
    told: frozenset[str] = frozenset()
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """`send` is empty when there is nothing to say; `over`: the group can be forgotten."""

    standing: GroupStatus
    send: tuple[Alert, ...] = ()
    over: bool = False


def begun(active: Sequence[Alert], terms: Terms, now: datetime) -> GroupStatus:
    """Of a group which nobody has seen before."""
    first = min((one.started or now for one in active), default=now)
    return GroupStatus(max(now, first + timedelta(seconds=terms.wait_s)))


def decide(
    standing: GroupStatus,
    terms: Terms,
    active: Mapping[str, Alert],
    ended: Mapping[str, Alert],
    now: datetime,
) -> GroupDecision:
    """`active`: those of the group which fire and are not silenced; `ended`: all that have ended;
    both by fingerprint. What was told and is in neither still fires, silenced."""
    if now < standing.due_at:
        return GroupDecision(standing)
    gone = [ended[one] for one in sorted(standing.told) if one in ended and one not in active]
    still = standing.told - {one.fingerprint for one in gone}
    resolved = gone if terms.send_resolved else []
    fresh = active.keys() - standing.told
    again = standing.told_at is not None and now - standing.told_at >= timedelta(
        seconds=terms.repeat_s
    )
    speak = bool(fresh or resolved or (again and active))
    next_look = now + timedelta(seconds=terms.interval_s)
    if not speak:
        return GroupDecision(
            GroupStatus(next_look, still, standing.told_at), over=not active and not still
        )
    told = still | active.keys()
    send = (*active.values(), *resolved)
    return GroupDecision(GroupStatus(next_look, told, now), send, over=not told)


def labels_of(alert: Alert, group_by: Sequence[str]) -> dict[str, str]:
    return {name: alert.labels[name] for name in group_by if alert.labels.get(name)}


def key(labels: Mapping[str, str]) -> str:
    text = "\n".join(f"{name}\t{labels[name]}" for name in sorted(labels))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
