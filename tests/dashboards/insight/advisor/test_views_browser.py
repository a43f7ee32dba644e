"""Advice page in Chromium: updates while advice is computed, on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif.models import WhatIf
from endpoints.runs import RunState
from tests.support.browser import PHONE, watch
from tests.support.console import browser

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_updates_keep_the_focus_and_are_announced(
    chrome: Browser, live_server: LiveServer, queued: Advice
) -> None:
    watched = watch(chrome, live_server.url, PHONE)
    watched.take_session(browser("operator"))
    page = watched.page
    page.goto(f"/advisor/endpoints/{queued.endpoint.name}/")
    expect(page.locator(".tabs-second .nav-link.active")).to_be_in_viewport(ratio=0.9)
    page.locator("#cancel-advice").focus()
    WhatIf.objects.update(state=RunState.RUNNING, share=0.5, stage="Calibration")
    expect(page.locator("#advice-state")).to_have_text("Computing advice, 50 %")
    expect(page.locator("progress")).to_have_attribute("value", "50")
    expect(page.locator("#cancel-advice")).to_be_focused()
    assert watched.complaints == []
