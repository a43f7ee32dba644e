"""Decision when an alert group is sent, and with which alerts, with an explicit clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from dashboards.alerts.notify.protocol.alert import (
    Alert,
    GroupDecision,
    GroupStatus,
    Terms,
    decide,
    group_key,
    group_labels,
    new_status,
)

T0 = datetime(2026, 11, 21, 12, tzinfo=UTC)
TERMS = Terms(wait_s=30, interval_s=300, repeat_s=3600)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def alert(name: str, **facts: Any) -> Alert:
    return Alert({"alertname": name}, {}, facts.pop("started", T0), **facts)


A, B = alert("A"), alert("B")


def by_mark(*alerts: Alert) -> dict[str, Alert]:
    return {one.fingerprint: one for one in alerts}


def make_group_status(*alerts: Alert, due: float = 0, sent: float = 0) -> GroupStatus:
    return GroupStatus(at(due), frozenset(by_mark(*alerts)), at(sent) if alerts else None)


def decide_at(
    standing: GroupStatus, now: float, *active: Alert, ended: tuple[Alert, ...] = (), **terms: Any
) -> GroupDecision:
    chosen = Terms(**{**{n: getattr(TERMS, n) for n in Terms.__slots__}, **terms})
    return decide(standing, chosen, by_mark(*active), by_mark(*ended), at(now))


def test_first_alert_waits_for_its_group() -> None:
    assert new_status([A], TERMS, T0).due_at == at(30)
    assert new_status([alert("old", started=at(-3600)), A], TERMS, T0).due_at == T0
    assert decide_at(GroupStatus(at(30)), 29, A).send == ()
    decision = decide_at(GroupStatus(at(30)), 30, A, B)
    assert decision.send == (A, B)
    assert decision.standing == make_group_status(A, B, due=330, sent=30)


def test_added_alerts_wait_for_the_next_interval() -> None:
    assert decide_at(make_group_status(A, due=330, sent=30), 100, A, B).send == ()
    assert decide_at(make_group_status(A, due=330, sent=30), 330, A, B).send == (A, B)


def test_unchanged_group_is_repeated_after_the_repeat_interval() -> None:
    quiet = decide_at(make_group_status(A, due=330, sent=30), 330, A)
    assert (quiet.send, quiet.over) == ((), False)
    assert quiet.standing == make_group_status(A, due=630, sent=30)
    assert decide_at(make_group_status(A, due=3600, sent=30), 3629, A).send == ()
    assert decide_at(make_group_status(A, due=3600, sent=30), 3630, A).send == (A,)


def test_resolution_is_sent_and_the_last_one_ends_the_group() -> None:
    gone = alert("A", ended=at(200))
    some = decide_at(make_group_status(A, B, due=330, sent=30), 330, B, ended=(gone,))
    assert (some.send, some.over) == ((B, gone), False)
    assert some.standing.sent == frozenset(by_mark(B))
    last = decide_at(make_group_status(A, due=330, sent=30), 330, ended=(gone,))
    assert (last.send, last.over) == ((gone,), True)
    quiet = decide_at(
        make_group_status(A, due=330, sent=30), 330, ended=(gone,), send_resolved=False
    )
    assert (quiet.send, quiet.over) == ((), True)


def test_resolution_without_a_notification_is_not_sent() -> None:
    gone = alert("A", ended=at(10))
    decision = decide_at(GroupStatus(at(30)), 30, ended=(gone,))
    assert (decision.send, decision.over) == ((), True)


def test_silenced_alert_is_not_sent_until_the_silence_ends() -> None:
    """A silenced alert is in neither argument."""
    silent = decide_at(make_group_status(A, due=330, sent=30), 5000)
    assert (silent.send, silent.over) == ((), False)
    assert silent.standing.sent == frozenset(by_mark(A))
    assert decide_at(silent.standing, 5400, ended=(alert("A", ended=at(5300)),)).over


def test_refiring_alert_is_not_sent_as_resolved() -> None:
    decision = decide_at(
        make_group_status(A, due=330, sent=30), 330, A, ended=(alert("A", ended=at(200)),)
    )
    assert decision.send == ()


def test_groups_use_the_present_labels() -> None:
    one = Alert({"alertname": "A", "endpoint": "", "pool": "p"})
    assert group_labels(one, ("alertname", "endpoint", "worker")) == {"alertname": "A"}
    assert group_key({"a": "1", "b": "2"}) == group_key({"b": "2", "a": "1"})
    assert group_key({"a": "1"}) != group_key({"a": "1", "b": "2"})
    assert group_key({"a": "1\tb"}) != group_key({"a": "1", "b": ""})


def test_times_of_a_clock_that_was_ahead_hold_no_message_back() -> None:
    day = 86_400
    assert decide_at(make_group_status(A, due=day, sent=day), 0, A, B).send == (A, B)
    assert decide_at(make_group_status(A, due=0, sent=day), 0, A).send == (A,)
    assert decide_at(make_group_status(A, due=60, sent=-10), 0, A, B).send == ()
