"""Header and groups of an endpoint's pages on a phone, in Chromium."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as live
from django.test import Client
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import PHONE, watch
from tests.support.console import make_endpoint, person, pretend_ready

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_header_stays_in_view_and_groups_scroll_on_a_phone(
    chrome: Browser, live_server: LiveServer
) -> None:
    pretend_ready(make_endpoint("a-rather-long-name-of-an-endpoint"))
    client = Client()
    client.force_login(person("admin"))
    name = live.SESSION_COOKIE_NAME
    watched = watch(chrome, live_server.url, PHONE, "dark")
    cookie = {"name": name, "value": client.cookies[name].value, "url": live_server.url}
    watched.page.context.add_cookies([cookie])  # type: ignore[list-item]
    page: Any = watched.page
    watched.open("/endpoints/a-rather-long-name-of-an-endpoint/configuration/")
    assert watched.fits()
    current = page.locator("nav[aria-label^='Pages of'] [aria-current]")
    assert current.all_inner_texts() == ["Configuration", "Spec"]
    expect(current.first).to_be_in_viewport()
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate("window.scrollY") > 500
    expect(page.locator("#endpoint-head h1")).to_be_in_viewport()
    expect(page.locator("#endpoint-head .phase-badge")).to_be_in_viewport()
    page.get_by_role("link", name="Boards").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboards/**")
    assert current.all_inner_texts() == ["Boards"]
    assert watched.complaints == []
