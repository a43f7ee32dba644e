"""Benchmark pages in Chromium: start, live progress, end and comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from dashboards.benchmarks import lifecycle
from dashboards.benchmarks.models import Benchmark
from tests.dashboards.benchmarks.conftest import Fleet, passes
from tests.dashboards.benchmarks.test_views import made
from tests.journeys.operate.test_every_page import changing, settled, turn_into, violations
from tests.support.browser import DESK, PHONE, Watched, watch
from tests.support.console import browser as logged_in
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("tidy")]
SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""Folder for screenshots, if requested."""


def seen(chrome: Browser, live_server: Any, settings: Any, **options: Any) -> Watched:
    watched = watch(chrome, live_server.url, **options)
    watched.take_session(logged_in("operator"))
    return watched


def judged(it: Watched, name: str) -> None:
    """Check accessibility, and take a screenshot if requested."""
    it.page.wait_for_load_state("load")
    if SHOTS:
        width = it.page.evaluate("window.innerWidth")
        it.page.screenshot(path=str(Path(SHOTS) / f"{name}-{width}.png"), full_page=True)
    assert not it.overflows(), name
    assert violations(it) == []
    assert it.complaints == []


def test_benchmark_from_the_form_to_an_abort(
    chrome: Browser, live_server: Any, settings: Any, fleet: Fleet
) -> None:
    fleet.endpoint()
    it = seen(chrome, live_server, settings)
    it.open("/benchmarks/endpoints/demo/new/")
    page = it.page
    page.get_by_role("link", name="Questions about shared documents").click()
    expect(page.get_by_label("Documents", exact=True)).to_be_visible()
    outlook = page.locator("#outlook")
    # The form is new: what is typed before htmx listens to it is not seen.
    listens = "document.querySelector('#outlook')['htmx-internal-data']?.listenerInfos?.length"
    page.wait_for_function(listens)
    page.get_by_label("Request rate (requests/s)").fill("30")
    expect(outlook).to_contain_text("about 30")
    page.get_by_label("Request rate (requests/s)").fill("0")
    expect(outlook).to_contain_text("too small")
    page.get_by_label("Request rate (requests/s)").fill("30")
    page.get_by_label("Duration (s)").fill("600")
    page.get_by_label("I am allowed to load these endpoints.").check()
    page.get_by_role("button", name="Start benchmark").click()
    expect(page.get_by_text("Queued").first).to_be_visible()
    run = passes(Benchmark.objects.get(), "running")
    until(lambda: lifecycle.read_current_progress(run).get("elapsed_s", 0) > 3)
    expect(page.get_by_role("img", name="Requests/s")).to_be_visible()
    judged(it, "running")
    page.get_by_role("button", name="Abort").click()
    expect(page.get_by_text("is being aborted")).to_be_visible()
    passes(run, "aborted")
    expect(page.locator(".badge", has_text="Aborted").first).to_be_visible()
    expect(page.get_by_role("heading", name="Results")).to_be_visible()


def test_every_page_can_be_used(
    chrome: Browser, live_server: Any, settings: Any, fleet: Fleet
) -> None:
    """On a desktop in light colours, which then turns into a dark phone, and back."""
    endpoint = fleet.endpoint()
    a, b = made(endpoint, 0.3, title="Before"), made(endpoint, 0.1)
    it = seen(chrome, live_server, settings)
    for name, path in (
        ("list", "/benchmarks/endpoints/demo/"),
        ("new", "/benchmarks/endpoints/demo/new/?workload=trace&mode=rate"),
        ("result", a.get_absolute_url()),
        ("compare", f"/benchmarks/compare/?run={a.pk}&run={b.pk}"),
    ):
        turn_into(it, DESK, "light")
        it.page.goto(live_server.url + path)
        judged(it, name)
        turn_into(it, PHONE, "dark")
        assert settled(lambda: changing(it)) == [], name
