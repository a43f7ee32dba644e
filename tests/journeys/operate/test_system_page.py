"""System page in Chromium: it refreshes itself, and an open log stays open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from tests.console.system.conftest import Rig, supervised_programs  # noqa: F401
from tests.support.browser import PHONE, watch
from tests.support.people import PASSWORD, Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_crash_is_shown_without_a_reload_and_the_open_log_stays(
    chrome: Browser, supervised_programs: Rig, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url, PHONE, "dark")
    watched.open("/login/")
    watched.page.fill("#id_username", "alice")
    watched.page.fill("#id_password", PASSWORD)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("aside.navbar")
    watched.open("/system/")
    watched.page.click("[data-program=valkey] a")
    watched.page.wait_for_selector("#process-log >> text=idle")
    after = supervised_programs.kill()
    watched.page.wait_for_selector(f"[data-program=valkey] >> text={after.pid}")
    assert watched.page.is_visible("#process-log >> text=idle")
    assert watched.fits()
    assert watched.complaints == []
