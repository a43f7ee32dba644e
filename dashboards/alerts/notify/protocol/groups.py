"""Decide when an alert group is sent to its receiver, and with which alerts.

    first alert          sent `wait_s` after it began: others of its group may follow
    alerts begin or end  sent together, `interval_s` after the last evaluation
    no change            repeated after `repeat_s` while any alert fires
    all resolved         sent, then the group is deleted

Silenced alerts are not sent. A resolution is sent to receivers that got the firing alert even if it
is silenced; otherwise the alert would stay open there.
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
    """`told`: fingerprints of the alerts last sent as firing."""

    due_at: datetime
    told: frozenset[str] = frozenset()
    told_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """`send` is empty if nothing is due; `over`: the group can be deleted."""

    standing: GroupStatus
    send: tuple[Alert, ...] = ()
    over: bool = False


def new_status(active: Sequence[Alert], terms: Terms, now: datetime) -> GroupStatus:
    """Return the status of a new group."""
    first = min((one.started or now for one in active), default=now)
    return GroupStatus(max(now, first + timedelta(seconds=terms.wait_s)))


def decide(
    standing: GroupStatus,
    terms: Terms,
    active: Mapping[str, Alert],
    ended: Mapping[str, Alert],
    now: datetime,
) -> GroupDecision:
    """Decide for the group's firing alerts without silenced ones, and all resolved alerts.

    Both are keyed by fingerprint. An alert sent before that is in neither still fires, silenced.
    """
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


def group_labels(alert: Alert, group_by: Sequence[str]) -> dict[str, str]:
    return {name: alert.labels[name] for name in group_by if alert.labels.get(name)}


def group_key(labels: Mapping[str, str]) -> str:
    text = "\n".join(f"{name}\t{labels[name]}" for name in sorted(labels))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
