"""The main job in a real Chromium: log in, create by form, watch it become Ready, use it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import is_error
from tests.support.product.product import Product

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.timeout(600)]

# Folder for screenshots, if requested.
SHOTS = os.environ.get("EMBERLINE_SCREENSHOTS")


class Watched:
    """A page whose console errors and requests to other hosts are kept."""

    def __init__(self, browser: Browser, product: Product, session: httpx.Client) -> None:
        self.product = product
        self.session = session
        self.context = browser.new_context(
            base_url=product.url, viewport={"width": 1360, "height": 900}, reduced_motion="reduce"
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(90_000)
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda m: self.errors.append(m.text) if is_error(m) else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._seen)

    def _seen(self, request: object) -> None:
        url = getattr(request, "url", "")
        if not url.startswith((self.product.url, "data:", "blob:", "about:")):
            self.foreign.append(url)

    def logged_in(self) -> Page:
        """Return the page with the session of a client: the login form costs three pages."""
        cookies = self.session.cookies.items()
        self.context.add_cookies(
            [{"name": name, "value": value, "url": self.product.url} for name, value in cookies]
        )
        return self.page

    def log_in(self) -> Page:
        self.page.goto("/")
        expect(self.page).to_have_url(re.compile("/login/"))
        self.page.get_by_label("User name").fill("admin")
        self.page.get_by_label("Password").fill(self.product.password)
        self.page.get_by_role("button", name=re.compile("log in|sign in", re.I)).click()
        expect(self.page).not_to_have_url(re.compile("/login/"))
        return self.page

    def shot(self, name: str) -> None:
        if SHOTS:
            self.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


@pytest.fixture(scope="module")
def session(simulated: Product) -> Iterator[httpx.Client]:
    with closing(simulated.sign_in()) as client:
        yield client


@pytest.fixture()
def watched(chrome: Browser, simulated: Product, session: httpx.Client) -> Iterator[Watched]:
    watched = Watched(chrome, simulated, session)
    yield watched
    watched.context.close()
    assert not watched.errors, watched.errors
    assert not watched.foreign, watched.foreign


def test_create_through_the_form_and_watch_it_become_ready(watched: Watched) -> None:
    page = watched.log_in()
    page.goto("/endpoints/new/")
    page.locator("[name=name]").fill("from-form")
    page.locator("[name=model]").fill("smollm2-135m-instruct")
    page.locator("[name=engine]").select_option("simulated")
    page.locator("[name=replicas]").fill("2")
    page.locator("#group-routing > summary").click()  # folded until opened
    page.locator("[name='routing.strategy']").select_option("session")
    watched.shot("endpoint-form")
    page.get_by_role("button", name="Create endpoint").click()
    expect(page).to_have_url(re.compile("/endpoints/from-form/"))
    # The page follows without a reload.
    expect(page.get_by_text("2/2 workers ready.", exact=True)).to_be_visible(timeout=90_000)
    watched.shot("endpoint-ready")

    page.locator("[name=prompt]").fill("Tell me about warm caches. " * 20)
    page.get_by_role("button", name=re.compile("^ ?send$", re.I)).click()
    expect(page.get_by_text("[simulated]").first).to_be_visible(timeout=90_000)
    watched.shot("endpoint-answer")

    page.goto("/endpoints/from-form/delete/")
    page.locator("#content input[name=name]").first.fill("from-form")
    page.get_by_role("button", name=re.compile("delete", re.I)).click()
    expect(page.get_by_text("from-form").first).to_be_visible()


def test_an_invalid_form_states_the_errors_and_remedies(watched: Watched) -> None:
    page = watched.logged_in()
    page.goto("/endpoints/new/")
    page.locator("[name=name]").fill("Bad Name!")
    page.locator("[name=replicas]").fill("-3")
    page.locator("#group-cache > summary").click()
    page.locator("[name='cache.l2.enabled']").check()
    page.locator("[name='cache.l2.backend']").select_option("redis")
    page.get_by_role("button", name="Create endpoint").click()
    expect(page.get_by_role("heading", name="Endpoint not created")).to_be_visible()
    text = page.locator("#form-errors").inner_text()
    assert "-3" in text
    assert "redis://" in text
    assert "Bad Name!" in text
    expect(page.locator("[name=name]")).to_have_value("Bad Name!")
    watched.shot("form-errors")
    # Chromium reports the page's own status as an error; it is the right one.
    watched.errors = [text for text in watched.errors if "400" not in text]


def test_every_page_states_that_workers_are_simulated(session: httpx.Client) -> None:
    for path in ("/", "/endpoints/", "/endpoints/demo/", "/dashboards/", "/cache/", "/audit/"):
        assert 'data-banner="simulated"' in session.get(path).raise_for_status().text, path


def test_the_proof_from_the_overview(watched: Watched) -> None:
    page = watched.logged_in()
    page.goto("/")
    page.locator("#proof-endpoint").select_option("demo")
    page.get_by_role("button", name="Run cache proof").click()
    expect(page.get_by_text(re.compile("Passed on demo"))).to_be_visible(timeout=120_000)
    watched.shot("overview")


def test_pages_fit_a_phone(watched: Watched) -> None:
    """No page scrolls sideways at 390 px; test_every_page has all pages, with less in them."""
    page = watched.logged_in()
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        "/",
        "/endpoints/",
        "/endpoints/demo/",
        "/endpoints/new/",
        "/dashboards/",
        "/cache/",
        "/cache/default/",
        "/cache/default/edit/",
        "/cache/new/",
        "/audit/",
        "/access/",
        "/profile/",
    ):
        page.goto(path)
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0, f"{path} is {overflow} px too wide"
        watched.shot(f"phone-{path.strip('/').replace('/', '-') or 'overview'}")


def test_a_cache_tier_from_the_form_to_its_end(watched: Watched) -> None:
    """Made, grown while it serves, flushed and deleted, in a browser."""
    page = watched.logged_in()
    page.goto("/cache/")
    page.get_by_role("link", name="New cache tier").click()
    page.locator("[name=name]").fill("spare")
    page.locator("[name=memory_bytes]").fill("0.0625")
    page.get_by_role("button", name="Create cache tier").click()
    expect(page.locator(".phase-badge[data-phase=Ready]")).to_be_visible(timeout=90_000)
    expect(page.get_by_text("Not enough lookups")).to_be_visible()
    page.get_by_role("link", name="Edit").click()
    page.locator("[name=memory_bytes]").fill("0.125")
    page.locator("[name=node_count]").fill("2")
    page.get_by_role("button", name="Save changes").click()
    expect(page.get_by_text("of 256 MiB")).to_be_visible(timeout=90_000)
    page.locator("[name=typed]").fill("spare")
    page.get_by_role("button", name="Flush").click()
    expect(page.get_by_text("Flushed 0 values")).to_be_visible(timeout=90_000)
    watched.shot("cache-tier")
    page.get_by_role("link", name="Delete spare").click()
    page.locator("[name=name]").fill("spare")
    page.get_by_role("button", name="Delete spare").click()
    expect(page.get_by_role("heading", name="spare")).to_have_count(0, timeout=90_000)
