"""Playground in Chromium, over a real router and simulated workers: stream, stop, edit, compare."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.support.asgi_server import asgi_server
from tests.support.browser import Watched, watch
from tests.support.console import browser as logged_in
from tests.support.fleet import Fleet, fleet

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    # Of static files, as console.asgi has it.
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume synchronous"),
]

HOME = "/playground/endpoints/demo/"
LONG = "The quick brown fox jumps over the lazy dog and the sleeping cat. " * 40


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as found:
        yield found


@pytest.fixture
def console(running: Fleet) -> Iterator[str]:
    running.endpoint()
    with asgi_server() as url:
        yield url


def seen(chrome: Browser, url: str, settings: Any, **options: Any) -> Watched:
    watched = watch(chrome, url, **options)
    watched.take_session(logged_in("operator"))
    return watched


def kept(it: Watched, name: str) -> None:
    """Take a screenshot if EMBERLINE_PICTURES names a folder."""
    folder = os.environ.get("EMBERLINE_PICTURES")
    if folder:
        it.page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def fact(turn: Locator, name: str) -> Locator:
    return turn.locator(f"[data-fact={name}]")


def test_sample_prompt_is_sent_with_one_click_and_its_miss_explained(
    chrome: Browser, console: str, settings: Any
) -> None:
    it = seen(chrome, console, settings)
    it.open(HOME)
    sample = it.page.get_by_role("button", name="Send sample prompt")
    sample.click()
    turn = it.page.locator(".turn-assistant").first
    expect(turn.locator("[data-miss]")).to_contain_text("First seen")
    expect(turn.get_by_role("link", name="Explain cache miss")).to_be_visible()
    expect(sample).to_be_hidden()
    assert not it.complaints


def test_conversation_is_streamed_with_its_measurements(
    chrome: Browser, console: str, settings: Any
) -> None:
    it = seen(chrome, console, settings)
    it.open(HOME)
    it.page.get_by_label("Max output tokens").fill("24")
    it.page.get_by_label("System prompt").fill(LONG)
    it.page.get_by_label("Message").fill("What does the fox do?")
    it.page.keyboard.press("Control+Enter")
    answers = it.page.locator(".turn-assistant")
    expect(fact(answers.nth(0), "ttft")).not_to_have_text("–")
    expect(fact(answers.nth(0), "worker")).to_contain_text("demo-worker-")
    expect(fact(answers.nth(0), "tokens")).to_contain_text("computed")
    it.page.get_by_label("Message").fill("And the dog?")
    it.page.get_by_role("button", name="Send", exact=True).click()
    expect(fact(answers.nth(1), "tokens")).to_contain_text("device")
    kept(it, "playground-chat")
    it.page.get_by_role("button", name="Send again cold").click()
    expect(answers).to_have_count(2)
    expect(answers.nth(1)).to_contain_text("cold")
    expect(fact(answers.nth(1), "tokens")).not_to_contain_text("device")
    it.page.get_by_role("button", name="Send again warm").click()
    expect(fact(answers.nth(1), "tokens")).to_contain_text("device")
    runs = it.page.locator("#runs-rows tr")
    expect(runs).to_have_count(4)
    expect(runs.locator("[data-run=mode]")).to_have_text(["warm", "cold", "first", "first"])
    expect(runs.first).to_contain_text("And the dog?")
    expect(runs.first.locator("[data-fact=tokens]")).to_contain_text("device")
    expect(it.page.locator("#runs-summary")).to_contain_text("cold")
    assert len((it.page.locator("#runs-csv").text_content() or "").splitlines()) == 5
    kept(it, "playground-runs")
    answers.nth(1).get_by_role("link", name="Explain").click()
    explained = it.page.locator("#explain")
    expect(explained.get_by_role("heading", name="Compared workers")).to_be_visible()
    expect(answers).to_have_count(2)
    explained.get_by_role("button", name="Close").click()
    expect(explained).to_be_hidden()
    it.open("/routing/endpoints/demo/?range=6h")
    it.page.get_by_label("Worker", exact=True).select_option("demo-worker-0")
    misses = it.page.get_by_role("link", name="Misses", exact=True).first
    expect(misses).to_have_attribute("href", re.compile(r"\?range=6h&worker=demo-worker-0$"))
    it.open(HOME)
    expect(answers).to_have_count(2)
    expect(fact(answers.nth(1), "tokens")).to_contain_text("device")
    expect(runs).to_have_count(4)
    it.page.get_by_role("button", name="New conversation").click()
    expect(answers).to_have_count(0)
    assert it.complaints == []


def test_response_is_stopped_and_a_turn_edited_by_keyboard(
    chrome: Browser, console: str, settings: Any
) -> None:
    it = seen(chrome, console, settings, width=390, theme="dark")
    it.open(HOME)
    it.page.get_by_label("Max output tokens").fill("6000")
    it.page.get_by_text("Advanced parameters", exact=True).click()
    it.page.get_by_label("Min output tokens").fill("6000")
    it.page.get_by_label("Message").fill("Tell me everything")
    it.page.keyboard.press("Control+Enter")
    answer = it.page.locator(".turn-assistant")
    expect(answer.locator(".turn-text")).not_to_be_empty()
    it.page.get_by_role("button", name="Stop").focus()
    it.page.keyboard.press("Enter")
    expect(answer).to_contain_text("Stopped.")
    it.open(HOME)
    expect(answer).to_contain_text("Stopped.")
    it.page.get_by_label("Max output tokens").fill("8")
    it.page.get_by_role("button", name="Edit").focus()
    it.page.keyboard.press("Enter")
    it.page.get_by_label("Edited message").fill("Tell me little")
    it.page.keyboard.press("Tab")
    it.page.keyboard.press("Enter")
    expect(it.page.locator(".turn-user .turn-text")).to_have_text("Tell me little")
    expect(fact(answer, "ttft")).not_to_have_text("–")
    expect(answer).to_have_count(1)
    assert not it.overflows()
    kept(it, "playground-phone")
    assert it.complaints == []


def test_two_strategies_side_by_side(chrome: Browser, console: str, settings: Any) -> None:
    it = seen(chrome, console, settings)
    it.open(f"{HOME}?with=demo")
    it.page.locator("#route-b").select_option("as:roundrobin")
    it.page.get_by_label("Max output tokens").fill("8")
    it.page.get_by_label("Message").fill(LONG)
    it.page.get_by_role("button", name="Send", exact=True).click()
    panes = it.page.locator("[data-pane]")
    for number in range(2):
        expect(fact(panes.nth(number), "ttft")).not_to_have_text("–")
    expect(panes.nth(1)).to_contain_text("routed as roundrobin")
    it.page.get_by_text("Request as code").click()
    expect(it.page.locator("#code-python")).to_contain_text("OpenAI(")
    kept(it, "playground-compare")
    assert it.complaints == []


def test_decisions_are_updated_and_can_be_paused(
    chrome: Browser, console: str, settings: Any, running: Fleet
) -> None:
    it = seen(chrome, console, settings)
    it.page.goto(f"{console}/routing/endpoints/demo/")
    rows = it.page.locator("tr[data-decision]")
    expect(it.page.locator("#live-state")).to_have_text("Live")
    before = rows.count()
    running.stream("a first word")
    expect(rows).to_have_count(before + 1)
    expect(rows.first).to_contain_text("200")
    it.page.get_by_role("button", name="Pause updates").focus()
    it.page.keyboard.press("Enter")
    running.stream("a second word")
    expect(it.page.locator("#live-state")).to_contain_text("Paused, 1 new")
    expect(rows).to_have_count(before + 1)
    it.page.keyboard.press("Enter")
    expect(rows).to_have_count(before + 2)
    kept(it, "routing-decisions")
    it.page.get_by_label("Outcome").select_option("failed")
    expect(rows).to_have_count(0)
    assert it.complaints == []


def test_dry_run_and_strategies_side_by_side(
    chrome: Browser, console: str, settings: Any, running: Fleet
) -> None:
    for number in range(6):
        running.stream(f"{LONG} {number % 2}")
    it = seen(chrome, console, settings, theme="dark")
    it.open("/routing/endpoints/demo/explain/")
    it.page.get_by_label("Prompt, chat messages").fill(LONG)
    it.page.get_by_role("button", name="Rank workers").click()
    expect(it.page.locator("#explained")).to_contain_text("Worker: demo-worker")
    it.page.get_by_label("Strategy", exact=True).select_option("kvaware")
    it.page.get_by_role("button", name="Rank workers").click()
    expect(it.page.locator("#explained")).to_contain_text("has no KV index")
    it.page.get_by_label("Strategy", exact=True).select_option("roundrobin")
    it.page.get_by_role("button", name="Rank workers").click()
    expect(it.page.locator("#explained")).to_contain_text("Worker with roundrobin:")
    kept(it, "routing-dry-run")
    it.open("/routing/endpoints/demo/strategy/")
    expect(it.page.locator("[data-strategy=prefixaware]")).to_contain_text("current")
    kept(it, "routing-strategy")
    it.open("/routing/endpoints/demo/prefixes/")
    group = it.page.locator("[data-prefix]").first
    group.get_by_text("Name", exact=True).focus()
    it.page.keyboard.press("Enter")
    group.get_by_role("textbox").fill("The fox")
    it.page.keyboard.press("Enter")
    expect(it.page.locator("[data-prefix]").first).to_contain_text("The fox")
    kept(it, "routing-prefixes")
    assert it.complaints == []
