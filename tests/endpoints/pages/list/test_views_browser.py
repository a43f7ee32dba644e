"""Endpoint list and quick search by keyboard, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as live
from django.test import Client
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import PHONE, Watched, watch
from tests.support.console import make_endpoint, person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def cookie(live_server: LiveServer) -> dict[str, str]:
    """Browser of a logged-in user."""
    client = Client()
    client.force_login(person("admin"))
    name = live.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": live_server.url}


def opened(browser: Browser, cookie: Any, width: int, theme: str) -> Watched:
    watched = watch(browser, cookie["url"], width, theme)
    watched.page.context.add_cookies([cookie])
    return watched


def test_search_select_and_pause_by_keyboard(chrome: Browser, cookie: dict[str, str]) -> None:
    for name in ("chat", "docs", "batch"):
        make_endpoint(name)
    watched = opened(chrome, cookie, 1280, "light")
    watched.open("/endpoints/")
    page: Any = watched.page
    assert page.locator("#bulk-form").is_hidden(), "nothing is ticked"
    page.fill("#filter-q", "chat")
    expect(page.locator("[aria-label='Select docs']")).to_have_count(0)
    page.wait_for_url("**q=chat*")
    page.check("[aria-label='Select chat']")
    expect(page.locator("[data-bulk-count]")).to_have_text("1 endpoint")
    # The list refreshes itself; checked rows stay checked.
    with page.expect_response(lambda answer: "/endpoints/?" in answer.url):
        pass
    expect(page.locator("[aria-label='Select chat']")).to_be_checked()
    page.click("#bulk-form >> text=Pause")
    page.wait_for_selector("text=Pause 1 endpoint?")
    page.click("button:has-text('Pause 1 endpoint')")
    page.wait_for_selector("[data-ok=yes] >> text=pausing")
    page.keyboard.press("/")
    page.keyboard.type("docs lo")
    page.wait_for_selector("#palette-hits [aria-selected=true] >> text=docs: Logs")
    page.keyboard.press("Enter")
    page.wait_for_url("**/endpoints/docs/logs/")
    assert watched.complaints == []


def test_page_does_not_scroll_sideways(chrome: Browser, cookie: dict[str, str]) -> None:
    make_endpoint("an-endpoint-with-a-name-as-long-as-may-b")
    base = "/endpoints/an-endpoint-with-a-name-as-long-as-may-b/"
    tabs = ("", "workers/", "cache/", "configuration/", "revisions/", "settings/")
    watched = opened(chrome, cookie, PHONE, "dark")
    for path in ("/", "/endpoints/", "/settings/", "/about/", *(base + tab for tab in tabs)):
        watched.open(path)
        assert watched.fits(), path
    assert watched.complaints == []
