"""The pages as a person sees them: drawn under the console's policy, polling, stale when old."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from dashboards import views_boards
from dashboards.panels import BOARDS, FIRST
from tests.dashboards.conftest import Scraping
from tests.support.browser import Watched, chromium, watch
from tests.support.console import browser as logged_in
from tests.support.console import make_endpoint
from tests.support.ports import free_ports

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HIDE = """value => {
  Object.defineProperty(document, "hidden", {value, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    # Playwright's own event loop runs in this thread; Django would take the tests for async code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with chromium() as found:
        yield found
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


def seen(chrome: Browser, live_server: Any, settings: Any, url: str, **look: Any) -> Watched:
    """A viewer's browser, before any page, with the Prometheus at `url`."""
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)
    cookie = logged_in("viewer").cookies[settings.SESSION_COOKIE_NAME]
    watched = watch(chrome, live_server.url, **look)
    watched.page.context.add_cookies(
        [{"name": cookie.key, "value": cookie.value, "url": live_server.url}]
    )
    return watched


def drawn(page: Page) -> None:
    expect(page.locator("[data-state=loading]")).to_have_count(0)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_charts_are_drawn_and_said_in_words(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping, width: int, theme: str
) -> None:
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url, width=width, theme=theme)
    it.page.goto(f"{live_server.url}/dashboards/endpoints/demo/")
    drawn(it.page)
    expect(it.page.locator("[data-board-status]")).to_contain_text("workers 1 of 1, routers 1 of 1")
    expect(it.page.locator(".panel-chart .main-svg").first).to_be_visible()
    assert it.page.locator(".panel-chart:has(.main-svg)").count() == len(
        BOARDS[FIRST].panels(one=True)
    )
    sources = it.page.locator("[data-panel=sources]")
    sources.locator("summary").click()
    expect(sources.locator("tbody tr").first).to_contain_text("Device40.0 %")
    spoken = sources.locator(".panel-chart").get_attribute("aria-label") or ""
    assert "Computed 10.0 %" in spoken
    assert not it.overflows()
    # Text takes the page's colour, so that it can be read in both themes.
    colours = it.page.evaluate(
        "[getComputedStyle(document.querySelector('.panel-chart .xtick text')).fill,"
        " getComputedStyle(document.body).color]"
    )
    assert colours[0] == colours[1]
    assert it.complaints == []


def test_zoom_outlives_a_poll_and_a_hidden_tab_asks_nothing(
    chrome: Browser,
    live_server: Any,
    settings: Any,
    scraping: Scraping,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.clock.install()  # the page's timers run when we say so
    it.page.goto(f"{live_server.url}/dashboards/")
    drawn(it.page)
    chart = "document.querySelector('[data-panel=requests] .panel-chart')"
    begin = f"{chart}._fullLayout.xaxis.range[0]"
    whole = it.page.evaluate(begin)
    length = "(([a, b]) => new Date(b) - new Date(a))"
    assert it.page.evaluate(f"{length}({chart}._fullLayout.xaxis.range)") == 900_000
    it.page.locator("[data-panel=requests] .nsewdrag").scroll_into_view_if_needed()
    box = it.page.locator("[data-panel=requests] .nsewdrag").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    it.page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    it.page.mouse.down()
    it.page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=5)
    it.page.mouse.up()
    it.page.clock.run_for(1_000)
    zoomed = it.page.evaluate(begin)
    assert zoomed > whole
    status = it.page.locator("[data-board-status]")
    before = status.text_content() or ""
    later = time.time() + 60  # the window has moved on, the zoom has not
    monkeypatch.setattr(views_boards, "time", SimpleNamespace(time=lambda: later))
    it.page.clock.run_for(6_000)
    expect(status).not_to_have_text(before)  # it was drawn anew
    assert it.page.evaluate(begin) == zoomed
    it.page.evaluate(HIDE, True)
    asked: list[str] = []
    it.page.on("request", lambda request: asked.append(request.url))
    it.page.clock.run_for(60_000)
    assert asked == []
    with it.page.expect_response("**/dashboards/data?range=15m"):
        it.page.evaluate(HIDE, False)
    assert it.complaints == []


def test_charts_stay_and_are_called_stale_when_prometheus_goes(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.goto(f"{live_server.url}/dashboards/")
    drawn(it.page)
    (port,) = free_ports(1)
    away = dataclasses.replace(settings.EMBERLINE, prometheus_url=f"http://127.0.0.1:{port}")
    settings.EMBERLINE = away
    status = it.page.locator("[data-board-status]")
    expect(status).to_contain_text("Stale since", timeout=15_000)
    expect(status).to_contain_text("Prometheus does not answer")
    expect(it.page.locator("[data-board] > .panel-message")).to_contain_text(f":{port}")
    assert it.page.locator(".panel-chart:has(.main-svg)").count() == len(
        BOARDS[FIRST].panels(one=False)
    )
    expect(it.page.locator("[data-panel] .panel-message:visible")).to_have_count(0)


def test_the_range_is_in_the_address(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.goto(f"{live_server.url}/dashboards/")
    it.page.get_by_label("Last 6 hours").click()
    expect(it.page).to_have_url(f"{live_server.url}/dashboards/?range=6h")
    drawn(it.page)
    expect(it.page.locator("[aria-current=true]")).to_have_text("6h")
