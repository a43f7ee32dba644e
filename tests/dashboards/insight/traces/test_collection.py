"""Collection of recorded traffic from routers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from dashboards.insight.traces.collection import collect, has_work, prune_all
from dashboards.insight.traces.models import TracePiece, TraceSource
from dashboards.insight.traces.storage import recorded_hours
from endpoints import actions
from endpoints.models import Endpoint
from tests.dashboards.insight.traces.test_storage import reply
from tests.support.console import make_endpoint, pretend_ready
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db


@pytest.fixture
def router() -> Iterator[Stub]:
    with http_stub({}) as stub:
        yield stub


@pytest.fixture
def endpoint(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(routing={"record_traffic": True}), admin_url=router.url)


def test_pieces_are_stored_once_and_confirmed(endpoint: Endpoint, router: Stub) -> None:
    recording = json.dumps(reply("r1", [1, 30]))
    router.answers["/recording"] = (200, recording)
    assert collect() == 1
    assert collect() == 1  # the router did not hear the confirmation
    assert TracePiece.objects.count() == 2
    assert router.seen[-1][1] == "/recording?instance=r1&after=2"
    # A restarted router begins anew.
    router.answers["/recording"] = (200, recording.replace("r1", "r9"))
    collect()
    assert sum(hour.requests for hour in recorded_hours(endpoint)) == 4
    assert TraceSource.objects.count() == 2


def test_only_recorded_endpoints_are_queried(endpoint: Endpoint, router: Stub) -> None:
    router.answers["/recording"] = (200, json.dumps(reply("r1", [1])))
    assert has_work()
    collect()
    actions.patch(actions.SYSTEM, "demo", {"routing.record_traffic": False})
    assert has_work()
    last = reply("r1", [], recording=False)
    router.answers["/recording"] = (200, json.dumps(last))
    assert collect() == 1  # what was recorded before
    assert collect() == 0
    assert TraceSource.objects.get().active is False
    assert not has_work()


@pytest.mark.parametrize(
    "recording",
    [
        {"instance": "r1", "pieces": [{}], "recording": True, "lost": 0},
        {"instance": "r1", "pieces": [{"data": "?"}], "recording": True, "lost": 0},
        {"instance": 3},
        [],
    ],
)
def test_invalid_replies_are_ignored(endpoint: Endpoint, router: Stub, recording: object) -> None:
    router.answers["/recording"] = (200, json.dumps(recording))
    collect()
    assert not TracePiece.objects.exists()


def test_old_hours_go_where_recording_is_off(endpoint: Endpoint, router: Stub) -> None:
    router.answers["/recording"] = (200, json.dumps(reply("r1", [1])))
    collect()
    actions.patch(actions.SYSTEM, "demo", {"routing.record_traffic": False})
    TracePiece.objects.update(hour=timezone.now() - timedelta(days=6))
    prune_all()
    assert TracePiece.objects.exists()
    TracePiece.objects.update(hour=timezone.now() - timedelta(days=8))
    prune_all()
    assert not TracePiece.objects.exists()
