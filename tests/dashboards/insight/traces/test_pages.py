"""Page of recorded traffic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.files.uploadedfile import SimpleUploadedFile

from dashboards.insight.traces.storage import add_pieces, imported_traces, recorded_hours
from endpoints.models import Endpoint
from tests.dashboards.insight.traces.test_api import ROW, whole
from tests.dashboards.insight.traces.test_storage import NOW, URL, reply
from tests.support.console import browser, make_endpoint

pytestmark = pytest.mark.django_db
PAGE = "/routing/endpoints/demo/traces/"


@pytest.fixture
def endpoint() -> Endpoint:
    return make_endpoint()


def shown(answer: Any) -> str:
    return str(answer.content.decode())


def test_recording_is_switched_for_operators_only(endpoint: Endpoint) -> None:
    page = shown(browser("viewer").get(PAGE))
    assert "Recording is off." in page
    assert "Start recording" not in page
    assert browser("viewer").post(f"{PAGE}switch/", {"record": "on"}).status_code == 403
    page = shown(browser("operator").post(f"{PAGE}switch/", {"record": "on"}, follow=True))
    assert "Recording starts when the routers have reloaded" in page
    assert "Stop recording" in page
    assert Endpoint.objects.get().parsed.routing.record_traffic is True
    browser("operator").post(f"{PAGE}switch/", {"record": "off"})
    assert Endpoint.objects.get().parsed.routing.record_traffic is False


@pytest.mark.parametrize("path", ["/what-if/endpoints/demo/", "/advisor/endpoints/demo/"])
def test_pages_that_need_a_recording_start_it_and_show_its_progress(
    endpoint: Endpoint, path: str
) -> None:
    page = shown(browser("operator").get(path))
    assert "never text" in page
    assert 'name="record" value="on"' not in shown(browser("viewer").get(path))
    back = page.partition('name="back" value="')[2].partition('"')[0]
    typed = {"record": "on", "back": back}
    answer = browser("operator").post(f"{PAGE}switch/", typed, follow=True)
    assert answer.request["PATH_INFO"] == path
    add_pieces(endpoint, URL, reply("r1", [1, 30, 60]), NOW)
    assert "3 of 200 requests" in shown(browser("operator").get(path))
    typed["back"] = "https://example.org/"
    answer = browser("operator").post(f"{PAGE}switch/", typed)
    assert answer["Location"] == PAGE


def test_hours_show_totals_and_gaps_and_are_deleted(endpoint: Endpoint) -> None:
    add_pieces(endpoint, URL, reply("r1", [1, 30, 4 * 3600]), NOW)
    page = shown(browser("operator").get(PAGE))
    assert "Gap: 3 hours without recorded requests" in page
    assert "25 %" in page
    query = {"first": NOW.isoformat(), "last": (NOW + timedelta(hours=4)).isoformat()}
    answer = browser("operator").get(f"{PAGE}export/", {**query, "trace_format": "mooncake"})
    assert answer["Content-Disposition"].endswith('-mooncake.jsonl"')
    assert len(async_to_sync(whole)(answer.streaming_content).splitlines()) == 3
    browser("operator").post(f"{PAGE}delete/", {"hour": NOW.isoformat()})
    assert [hour.requests for hour in recorded_hours(endpoint)] == [1]


def test_a_file_is_imported_exported_and_deleted(endpoint: Endpoint) -> None:
    fields = {"name": "mine", "trace_format": "mooncake", "block_tokens": ""}
    file = SimpleUploadedFile("trace.jsonl", ROW)
    page = browser("operator").post(f"{PAGE}import/", {**fields, "file": file}, follow=True)
    assert "Trace mine imported. Requests: 1." in shown(page)
    query = {"name": "mine", "trace_format": "agentic"}
    answer = browser("operator").get(f"{PAGE}export/", query)
    assert b'"id":"request-1"' in async_to_sync(whole)(answer.streaming_content)
    browser("operator").post(f"{PAGE}delete/", {"trace": "mine"})
    assert not imported_traces(endpoint).exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ROW[:-20], "Line 1 is not JSON"),
        (ROW.replace(b"[0, 7]", b"7"), "Line 1: hash_ids is no list of integers."),
        (b"", "The file has 0 requests."),
    ],
)
def test_a_bad_file_is_shown_with_its_line(endpoint: Endpoint, data: bytes, message: str) -> None:
    fields = {"name": "mine", "trace_format": "mooncake", "file": SimpleUploadedFile("t", data)}
    answer = browser("operator").post(f"{PAGE}import/", fields)
    assert answer.status_code == 400
    assert message in shown(answer)
    assert 'value="mine"' in shown(answer)


@pytest.mark.parametrize(
    "query", ["", "first=x&last=y", "name=absent", "first=2026-01-01T00:00:00Z", "block_tokens=-1"]
)
def test_nonsense_exports_name_the_problem(endpoint: Endpoint, query: str) -> None:
    answer = browser("operator").get(f"{PAGE}export/?{query}")
    assert answer.status_code == 400
    assert 'role="alert"' in shown(answer)


def test_pages_of_many_hours(endpoint: Endpoint) -> None:
    recording = reply("r1", [1])
    first = recording["pieces"][0]
    recording["pieces"] = [
        {**first, "number": n + 1, "hour": first["hour"] - 3600 * n} for n in range(60)
    ]
    add_pieces(endpoint, URL, recording, NOW)
    assert "–60 of 60" in shown(browser("viewer").get(f"{PAGE}?page=2"))
