"""Header of the endpoint pages: phase, workers, cached figures and their absence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from endpoints import actions
from endpoints.models import Endpoint, EndpointStatus
from endpoints.pages import head
from endpoints.pages.head import HeadFigure
from tests.support.console import browser, make_endpoint, pretend_ready

pytestmark = pytest.mark.django_db
HEAD = "/endpoints/demo/head/"


class Source:
    """Counts its calls; raises `error` instead of answering."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.figures = (HeadFigure("TTFT p90", "0.3 s"), HeadFigure("Hit rate", "64 %"))

    def __call__(self, _endpoint: Endpoint) -> tuple[HeadFigure, ...]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.figures


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    made = Source()
    monkeypatch.setattr(head, "_sources", [made])
    cache.clear()
    yield made
    cache.clear()


@pytest.fixture
def ready(db: None) -> Endpoint:
    workers = {f"demo-worker-{n}": f"http://127.0.0.1:2000{n}" for n in (0, 1)}
    return pretend_ready(make_endpoint(replicas=2), url="http://127.0.0.1:9000", workers=workers)


@pytest.fixture
def page(ready: Endpoint) -> Client:
    return browser("viewer")


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", answer.content.decode())


def test_page_leaves_the_query_to_the_first_poll(page: Client, source: Source) -> None:
    text = text_of(page.get("/endpoints/demo/events/"))
    assert source.calls == 0, "a page never waits for Prometheus"
    assert 'hx-trigger="load, every 5s"' in text
    polled = text_of(page.get(HEAD))
    assert "<dt>TTFT p90</dt><dd>0.3 s</dd>" in polled
    assert "<dt>Hit rate</dt><dd>64 %</dd>" in polled
    assert "2/2 ready" in polled
    assert 'id="endpoint-facts" hx-swap-oob="true"' in polled
    page.get(HEAD)
    again = text_of(page.get("/endpoints/demo/workers/"))
    assert source.calls == 1, "the answer is cached for all pages"
    assert "64 %" in again
    assert 'hx-trigger="every 5s"' in again


def test_missing_figures_are_stated_with_the_reason(page: Client, source: Source) -> None:
    source.figures = (HeadFigure("Hit rate", why="Prometheus is unreachable."),)
    text = text_of(page.get(HEAD))
    assert 'title="Prometheus is unreachable."' in text
    assert "no data" in text


def test_failed_source_leaves_the_header(page: Client, source: Source) -> None:
    source.error = RuntimeError("boom")
    text = text_of(page.get(HEAD))
    assert 'data-phase="Ready"' in text
    assert "TTFT" not in text


def test_pausing_is_a_phase_of_its_own_in_header_list_and_filter(page: Client) -> None:
    actions.pause(actions.SYSTEM, "demo")
    EndpointStatus.objects.update(phase="Pausing", reason="Pausing", ready_replicas=0)
    assert '0<span class="text-secondary">/0</span>' in text_of(page.get("/endpoints/"))
    for url in (HEAD, "/endpoints/", "/endpoints/?phase=Pausing"):
        assert 'data-phase="Pausing"' in text_of(page.get(url)), url
    listed = page.get("/api/v1/endpoints/?phase=Pausing").json()["results"]
    assert [row["phase"] for row in listed] == ["Pausing"]


def test_failed_start_leads_with_the_error_and_folds_the_log(page: Client) -> None:
    EndpointStatus.objects.update(
        phase="Failed",
        reason="WorkersCrashLooping",
        message="demo-worker-0 crashed 3 times before becoming ready. "
        "Crashed (exit code 2: unrecognized arguments: --nonsense=1).",
        detail="usage: api_server.py [-h]",
    )
    text = text_of(page.get("/endpoints/demo/live/"))
    assert text.index("--nonsense=1") < text.index("usage: api_server.py")
    folded = re.search(r"<details ([^>]*)><summary>Last log lines", text)
    assert folded is not None
    assert " open" not in folded[1]
    assert "hx-preserve" in folded[1], "an opened log stays open through the polls"
