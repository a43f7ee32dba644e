"""Chromium that records page errors.

Collects console errors, blocked scripts and requests to other hosts in `complaints`, which tests
check at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from console.launcher.layout import ROOT, Layout
from console.launcher.tools import headless_shell

CHROMIUM = Path(
    os.environ.get("CHROMIUM") or headless_shell(Layout(ROOT / "var")) or "/usr/bin/chromium"
)
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
# How htmx logs a request that is cut short because the page is left; a failed one has sendError.
_LEFT = ("htmx:afterRequest,", "htmx:sendAbort,")
# The default of five seconds assumes an idle machine.
expect.set_options(timeout=60_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; set CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=list(_FLAGS), timeout=120_000
        )
        yield browser
        browser.close()


def is_error(message: ConsoleMessage) -> bool:
    return message.type == "error" and not message.text.startswith(_LEFT)


PHONE, DESK = 390, 1280  # pixels


@dataclass
class Watched:
    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("networkidle")

    def take_session(self, client: Client) -> None:
        """Continue the session of a test client that is logged in; the form costs two pages."""
        name = settings.SESSION_COOKIE_NAME
        cookie = {"name": name, "value": client.cookies[name].value, "url": self.base}
        self.page.context.add_cookies([cookie])  # type: ignore[list-item]

    def overflows(self) -> bool:
        """Return whether the page scrolls horizontally."""
        root = self.page.locator("html")  # waits where a page is just being replaced
        return bool(root.evaluate("root => root.scrollWidth > root.clientWidth"))

    def fits(self) -> bool:
        """Return whether the page fits at phone and desktop width; ends at phone width."""
        wrong = []
        for width in (DESK, PHONE):
            self.page.set_viewport_size({"width": width, "height": 844})
            wrong += [width] if self.overflows() else []
        return not wrong


def watch(
    browser: Browser,
    base: str,
    width: int = 1280,
    theme: str = "light",
    timezone_id: str | None = None,
) -> Watched:
    """Open a page without shared cookies and record its errors."""
    scheme = "dark" if theme == "dark" else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 844},
        color_scheme=scheme,
        base_url=base,
        timezone_id=timezone_id,
        reduced_motion="reduce",  # a colour or position in transition is not final
    )
    context.set_default_timeout(90_000)
    watched = Watched(context.new_page(), base)
    note = watched.complaints.append
    watched.page.on("console", lambda message: note(message.text) if is_error(message) else None)
    watched.page.on("pageerror", lambda error: note(str(error)))
    own = (base, "data:", "blob:")
    watched.page.on("request", lambda r: None if r.url.startswith(own) else note(r.url))
    return watched
