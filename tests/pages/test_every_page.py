"""Every page of the URL map in a real Chromium, on a phone and on a desk, light and dark.

A page is found by walking the map, not by a list, so that a new one cannot be forgotten: whatever
answers 200 with a whole HTML page is opened. It must be usable by everybody: no violation that
axe-core finds (WCAG 2.1 A and AA), nothing to scroll to sideways, one heading of the first rank, no
error in the browser's console, nothing from another host.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.test import Client
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import Watched, chromium, watch
from tests.support.people import PASSWORD, Cast, client_of
from tests.support.urlwalk import places

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""A folder for pictures, for who wants to look."""
ONLY = os.environ.get("EMBERLINE_PAGES", "")
"""A part of a path, for who works on one page."""
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
OTHERS = "#api-explorer"
"""Not ours to mend: Swagger UI has colours and headings of its own."""
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


def pages(client: Client, part: str = "") -> list[str]:
    return [place.path for place in places() if part in place.path and is_page(client, place.path)]


def log_in(browser: Browser, url: str, width: int, theme: str) -> Watched:
    watched = watch(browser, url, width, theme)
    watched.open("/login/")
    watched.page.fill("#id_username", "ada")
    watched.page.fill("#id_password", PASSWORD)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("aside.navbar")
    return watched


def look(watched: Watched, path: str, at: str) -> list[str]:
    """What is wrong with this page; empty when nothing is."""
    watched.page.goto(watched.base + path)
    watched.page.wait_for_load_state("load")
    watched.page.locator("h1").first.wait_for()
    wrong = []
    if watched.overflows():
        wrong.append(f"{path} {at}: one must scroll sideways")
    if (count := watched.page.locator(f"h1:not({OTHERS} *)").count()) != 1:
        wrong.append(f"{path} {at}: {count} headings of the first rank")
    wrong += [f"{path} {at}: {violation}" for violation in violations(watched)]
    wrong += [f"{path} {at}: {complaint}" for complaint in watched.complaints]
    watched.complaints.clear()
    if SHOTS:
        name = f"{path.strip('/').replace('/', '_') or 'overview'}_{at.replace(' ', '_')}.png"
        watched.page.screenshot(path=str(Path(SHOTS) / name), full_page=True)
    return wrong


def violations(watched: Watched) -> list[str]:
    options: dict[str, Any] = {
        "runOnly": {"type": "tag", "values": STANDARDS},
        "resultTypes": ["violations"],
    }
    # By `evaluate` the script comes from outside the page, so its policy on scripts stays whole.
    found = (
        Axe()
        .run(watched.page, context={"exclude": [[OTHERS]]}, options=options)
        .response["violations"]
    )
    return [
        f"{rule['id']}: {node['html'][:160]} {_why(node)}"
        for rule in found
        for node in rule["nodes"][:3]
    ]


def _why(node: dict[str, Any]) -> str:
    return str(node["failureSummary"]).splitlines()[-1].strip()[:200]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("share", range(SHARES))
def test_everybody_can_use_every_page(furnished: Cast, live_server: LiveServer, share: int) -> None:
    found = pages(client_of(furnished.ada), ONLY)[share::SHARES]
    wrong = []
    with chromium() as browser:
        for width, theme in ((1280, "light"), (390, "dark")):
            watched = log_in(browser, live_server.url, width, theme)
            for path in found:
                wrong += look(watched, path, f"{width} {theme}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_walk_finds_the_pages(furnished: Cast) -> None:
    found = pages(client_of(furnished.ada))
    assert {"/", "/endpoints/", "/endpoints/demo/", "/cache/demo/", "/clusters/demo/"} <= {*found}
    assert len(found) > 30


def test_the_look_sees_what_is_wrong(live_server: LiveServer) -> None:
    with chromium() as browser:
        watched = watch(browser, live_server.url, 390)
        watched.page.goto(live_server.url + "/healthz")
        watched.page.set_content(
            "<h1>One</h1><h1>Two</h1><input><div style='width: 900px'>wide</div>"
        )
        assert watched.overflows()
        assert any(line.startswith("label:") for line in violations(watched))
