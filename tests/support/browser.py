"""A real Chromium which reports what a person would call broken.

Collects console errors, blocked scripts and every request to another host; the test asserts on
`complaints` at its end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
# Its five seconds are for a machine that does nothing else.
expect.set_options(timeout=20_000)


@contextmanager
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; set CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(_FLAGS))
        yield browser
        browser.close()


PHONE, DESK = 390, 1280  # pixels


@dataclass
class Watched:
    page: Page
    base: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.page.wait_for_load_state("networkidle")

    def overflows(self) -> bool:
        """Whether one must scroll sideways."""
        widths = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(widths))

    def fits(self) -> bool:
        """Whether nobody must scroll sideways, with a phone or at a desk; it is a phone again
        afterwards."""
        wrong = []
        for width in (DESK, PHONE):
            self.page.set_viewport_size({"width": width, "height": 844})
            wrong += [width] if self.overflows() else []
        return not wrong


def watch(browser: Browser, base: str, width: int = 1280, theme: str = "light") -> Watched:
    """A page of its own (no cookies shared) whose complaints are collected."""
    scheme = "dark" if theme == "dark" else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, base_url=base
    )
    watched = Watched(context.new_page(), base)
    note = watched.complaints.append
    watched.page.on("console", lambda m: note(m.text) if m.type == "error" else None)
    watched.page.on("pageerror", lambda error: note(str(error)))
    own = (base, "data:", "blob:")
    watched.page.on("request", lambda r: None if r.url.startswith(own) else note(r.url))
    return watched
