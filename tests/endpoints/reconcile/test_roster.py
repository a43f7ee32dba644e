"""Worker roster between two observations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.provisioners.base import ReplicaObservation, ReplicaState
from endpoints.lifecycle.components import ComponentStatus
from endpoints.lifecycle.facts import ObservedWorker
from endpoints.models import Endpoint, Replica
from endpoints.reconcile.roster import (
    DRAIN,
    Roster,
    WorkerDemand,
    compare_workers,
    may_stop,
    worker_facts,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint(name="demo", spec={})


def seen(state: str = "ready", **facts: Any) -> ReplicaObservation:
    known = {"name": "w-0", "index": 0, "spec_hash": "new", "urls": {"http": "http://w"}}
    return ReplicaObservation(**{**known, "state": ReplicaState(state), **facts})


def row(state: str = "ready", **facts: Any) -> Replica:
    known = {"name": "w-0", "index": 0, "spec_hash": "new", "url": "http://w"}
    return Replica(endpoint=ENDPOINT, **{**known, "state": state, **facts})


def compare(before: list[Replica], now: list[ReplicaObservation], **facts: Any) -> Roster:
    demand = {"replicas": 1, "spec_hash": "new", "simulated": False, "leaving": frozenset()}
    return compare_workers(
        before, now, WorkerDemand(endpoint=ENDPOINT, now=NOW, **{**demand, **facts})
    )


def one(found: Roster) -> ObservedWorker:
    (worker,) = found.workers
    return worker


def kinds(found: Roster) -> list[str]:
    return [happening.kind for happening in found.happenings]


def test_unchanged_roster_writes_nothing() -> None:
    found = compare([row()], [seen()])
    assert not found.changed
    assert not found.happenings
    assert one(found).ready


def test_worker_that_hangs_on_its_probe_counts_as_started() -> None:
    hung = one(compare([row()], [seen("unknown")]))
    assert hung.running
    assert not hung.ready


@pytest.mark.parametrize(
    ("before", "restarts", "crashes"),
    [
        (None, 3, 3),
        ({"restarts": 5, "restarts_ready": 5, "state": "starting"}, 7, 2),
        ({"restarts": 5, "restarts_ready": 5, "spec_hash": "old"}, 5, 0),
        ({"restarts": 5, "restarts_ready": 5}, 0, 0),
    ],
)
def test_crashes_count_since_the_last_ready_state_or_change(
    before: dict[str, Any] | None, restarts: int, crashes: int
) -> None:
    rows = [] if before is None else [row(**before)]
    assert one(compare(rows, [seen("backoff", restarts=restarts)])).crashes == crashes


def test_ready_state_resets_the_crash_count() -> None:
    found = compare([row("starting", restarts=2)], [seen(restarts=5)])
    assert found.rows[0].restarts_ready == 5


def test_abandoned_worker_is_a_crash_loop_at_once() -> None:
    assert one(compare([], [seen("exited")])).looping
    assert not one(compare([], [seen("backoff", restarts=2)])).looping


def test_surplus_and_outdated() -> None:
    assert one(compare([], [seen(index=1)])).surplus
    assert not one(compare([], [seen(spec_hash="old")])).current
    assert not one(compare([], [seen()], spec_hash="")).current, "nothing is known to be wanted"


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (None, {"state": "starting"}, ["WorkerStarted"]),
        (None, {}, ["WorkerStarted", "WorkerReady"]),
        ({"state": "starting"}, {}, ["WorkerReady"]),
        ({}, {"state": "starting"}, ["WorkerLost"]),
        ({}, {"state": "stopping"}, []),
        ({}, {"restarts": 1}, ["WorkerRestarted"]),
        ({"started_at": NOW}, {"started_at": NOW.timestamp() + 9}, ["WorkerRestarted"]),
        ({"started_at": NOW}, {"started_at": NOW.timestamp() + 0.9}, []),
        ({"pid": 1}, {"pid": 2}, []),
        ({"spec_hash": "old"}, {"state": "starting"}, ["WorkerStarted"]),
    ],
)
def test_events_of_a_pass(before: Any, now: dict[str, Any], kind: list[str]) -> None:
    rows = [] if before is None else [row(**before)]
    assert kinds(compare(rows, [seen(**now)])) == kind


AGO = NOW.timestamp() - 81


@pytest.mark.parametrize(
    ("before", "now", "start_s"),
    [
        (None, {"state": "starting", "started_at": AGO}, None),
        (None, {"started_at": AGO}, 81),
        ({"state": "starting"}, {"started_at": AGO}, 81),
        # A pod waits for a node and an image before its process starts.
        ({"state": "starting"}, {"started_at": AGO, "created_at": AGO - 60}, 141),
        # After a restart only the new process counts.
        ({"state": "backoff"}, {"started_at": AGO, "created_at": AGO - 60, "restarts": 1}, 81),
        # Ready again after a failed health check: no start.
        ({"state": "starting", "start_s": 7.0}, {"started_at": AGO}, 7),
        ({"state": "ready"}, {"started_at": AGO}, None),
        ({"spec_hash": "old", "start_s": 7.0}, {"started_at": AGO}, 81),
        ({"started_at": NOW, "start_s": 7.0}, {"state": "starting", "started_at": AGO}, None),
    ],
)
def test_start_is_measured_once_per_process(
    before: dict[str, Any] | None, now: dict[str, Any], start_s: float | None
) -> None:
    rows = [] if before is None else [row(**before)]
    assert compare(rows, [seen(**now)]).rows[0].start_s == start_s


def test_ready_event_states_the_start_only_once() -> None:
    first = compare([row("starting")], [seen(started_at=AGO)])
    assert [one.message for one in first.happenings] == ["w-0 is ready after 1 min 21 s."]
    again = compare([row("starting", start_s=81.0)], [seen(started_at=AGO)])
    assert [one.message for one in again.happenings] == ["w-0 is ready."]


def test_vanished_worker_is_reported_and_removed() -> None:
    found = compare([row()], [])
    assert kinds(found) == ["WorkerRemoved"]
    assert [r.name for r in found.removed] == ["w-0"]


def test_leaving_worker_keeps_its_deadline_and_can_return() -> None:
    first = compare([row()], [seen()], leaving=frozenset({0}))
    assert first.rows[0].draining_since == NOW
    assert kinds(first) == ["WorkerDraining"]
    earlier = NOW - timedelta(seconds=9)
    again = compare([row(draining_since=earlier)], [seen()], leaving=frozenset({0}))
    assert again.rows[0].draining_since == earlier
    assert not again.happenings
    stays = compare([row(draining_since=earlier)], [seen()])
    assert stays.rows[0].draining_since is None


def test_simulated_flag_follows_the_running_worker() -> None:
    """While an endpoint moves to real workers, the old ones are still simulated."""
    old = compare([row(spec_hash="old", simulated=True)], [seen(spec_hash="old")])
    assert old.rows[0].simulated
    new = compare([row(spec_hash="old", simulated=True)], [seen()])
    assert not new.rows[0].simulated


def test_components_get_only_workers_with_an_address() -> None:
    rows = [row(), row(url=""), row("stopping"), row(draining_since=NOW)]
    facts = worker_facts(rows)
    assert [(f.ready, f.draining) for f in facts] == [(True, False), (False, True), (True, True)]


def _part(state: str | None, in_flight: int = 0, *, ready: bool = True) -> ComponentStatus:
    workers = {"w-0": {"state": state, "in_flight": in_flight}} if state else {}
    return ComponentStatus(ready, facts={"workers": workers})


@pytest.mark.parametrize(
    ("part", "may"),
    [
        (_part("up"), False),
        (_part("draining", 1), False),
        (_part("draining"), True),
        (_part("down", 2), False),
        (_part("down"), True),
        (_part(None), True),
        (ComponentStatus(True), True),
        (ComponentStatus(False), False),
    ],
)
def test_worker_stops_after_its_requests_complete(part: ComponentStatus, may: bool) -> None:
    rows = [row(draining_since=NOW), row(name="w-1", index=1)]
    assert may_stop(rows, [part], NOW) is may
    assert may_stop(rows, [part], NOW + DRAIN), "its time is up"
    assert may_stop([row("starting", draining_since=NOW)], [part], NOW), "it serves nobody"


def test_a_restart_after_a_reported_crash_is_no_second_event() -> None:
    old = row("backoff", restarts=1, started_at=NOW - DRAIN)
    new = seen("starting", restarts=1, started_at=NOW.timestamp())
    assert list(compare([old], [new]).happenings) == []


def test_restart_event_states_the_cause_once_and_counts_in_the_right_number() -> None:
    crashed = {"restarts": 1, "message": "Crashed (exit code 2: no). Restarts automatically."}
    (first,) = compare([row("starting")], [seen("backoff", **crashed)]).happenings
    assert first.message == (
        "w-0 crashed and restarted (1 restart so far). "
        "Crashed (exit code 2: no). Restarts automatically."
    )
    (second,) = compare(
        [row("starting", restarts=1)], [seen("backoff", **{**crashed, "restarts": 2})]
    ).happenings
    assert second.message == "w-0 crashed and restarted (2 restarts so far)."
    now = {"started_at": NOW.timestamp()}
    (again,) = compare([row(started_at=NOW - DRAIN)], [seen("starting", **now)]).happenings
    assert again.message == "w-0 was restarted."
