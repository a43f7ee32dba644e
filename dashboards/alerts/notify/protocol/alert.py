"""Alerts as sent to receivers, and when a group of them is sent.

    first alert          sent `wait_s` after it began: others of its group may follow
    alerts begin or end  sent together, `interval_s` after the last evaluation
    no change            repeated after `repeat_s` while any alert fires
    all resolved         sent, then the group is deleted

Silenced alerts are not sent. A resolution is sent to receivers that got the firing alert even if it
is silenced; otherwise the alert would stay open there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

TEAM: Final = "team"
"""Label added by the console: the team of the alert's endpoint."""
_OFFSET, _PRIME, _MASK = 14695981039346656037, 1099511628211, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Alert:
    """`ended` is None while it fires."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    started: datetime | None = None
    ended: datetime | None = None

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "")

    @property
    def endpoint(self) -> str:
        return self.labels.get("endpoint", "")

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.labels)


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return Alertmanager's fingerprint: FNV-1a over the sorted label pairs.

    Labels added by the console are left out, so that receivers get the same value from either
    sender.
    """
    mark = _OFFSET
    for name in sorted(labels.keys() - {TEAM}):
        for byte in name.encode() + b"\xff" + labels[name].encode() + b"\xff":
            mark = ((mark ^ byte) * _PRIME) & _MASK
    return f"{mark:016x}"


def common_pairs(pairs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the pairs common to all mappings."""
    found = list(pairs)
    first = found[0] if found else {}
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in found[1:])}


@dataclass(frozen=True, slots=True)
class Terms:
    wait_s: int = 30
    interval_s: int = 300
    repeat_s: int = 14400
    send_resolved: bool = True


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """`sent`: fingerprints of the alerts last sent as firing."""

    due_at: datetime
    sent: frozenset[str] = frozenset()
    sent_at: datetime | None = None


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
    longest = timedelta(seconds=max(terms.wait_s, terms.interval_s, terms.repeat_s))
    if now < standing.due_at <= now + longest:  # later: by a clock that was ahead
        return GroupDecision(standing)
    gone = [ended[one] for one in sorted(standing.sent) if one in ended and one not in active]
    still = standing.sent - {one.fingerprint for one in gone}
    resolved = gone if terms.send_resolved else []
    fresh = active.keys() - standing.sent
    since = None if standing.sent_at is None else now - standing.sent_at
    again = since is not None and not timedelta(0) <= since < timedelta(seconds=terms.repeat_s)
    speak = bool(fresh or resolved or (again and active))
    next_check = now + timedelta(seconds=terms.interval_s)
    if not speak:
        return GroupDecision(
            GroupStatus(next_check, still, standing.sent_at), over=not active and not still
        )
    reported = still | active.keys()
    send = (*active.values(), *resolved)
    return GroupDecision(GroupStatus(next_check, reported, now), send, over=not reported)


def group_labels(alert: Alert, group_by: Sequence[str]) -> dict[str, str]:
    return {name: alert.labels[name] for name in group_by if alert.labels.get(name)}


def group_key(labels: Mapping[str, str]) -> str:
    text = "\n".join(f"{name}\t{labels[name]}" for name in sorted(labels))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
