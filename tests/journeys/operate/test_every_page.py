"""Every page of the URL map in a real Chromium, on a phone and on a desk, light and dark.

A page is found by walking the map, not by a list, so that a new one cannot be forgotten: whatever
answers 200 with a whole HTML page is opened. It must be usable by everybody: no violation that
axe-core finds (WCAG 2.1 A and AA), nothing to scroll to sideways, one heading of the first rank, no
error in the browser's console, nothing from another host.

A page is opened once, on a dark phone, which then turns into a light desktop. axe judges all of it
on the desktop; on the phone, only what colours and widths decide. The menu is the same on every
page and two fifths of what axe reads, so it is judged on one page of every share.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.test import Client
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import Watched, watch
from tests.support.people import PASSWORD, Cast, client_of
from tests.support.urlwalk import places

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""A folder for pictures, for who wants to look."""
ONLY = os.environ.get("EMBERLINE_PAGES", "")
"""A part of a path, for who works on one page."""
ALL_RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
# Rules whose verdict depends on the theme or the width.
VISUAL_RULES = {
    "type": "rule",
    "values": ["color-contrast", "link-in-text-block", "scrollable-region-focusable"],
}
OTHERS = "#api-explorer"
"""Not ours to mend: Swagger UI has colours and headings of its own."""
MENU = "aside.navbar"
AXE = Axe().axe_script
Theme = Literal["light", "dark"]
DEVICES: tuple[tuple[int, Theme], ...] = ((390, "dark"), (1280, "light"))
ARRIVED = """async () => {
  // The page hears of its new theme before the next frame, and moves from there.
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  for (const moving of document.getAnimations())
    if (Number.isFinite(moving.effect.getComputedTiming().endTime)) moving.finish();
}"""
SHARES = 4
"""The walk is cut into so many tests, which several processes can share."""


def is_page(client: Client, path: str) -> bool:
    answer = client.get(path)
    kind = answer.headers.get("Content-Type", "")
    if answer.streaming:
        answer.close()  # nobody reads it, and it takes a place
        return False
    if answer.status_code != 200 or not kind.startswith("text/html"):
        return False
    return b"<html" in answer.content


def pages(client: Client, part: str = "", share: int = 0, shares: int = 1) -> list[str]:
    found = [place.path for place in places() if part in place.path]
    return [path for path in found[share::shares] if is_page(client, path)]


def log_in(browser: Browser, url: str) -> Watched:
    watched = watch(browser, url)
    watched.open("/login/")
    watched.page.fill("#id_username", "ada")
    watched.page.fill("#id_password", PASSWORD)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("aside.navbar")
    return watched


def turn_into(watched: Watched, width: int, theme: Theme) -> None:
    """With all that moves arrived: a colour on its way to another is nobody's."""
    watched.page.set_viewport_size({"width": width, "height": 844})
    watched.page.emulate_media(color_scheme=theme)
    watched.page.evaluate(ARRIVED)


def look(watched: Watched, path: str, menu: bool) -> list[str]:
    """What is wrong with this page; empty when nothing is."""
    wrong = []
    for number, (width, theme) in enumerate(DEVICES):
        turn_into(watched, width, theme)
        if number == 0:
            watched.page.goto(watched.base + path)
            watched.page.wait_for_load_state("load")
            watched.page.locator("h1").first.wait_for()
        rules = VISUAL_RULES if number == 0 else ALL_RULES
        wrong += [f"{path} {width} {theme}: {fault}" for fault in judged(watched, menu, rules)]
        if SHOTS:
            name = f"{path.strip('/').replace('/', '_') or 'overview'}_{width}_{theme}.png"
            watched.page.screenshot(path=str(Path(SHOTS) / name), full_page=True)
    return wrong


def judged(watched: Watched, menu: bool, rules: dict[str, Any]) -> list[str]:
    wrong = ["one must scroll sideways"] if watched.overflows() else []
    if (count := watched.page.locator(f"h1:not({OTHERS} *)").count()) != 1:
        wrong.append(f"{count} headings of the first rank")
    wrong += violations(watched, menu, rules) + watched.complaints
    watched.complaints.clear()
    return wrong


def violations(watched: Watched, menu: bool = True, rules: dict[str, Any] = ALL_RULES) -> list[str]:
    options = {"runOnly": rules, "resultTypes": ["violations"], "preload": False}
    context = {"exclude": [[OTHERS]] if menu else [[OTHERS], [MENU]]}
    # By `evaluate` the script comes from outside the page, so its policy on scripts stays whole.
    if not watched.page.evaluate("'axe' in window"):
        watched.page.evaluate(AXE)
    run = "([context, options]) => axe.run(context, options).then(found => found.violations)"
    return [
        f"{rule['id']}: {node['html'][:160]} {_why(node)}"
        for rule in watched.page.evaluate(run, [context, options])
        for node in rule["nodes"][:3]
    ]


def _why(node: dict[str, Any]) -> str:
    return str(node["failureSummary"]).splitlines()[-1].strip()[:200]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", range(SHARES))
def test_every_page_is_accessible(
    chrome: Browser, furnished: Cast, live_server: LiveServer, share: int
) -> None:
    found = pages(client_of(furnished.ada), ONLY, share, SHARES)
    wrong = []
    watched = log_in(chrome, live_server.url)
    for number, path in enumerate(found):
        wrong += look(watched, path, menu=number == 0)
    assert not wrong, "\n" + "\n".join(wrong)


def test_walk_finds_the_pages(furnished: Cast) -> None:
    client = client_of(furnished.ada)
    walked = {place.path for place in places()}
    for path in ("/", "/endpoints/", "/endpoints/demo/", "/cache/demo/", "/clusters/demo/"):
        assert path in walked
        assert is_page(client, path)
    assert not is_page(client, "/api/v1/endpoints/")
    assert len(walked) > 100


def test_checker_detects_faults(chrome: Browser, live_server: LiveServer) -> None:
    watched = watch(chrome, live_server.url, 390)
    watched.page.goto(live_server.url + "/healthz")
    watched.page.set_content("<h1>One</h1><h1>Two</h1><input><div style='width: 900px'>wide</div>")
    assert watched.overflows()
    assert any(line.startswith("label:") for line in violations(watched))
    assert not watched.fits()
    wide = "<style>div { width: 9px } @media (%s) { div { width: 2000px } }</style><div>x</div>"
    for where, fits in (("min-width: 1000px", False), ("min-width: 2000px", True)):
        watched.page.set_content(wide % where)
        assert watched.fits() is fits
