"""Every page of the URL map in a real Chromium, on a phone and on a desk, light and dark.

A page is found by walking the map, not by a list, so that a new one cannot be forgotten: whatever
answers 200 with a whole HTML page is opened. It must be usable by everybody: no violation that
axe-core finds (WCAG 2.1 A and AA), nothing to scroll to sideways, one heading of the first rank, no
error in the browser's console, nothing from another host.

A page is opened once, on a dark phone which turns into a light desktop, or the other way round.
What colours and widths decide is judged on both by `visible_faults`, which takes a sixth of axe's
time; the rest by axe on the desktop. axe judges all of it, with the menu, which is the same on
every page, on the first pages of every share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.test import Client
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import DESK, PHONE, Watched, watch
from tests.support.people import Cast, client_of
from tests.support.urlwalk import places
from tests.support.visible_faults import visible_faults

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""Folder for screenshots, if requested."""
ONLY = os.environ.get("EMBERLINE_PAGES", "")
"""A part of a path, for who works on one page."""
ALL_RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
# Rules whose verdict depends on the theme or the width; `visible_faults` has them too.
VISUAL_RULES = {
    "type": "rule",
    "values": ["color-contrast", "link-in-text-block", "scrollable-region-focusable"],
}
OTHERS = "#api-explorer"
"""Excluded: Swagger UI has its own colours and headings."""
MENU = "aside.navbar"
AXE = Axe().axe_script
Theme = Literal["light", "dark"]
DEVICES: tuple[tuple[int, Theme], ...] = ((PHONE, "dark"), (DESK, "light"))
ARRIVED = """async () => {
  // The page gets its new theme before the next frame, and transitions from there.
  await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  for (const moving of document.getAnimations())
    if (Number.isFinite(moving.effect.getComputedTiming().endTime)) moving.finish();
}"""
SHARES = 4
"""The walk is cut into so many tests, which several processes can share."""
BY_AXE = 2
"""Pages of each share on which axe judges colours and widths too: one opened on each device."""


def is_page(client: Client, path: str) -> bool:
    answer = client.get(path)
    kind = answer.headers.get("Content-Type", "")
    if answer.streaming:
        answer.close()  # invisible, but takes space
        return False
    if answer.status_code != 200 or not kind.startswith("text/html"):
        return False
    return b"<html" in answer.content


def pages(client: Client, part: str = "", share: int = 0, shares: int = 1) -> list[str]:
    found = [place.path for place in places() if part in place.path]
    return [path for path in found[share::shares] if is_page(client, path)]


def turn_into(watched: Watched, width: int, theme: Theme) -> None:
    """After all transitions: a colour in transition is not final."""
    watched.page.set_viewport_size({"width": width, "height": 844})
    watched.page.emulate_media(color_scheme=theme)
    watched.page.evaluate(ARRIVED)


def check_page(watched: Watched, path: str, number: int) -> list[str]:
    """What is wrong with this page; empty when nothing is. The next page begins on the device
    where this one ends."""
    wrong = []
    devices = DEVICES if number % 2 == 0 else DEVICES[::-1]
    for opened, (width, theme) in zip((False, True), devices, strict=True):
        if opened or number == 0:
            turn_into(watched, width, theme)
        if not opened:
            watched.page.goto(watched.base + path)
            watched.page.wait_for_load_state("load")
            watched.page.locator("h1").first.wait_for()
        desktop = width == DESK
        wrong += [
            f"{path} {width} {theme}: {fault}"
            for fault in judged(watched, desktop, by_axe=number < BY_AXE)
        ]
        if SHOTS:
            name = f"{path.strip('/').replace('/', '_') or 'overview'}_{width}_{theme}.png"
            watched.page.screenshot(path=str(Path(SHOTS) / name), full_page=True)
    return wrong


def judged(watched: Watched, desktop: bool, by_axe: bool) -> list[str]:
    skipped = OTHERS if by_axe else f"{OTHERS}, {MENU}"
    wrong = settled(lambda: changing(watched, skipped))
    if (count := watched.page.locator(f"h1:not({OTHERS} *)").count()) != 1:
        wrong.append(f"{count} headings of the first rank")
    if by_axe:
        wrong += violations(watched, rules=ALL_RULES if desktop else VISUAL_RULES)
    elif desktop:
        wrong += violations(watched, menu=False, visual=False)
    wrong += watched.complaints
    watched.complaints.clear()
    return wrong


def changing(watched: Watched, skipped: str = "") -> list[str]:
    """What the width and the theme decide."""
    wrong = ["one must scroll sideways"] if watched.overflows() else []
    return wrong + visible_faults(watched.page, skipped)


def settled(check: Callable[[], list[str]], deadline_s: float = 60) -> list[str]:
    """Return what is wrong in the end: a chart takes a new width some frames later."""
    end = time.monotonic() + deadline_s
    while (wrong := check()) and time.monotonic() < end:
        time.sleep(0.05)
    return wrong


def violations(
    watched: Watched, menu: bool = True, rules: dict[str, Any] = ALL_RULES, visual: bool = True
) -> list[str]:
    options = {"runOnly": rules, "resultTypes": ["violations"], "preload": False}
    if not visual:
        options["rules"] = {rule: {"enabled": False} for rule in VISUAL_RULES["values"]}
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
    client = client_of(furnished.ada)
    found = pages(client, ONLY, share, SHARES)
    wrong = []
    watched = watch(chrome, live_server.url)
    watched.take_session(client)
    for number, path in enumerate(found):
        wrong += check_page(watched, path, number)
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


FAULTY = """<style>body {{ background: {page}; color: {ink} }} div {{ width: 300px }}</style>
<main><h1>Faults</h1>
<p>{filler} <a href="/" style="text-decoration: none; color: {link}">a link</a></p>
<p style="opacity: {opacity}">Faded words</p>
<p style="background: {tint}"><span style="color: oklch(55% 0.02 250)">Words on a tint</span></p>
<div tabindex="{reach}" style="height: 40px; overflow: auto">{filler} {filler} {filler}</div>
<button disabled style="color: {page}">Not judged</button></main>"""
FILLER = "Words of a paragraph that has more of them than its link. " * 2
SOUND = {
    "page": "#fff", "ink": "#222", "link": "#b45309", "opacity": "0.9", "tint": "#ffffff80",
    "reach": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        ({}, set()),
        ({"link": "#333"}, {"link-in-text-block"}),
        ({"opacity": "0.5"}, {"color-contrast"}),
        ({"tint": "#33333380"}, {"color-contrast"}),
        ({"reach": "-1"}, {"scrollable-region-focusable"}),
        ({"ink": "#999", "link": "#0000a0"}, {"color-contrast"}),
    ],
    ids=str,
)
def test_visible_faults_are_those_of_axe(
    chrome: Browser, live_server: LiveServer, fault: dict[str, str], rules: set[str]
) -> None:
    watched = watch(chrome, live_server.url, 390)
    watched.page.goto(live_server.url + "/healthz")
    watched.page.set_content(FAULTY.format(**{**SOUND, **fault}, filler=FILLER))
    found = {line.split(":")[0] for line in visible_faults(watched.page)}
    assert found == rules
    by_axe = violations(watched, rules=VISUAL_RULES)
    assert {line.split(":")[0] for line in by_axe} == rules, by_axe
    assert visible_faults(watched.page, "main") == []
