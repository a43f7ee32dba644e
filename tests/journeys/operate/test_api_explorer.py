"""Swagger UI in Chromium: own policy, own host, current user."""

from __future__ import annotations

import os
from typing import Any

import pytest
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from console.accounts.models import User
from tests.support.browser import PHONE, watch

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SHOTS = os.environ.get("EMBERLINE_SHOTS", "")


def test_operation_is_tried_from_the_page(chrome: Browser, live_server: LiveServer) -> None:
    User.objects.create_user("ada", password="correct-horse-7", role="admin")
    watched = watch(chrome, live_server.url, PHONE, "dark")
    page: Any = watched.page
    watched.open("/login/?next=/api/v1/docs/try/")
    page.fill("[name=username]", "ada")
    page.fill("[name=password]", "correct-horse-7")
    page.click("button[type=submit]")
    page.wait_for_selector("#operations-tag-me")
    assert watched.fits()
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/explorer.png")
    page.click("#operations-tag-me")
    page.click(".opblock-summary-control:has-text('/me/')")
    page.click("button.execute")
    page.wait_for_selector(".live-responses-table .microlight")
    assert "ada" in page.inner_text(".live-responses-table")
    if SHOTS:
        page.screenshot(path=f"{SHOTS}/explorer-tried.png")
    assert watched.complaints == []
