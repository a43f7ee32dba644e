"""Clicks, filled fields and pages of a new operator's first walk through the console.

    python -m bench.console_walk http://127.0.0.1:8000 USER [--password-file FILE] [--create]

Drives Chromium against a running console: first login, first answered request, explanation of one
cache miss. With `--create` the walk begins by creating an endpoint (`--name`), otherwise it uses
one that exists. Works on older versions too: where a shortcut is missing, the longer way is taken.
"""

from __future__ import annotations

import argparse
import getpass
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
PROMPT = "Summarize the attached report for the operators on call. " * 20
ANSWERED = "#answer dl, .turn-facts dl"
EXPLAIN = "a[href*='/decisions/']:visible"


@dataclass
class Step:
    label: str
    clicks: int = 0
    fields: int = 0
    pages: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Walk:
    """Acts in a page and counts what a person would do."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.steps: list[Step] = []
        page.on("framenavigated", lambda frame: self._enter(frame.url, frame == page.main_frame))

    def _enter(self, url: str, is_main: bool) -> None:
        path = url.removeprefix(self.base).split("?")[0]
        if is_main and self.steps and path not in self.steps[-1].pages:
            self.steps[-1].pages.append(path)

    @contextmanager
    def step(self, label: str) -> Iterator[None]:
        self.steps.append(Step(label))
        began = time.perf_counter()
        yield
        self.steps[-1].seconds = time.perf_counter() - began

    def click(self, target: str | Locator) -> None:
        self._locate(target).click()
        self.steps[-1].clicks += 1

    def fill(self, target: str | Locator, text: str) -> None:
        self._locate(target).fill(text)
        self.steps[-1].fields += 1

    def shows(self, selector: str) -> bool:
        return self.page.locator(selector).count() > 0

    def _locate(self, target: str | Locator) -> Locator:
        return self.page.locator(target).first if isinstance(target, str) else target


def log_in(walk: Walk, user: str, password: str) -> None:
    with walk.step("log in"):
        walk.page.goto(walk.base + "/login/")
        walk.fill("#id_username", user)
        walk.fill("#id_password", password)
        walk.click("main button[type=submit], form button[type=submit]")
        walk.page.wait_for_selector("aside.navbar")


def create(walk: Walk, name: str, wait_s: float) -> None:
    with walk.step("create an endpoint"):
        walk.click("a[href$='/endpoints/new/']:visible")
        walk.fill("input[name=name]", name)
        walk.click("button:has-text('Create endpoint')")
        ready = walk.page.locator("[data-phase=Ready]").first
        ready.wait_for(timeout=1000 * wait_s)


def send(walk: Walk, by_menu: bool) -> None:
    with walk.step("first answered request"):
        if by_menu:
            walk.click("aside a[href='/playground/']")
            walk.page.wait_for_load_state("load")
            if not walk.shows("#message"):  # a list of endpoints
                walk.click(".page-body a[href*='/playground/endpoints/']")
        field_of = "#message" if walk.shows("#message") else "#id_prompt"
        if walk.shows("[data-fill]:visible"):
            walk.click("[data-fill]:visible")
        else:
            walk.page.wait_for_selector(field_of)
            walk.fill(field_of, f"{uuid.uuid4()} {PROMPT}")
            walk.click(f"form:has({field_of}) button[type=submit]:has-text('Send'):visible")
        walk.page.locator(ANSWERED).first.wait_for(timeout=120_000)


def explain(walk: Walk) -> str:
    """Open the decision of the answer; return the explanation of the miss, "" if there is none."""
    with walk.step("explain the miss"):
        shown = walk.page.locator("[data-miss]:visible")
        if shown.count():
            return str(shown.first.inner_text())
        walk.click(EXPLAIN)
        walk.page.wait_for_url("**/decisions/*/")
        walk.page.wait_for_load_state("load")
        found = walk.page.locator("#miss")
        return " ".join(found.inner_text().split()) if found.count() else ""


def print_table(steps: list[Step]) -> None:
    print(f"{'step':26} {'clicks':>6} {'fields':>6} {'pages':>6} {'s':>6}")
    for one in steps:
        print(
            f"{one.label:26} {one.clicks:6} {one.fields:6} {len(one.pages):6} {one.seconds:6.1f}"
            f"  {' '.join(one.pages)}"
        )
    clicks, fields = sum(one.clicks for one in steps), sum(one.fields for one in steps)
    pages = sum(len(one.pages) for one in steps)
    print(f"{'total':26} {clicks:6} {fields:6} {pages:6} {sum(s.seconds for s in steps):6.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", help="URL of the console")
    parser.add_argument("user")
    parser.add_argument("--password-file", type=Path, help="default: prompt for the password")
    parser.add_argument("--create", action="store_true", help="begin by creating an endpoint")
    parser.add_argument("--name", default=f"walk-{uuid.uuid4().hex[:6]}")
    parser.add_argument("--wait", type=float, default=300, help="seconds until Ready")
    options = parser.parse_args()
    kept = options.password_file.read_text().strip() if options.password_file else ""
    password = kept or getpass.getpass()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 844})
        page.set_default_timeout(60_000)
        walk = Walk(page, options.base.rstrip("/"))
        log_in(walk, options.user, password)
        if options.create:
            create(walk, options.name, options.wait)
        send(walk, by_menu=not options.create)
        reason = explain(walk)
        browser.close()
    print_table(walk.steps)
    print(f"explanation: {reason or 'none'}")


if __name__ == "__main__":
    main()
