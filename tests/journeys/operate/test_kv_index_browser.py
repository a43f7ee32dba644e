"""KV index and doctor in Chromium: phone and desktop, light and dark, by keyboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.endpoints.pages.routing.index_answer import answer
from tests.routing.doctor.stubs import WORKER, router_of
from tests.support.browser import Watched, watch
from tests.support.console import browser as logged_in
from tests.support.console import make_endpoint, pretend_ready
from tests.support.http_stub import Stub, http_stub

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

HOME = "/routing/endpoints/demo"


@pytest.fixture
def router() -> Iterator[Stub]:
    with http_stub(dict(WORKER)) as worker:
        reported = router_of(*[worker.url] * 4, **{"/index": (200, answer())})
        for number, one in enumerate(reported["/workers"][1]["workers"]):
            one["id"] = f"demo-worker-{number}"
        with http_stub(reported) as stub:
            pretend_ready(
                make_endpoint(routing={"enabled": True, "strategy": "kvaware"}),
                admin_url=stub.url,
                workers={f"demo-worker-{number}": worker.url for number in range(4)},
            )
            yield stub


def seen(chrome: Browser, live_server: Any, settings: Any, **options: Any) -> Watched:
    watched = watch(chrome, live_server.url, **options)
    watched.take_session(logged_in("viewer"))
    return watched


def kept(it: Watched, name: str) -> None:
    """Take a screenshot if EMBERLINE_PICTURES names a folder."""
    folder = os.environ.get("EMBERLINE_PICTURES")
    if folder:
        it.page.screenshot(path=f"{folder}/{name}.png", full_page=True)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_both_pages_are_complete(
    chrome: Browser, live_server: Any, settings: Any, router: Stub, width: int, theme: str
) -> None:
    it = seen(chrome, live_server, settings, width=width, theme=theme)
    it.page.goto(f"{live_server.url}{HOME}/kv/")
    expect(it.page.locator("[data-worker]")).to_have_count(4)
    assert not it.overflows()
    kept(it, f"kv-index-{width}-{theme}")
    it.page.goto(f"{live_server.url}{HOME}/doctor/")
    expect(it.page.locator("[data-finding=KvEventsOff], [data-finding]").first).to_be_visible()
    expect(it.page.locator("[data-verdict]")).to_have_attribute("data-verdict", "error")
    assert not it.overflows()
    kept(it, f"doctor-{width}-{theme}")
    assert it.complaints == []


def test_doctor_is_repeated_by_keyboard(
    chrome: Browser, live_server: Any, settings: Any, router: Stub
) -> None:
    it = seen(chrome, live_server, settings)
    it.page.goto(f"{live_server.url}{HOME}/doctor/")
    expect(it.page.locator("[data-finding=IndexNotBelieved]")).to_be_visible()
    mended = answer()
    for one in mended["kv"]["honesty"].values():
        one.update(believed=True, demotions=0)
    router.answers["/index"] = (200, mended)
    it.page.get_by_role("button", name="Run again").focus()
    it.page.keyboard.press("Enter")
    expect(it.page.locator("[data-finding=IndexNotBelieved]")).to_have_count(0)
    expect(it.page.locator("[data-check=IndexNotBelieved]")).to_have_attribute(
        "data-state", "passed"
    )
    it.page.get_by_role("link", name="KV index").focus()
    it.page.keyboard.press("Enter")
    expect(it.page).to_have_url(f"{live_server.url}{HOME}/kv/")
    assert it.complaints == []


def test_index_updates_itself_and_stays_when_the_router_stops(
    chrome: Browser, live_server: Any, settings: Any, router: Stub
) -> None:
    it = seen(chrome, live_server, settings)
    it.page.clock.install()
    it.page.goto(f"{live_server.url}{HOME}/kv/")
    row = it.page.locator("[data-worker=demo-worker-0]")
    expect(row).to_contain_text("900")
    later = answer()
    later["kv"]["tiers"]["demo-worker-0"]["gpu"] = 901
    router.answers["/index"] = (200, later)
    it.page.clock.run_for(3_000)
    expect(row).to_contain_text("901")
    router.answers["/index"] = (500, "gone")
    it.page.clock.run_for(3_000)
    expect(it.page.get_by_text("Stale data")).to_be_visible()
    expect(row).to_contain_text("901")
    kept(it, "kv-index-stale")
    assert it.complaints == []
