"""Recorded hours in the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboards.insight.traces.models import TracePiece
from dashboards.insight.traces.storage import (
    add_pieces,
    load_imported,
    load_trace,
    prune,
    recorded_hours,
)
from dashboards.insight.traces.trace import TraceError
from endpoints.models import Endpoint
from tests.dashboards.insight.traces.test_records import HOUR, RecordedRouter, chain
from tests.support.console import make_endpoint

pytestmark = pytest.mark.django_db
NOW = datetime.fromtimestamp(HOUR, UTC)
GIB = 1024**3
URL = "http://127.0.0.1:9"


@pytest.fixture
def endpoint() -> Endpoint:
    return make_endpoint("demo")


def reply(router: str, ats: list[float], **values: Any) -> dict[str, Any]:
    recorded = RecordedRouter()
    for at in ats:
        recorded.add(at, chain(b"abcdef", 6), 400, cached_tokens=100, completion_tokens=7)
        recorded.encoder.work([(None, ())])
    recorded.close()
    pieces = [piece._asdict() for piece in recorded.pieces.after(0)]
    return {"instance": router, "recording": True, "lost": 0, "pieces": pieces, **values}


def test_a_trace_has_the_requests_of_all_routers_once(endpoint: Endpoint) -> None:
    first = reply("r1", [1, 30])
    assert add_pieces(endpoint, URL, first, NOW) == 2
    assert add_pieces(endpoint, URL, first, NOW) == 0  # its answer came late
    assert add_pieces(endpoint, URL, reply("r2", [20, 3599.8]), NOW) == 2
    trace = load_trace(endpoint, NOW, NOW + timedelta(hours=1))
    assert [request.arrived_s for request in trace.requests] == [1, 20, 30, 3599.8]
    assert len({request.blocks[:5] for request in trace.requests}) == 1
    assert trace.began_at == HOUR
    part = load_trace(endpoint, NOW + timedelta(seconds=20), NOW + timedelta(seconds=30))
    assert [request.arrived_s for request in part.requests] == [0]
    # A piece is stored in the hour in which its requests ended.
    late, whole = recorded_hours(endpoint)
    assert (late.requests, whole.requests) == (1, 3)
    assert (whole.routers, whole.prompt_tokens, whole.output_tokens) == (2, 1200, 21)
    assert whole.hit_rate == 0.25


def test_deleted_hours_are_not_collected_again(endpoint: Endpoint) -> None:
    recording = reply("r1", [1])
    add_pieces(endpoint, URL, recording, NOW)
    TracePiece.objects.all().delete()
    assert add_pieces(endpoint, URL, recording, NOW) == 0


def test_the_oldest_hours_go_beyond_the_limits(endpoint: Endpoint) -> None:
    add_pieces(endpoint, URL, reply("r1", [0, 3600, 7200, 10800]), NOW)
    size = TracePiece.objects.latest("hour").size
    now = NOW + timedelta(hours=25)
    assert prune(endpoint, GIB, 1, now) == 1
    assert prune(endpoint, 2 * size + size // 2, 1, now) == 1
    assert [hour.hour.timestamp() - HOUR for hour in recorded_hours(endpoint)] == [10800, 7200]
    assert prune(endpoint, 1, 1, now) == 1  # the newest stays
    assert prune(endpoint, 1, 1, now) == 0


def test_nothing_recorded_is_an_empty_trace(endpoint: Endpoint) -> None:
    assert list(load_trace(endpoint, NOW, NOW + timedelta(days=1)).requests) == []
    with pytest.raises(TraceError, match="no imported trace 'x'"):
        load_imported(endpoint, "x")
