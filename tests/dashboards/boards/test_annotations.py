"""Annotations of boards, and their visibility."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.accounts.models import User
from console.audit.record import record
from dashboards import selectors as dashboards_selectors
from dashboards.boards import annotations as boards_annotations
from dashboards.boards.queries import Scope
from dashboards.prometheus.http.client import QueryResult, Question, Series, Window
from endpoints import actions, selectors
from endpoints.choices import EventKind
from endpoints.models import Endpoint, Revision
from endpoints.reconcile import events
from endpoints.reconcile.events import Occurrence
from tests.support.console import make_endpoint, person
from tests.support.teams import CANARY, OURS, teams, their_endpoints

pytestmark = pytest.mark.django_db

STEP = 10
DEMO = Scope("demo", selectors.NAMESPACE)


class StubPrometheus:
    """Prometheus with `alerts`: name, endpoint, and a value per step."""

    def __init__(self, *alerts: tuple[str, str, tuple[float | None, ...]]) -> None:
        self.series = tuple(
            Series((("alertname", name), ("endpoint", endpoint)), values)
            for name, endpoint, values in alerts
        )
        self.queries: list[str] = []

    def ask(self, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        self.queries += [question.query for question in questions.values()]
        return dict.fromkeys(questions, QueryResult(self.series))


def window() -> Window:
    return Window.ending(time.time() + 2 * STEP, 50 * STEP, STEP)


def list_shown_notes(
    scope: Scope = DEMO, viewer: User | None = None, prometheus: StubPrometheus | None = None
) -> list[dict[str, Any]]:
    found = boards_annotations.list_notes(prometheus or StubPrometheus(), viewer, scope, window())
    assert found["notes_left_out"] == 0
    notes: list[dict[str, Any]] = found["notes"]
    return notes


def texts(notes: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(note["kind"], note["text"]) for note in notes}


def test_revisions_of_users_and_automatic_rollbacks_are_annotated() -> None:
    alice = person("operator")
    spec = make_endpoint("demo", routing={"enabled": True, "strategy": "prefixaware"}).spec
    actions.scale(alice, "demo", 3)
    wanted = {"enabled": True, "strategy": "kvaware"}
    actions.update(alice, "demo", {**spec, "replicas": 3, "routing": wanted}, note="try it")
    routing = {"enabled": False, "strategy": "kvaware"}
    actions.update(alice, "demo", {**spec, "replicas": 3, "routing": routing})
    actions.rollback(alice, "demo", 1)
    actions.pause(alice, "demo")
    found = list_shown_notes()
    assert texts(found) == {
        ("deploy", "Created"),
        ("scale", "Scaled 1 → 3"),
        ("strategy", "Strategy prefixaware → kvaware: try it"),
        ("strategy", "Strategy kvaware → roundrobin"),
        ("rollback", "Rollback: revision 5"),
        ("pause", "Paused"),
    }
    assert {note["who"] for note in found if note["kind"] != "deploy"} == {alice.username}
    assert all(note["url"].startswith("/endpoints/demo/revisions/") for note in found)


def test_failures_are_annotated_and_routine_events_are_not() -> None:
    endpoint = make_endpoint("demo")
    happened = [
        Occurrence(str(EventKind.WORKER_LOST), "demo-worker-0 is gone"),
        Occurrence(str(EventKind.L2_LOST), "the cache is away"),
        Occurrence(str(EventKind.WORKER_STARTED), "demo-worker-1 was started"),
    ]
    events.write(endpoint, happened, timezone.now())
    found = texts(list_shown_notes())
    assert ("worker", "demo-worker-0 is gone") in found
    assert ("node", "the cache is away") in found
    assert not any("was started" in text for _, text in found)


def test_events_outside_the_range_are_omitted() -> None:
    make_endpoint("demo")
    Revision.objects.update(created_at=timezone.now() - timedelta(hours=1))
    assert list_shown_notes() == []


def test_cache_node_events_are_annotated_on_the_fleet() -> None:
    record(None, "restart", "cache-node/default-0", {})
    record(None, "flush", "cache-tier/default", {})
    record(None, "create", "cluster/elsewhere", {})
    found = texts(list_shown_notes(Scope()))
    assert found == {
        ("node", "Cache-node default-0: restart"),
        ("node", "Cache-tier default: flush"),
    }


def test_alert_annotation_spans_its_series() -> None:
    make_endpoint("demo")
    Revision.objects.all().delete()
    seen = window()
    values: list[float | None] = [None] * seen.points
    values[10:14] = [1.0] * 4
    values[-2:] = [1.0] * 2
    early: list[float | None] = [1.0, *([None] * (seen.points - 1))]
    prometheus = StubPrometheus(("HighTTFT", "demo", tuple(values)), ("Odd", "demo", tuple(early)))
    latest, middle, first = list_shown_notes(prometheus=prometheus)
    assert latest["text"].startswith("HighTTFT fired")
    assert latest["end"] is None, "it fires still"
    assert middle["end"] - middle["at"] == 4 * STEP
    assert (first["text"], first["end"] - first["at"]) == ("Odd already firing", STEP)
    assert 'endpoint="demo"' in prometheus.queries[0]


def test_members_see_annotations_of_their_teams() -> None:
    made = teams()
    their_endpoints(made)
    actions.scale(made.hugo, CANARY, 2)
    prometheus = StubPrometheus()
    found = list_shown_notes(
        dashboards_selectors.get_fleet_scope(made.frank), made.frank, prometheus
    )
    assert {note["endpoint"] for note in found} == {OURS}
    assert CANARY not in prometheus.queries[0]
    assert OURS in prometheus.queries[0]
    everything = list_shown_notes(Scope(), person("viewer"))
    assert {OURS, CANARY} <= {note["endpoint"] for note in everything}


def test_annotations_need_constant_queries_and_keep_the_latest() -> None:
    def query_count() -> int:
        with CaptureQueriesContext(connection) as seen:
            boards_annotations.list_notes(StubPrometheus(), None, Scope(), window())
        return len(seen)

    make_endpoint("demo")
    few = query_count()
    for number in range(5):
        make_endpoint(f"demo-{number}")
    endpoint = Endpoint.objects.get(name="demo")
    now = timezone.now()
    Revision.objects.bulk_create(
        Revision(
            endpoint=endpoint,
            number=number,
            spec=endpoint.spec,
            verb="update",
            created_at=now - timedelta(seconds=number),
        )
        for number in range(10, 10 + boards_annotations.MAX_NOTES + 20)
    )
    assert query_count() == few <= 4
    found = boards_annotations.list_notes(StubPrometheus(), None, DEMO, window())
    assert len(found["notes"]) == boards_annotations.MAX_NOTES
    assert found["notes_left_out"] > 0
    moments = [note["at"] for note in found["notes"]]
    assert moments == sorted(moments, reverse=True)
