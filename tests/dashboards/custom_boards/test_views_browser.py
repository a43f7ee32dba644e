"""Custom board in Chromium: pinned from a dashboard, arranged by keyboard and mouse."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from dashboards.custom_boards.models import CustomBoard
from tests.journeys.operate.test_every_page import violations
from tests.support.browser import Watched, watch
from tests.support.console import browser as logged_in
from tests.support.dashboards.fixtures import Scraping
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""Folder for screenshots, if requested."""


@pytest.fixture
def operator(chrome: Browser, live_server: Any, settings: Any, scraping: Scraping) -> Watched:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=scraping.url)
    watched = watch(chrome, live_server.url)
    watched.take_session(logged_in("operator"))
    return watched


def judged(it: Watched, name: str) -> None:
    """Check accessibility, and take a screenshot if requested."""
    if SHOTS:
        it.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)
    assert not it.overflows(), name
    assert violations(it, menu=False) == []
    assert it.complaints == []


def order() -> list[str]:
    return [panel["panel"] for panel in CustomBoard.objects.get().panels]


def test_panel_is_pinned_by_keyboard_arranged_and_opened_by_link(operator: Watched) -> None:
    page = operator.page
    for name, title in (("requests", "Requests/s"), ("ttft", "Time to first token")):
        page.goto(f"{operator.base}/dashboards/?panel={name}")
        page.get_by_role("link", name=f"{title}: pin to a board").press("Enter")
        dialog = page.get_by_role("dialog", name=f"Pin {title}")
        expect(dialog.get_by_label("Board", exact=True)).to_be_focused()
        page.keyboard.press("Tab")
        dialog.get_by_role("button", name="Pin").press("Enter")
        expect(page.get_by_text("Pinned to My board.")).to_be_visible()
        expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Open board").press("Enter")
    expect(page.get_by_role("heading", name="My board")).to_be_visible()
    page.get_by_role("link", name="Edit", exact=True).press("Enter")
    page.locator(".panel-legend button").first.wait_for()
    judged(operator, "board-edited")

    later = page.get_by_role("button", name="Requests/s: move later")
    later.press("Enter")
    until(lambda: order() == ["ttft", "requests"], what="the new order")
    expect(later).to_be_focused()
    expect(page.get_by_text("Requests/s: position 2 of 2.")).to_be_attached()
    page.get_by_label("Requests/s: width").select_option("full")
    until(lambda: CustomBoard.objects.get().panels[1]["width"] == "full", what="the new width")
    expect(page.locator("div.col-12:has(> [data-panel])").nth(1)).to_have_class("col-12")
    titles = page.locator("[data-panel] .card-title")
    titles.nth(1).drag_to(titles.nth(0))
    until(lambda: order() == ["requests", "ttft"], what="the dragged panel")
    expect(titles.nth(0)).to_have_text("Requests/s")
    page.get_by_role("button", name="Time to first token: remove").press("Enter")
    expect(titles).to_have_count(1)
    assert order() == ["requests"]
    assert operator.complaints == []
