"""The pages as a person sees them: drawn under the console's policy, polling, stale when old."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from dashboards.boards.panels import BOARDS, FIRST
from tests.journeys.operate.test_every_page import changing, settled, turn_into, violations
from tests.support.browser import PHONE, Watched, watch
from tests.support.console import browser as logged_in
from tests.support.console import make_endpoint
from tests.support.dashboards.fixtures import Scraping
from tests.support.ports import free_ports
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PANELS = BOARDS[FIRST].panels(one=True)
HIDE = """value => {
  Object.defineProperty(document, "hidden", {value, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def seen(chrome: Browser, live_server: Any, settings: Any, url: str, **options: Any) -> Watched:
    """A viewer's browser, before any page, with the Prometheus at `url`."""
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)
    watched = watch(chrome, live_server.url, **options)
    watched.take_session(logged_in("viewer"))
    return watched


def drawn(page: Page) -> None:
    """Its numbers are loaded; charts are drawn when scrolled into view."""
    expect(page.locator("[data-state=loading]")).to_have_count(0, timeout=90_000)
    expect(page.locator(".panel-chart .main-svg").first).to_be_visible()


def unfolded(page: Page) -> None:
    """A phone shows the first section only, until all are opened."""
    fold = page.locator("[data-fold-all]")
    if page.locator("[data-section]:not([open])").count():
        fold.click()
        if page.locator("[data-section]:not([open])").count():
            fold.click()
    expect(page.locator("[data-section]:not([open])")).to_have_count(0)


def scrolled_through(page: Page) -> None:
    for chart in page.locator(".panel-chart:visible").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".main-svg").first).to_be_attached()


def drag(page: Page, panel: str) -> None:
    """Over the last three tenths of the chart, where the numbers are."""
    page.locator(f"[data-panel={panel}] .nsewdrag").first.scroll_into_view_if_needed()
    box = page.locator(f"[data-panel={panel}] .nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.7, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, middle, steps=5)
    page.mouse.up()


def query(page: Page) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(page.url).query))


@pytest.mark.timeout(300)
def test_charts_are_drawn_and_said_in_words(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    """On a desktop in light colours, which then turns into a dark phone."""
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.goto(f"{live_server.url}/dashboards/endpoints/demo/")
    drawn(it.page)
    expect(it.page.locator("[data-board-status]")).to_contain_text("workers 1 of 1, routers 1 of 1")
    unfolded(it.page)
    until(lambda: all_are_drawn(it.page), 90, "a chart in each panel")
    sources = it.page.locator("[data-panel=sources]")
    sources.locator("summary").click()
    expect(sources.locator("tbody tr").first).to_contain_text("Device40.0 %")
    spoken = sources.locator(".panel-chart").get_attribute("aria-label") or ""
    assert "Computed 10.0 %" in spoken
    it.page.evaluate(
        "document.querySelectorAll('[data-panel] details').forEach(d => d.open = true)"
    )
    assert not it.overflows()
    assert violations(it) == [], "with every section and table open"
    until(lambda: has_the_pages_colour(it.page), what="text in the page's colour")
    light = it.page.evaluate("getComputedStyle(document.body).color")
    turn_into(it, PHONE, "dark")
    assert it.page.evaluate("getComputedStyle(document.body).color") != light
    until(lambda: has_the_pages_colour(it.page), what="text in the dark page's colour")
    until(lambda: all_are_drawn(it.page), 90, "a chart in each panel, on a phone")
    assert settled(lambda: changing(it)) == [], "with every section and table open"
    assert it.complaints == []


def all_are_drawn(page: Page) -> bool:
    """A query may time out on a busy machine; the next poll brings its chart."""
    scrolled_through(page)
    return page.locator(".panel-chart:has(.main-svg)").count() == len(PANELS)


def has_the_pages_colour(page: Page) -> bool:
    """So that it can be read in both themes."""
    chart, body = page.evaluate(
        "[getComputedStyle(document.querySelector('.panel-chart .xtick text')).fill,"
        " getComputedStyle(document.body).color]"
    )
    return bool(chart == body)


def test_sections_fold_and_are_remembered(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    """A board of a phone is two screens long, not ten; folded sections stay folded."""
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url, width=390)
    page, url = it.page, f"{live_server.url}/dashboards/endpoints/demo/"
    page.goto(url)
    drawn(page)
    sections = page.locator("[data-section]")
    assert sections.count() == 3
    assert [one.get_attribute("open") is not None for one in sections.all()] == [True, False, False]
    expect(sections.nth(1).locator("[data-told]")).to_have_text("4 panels")
    folded = sections.nth(1).locator(".panel-chart").first
    expect(folded).to_be_hidden()
    expect(folded.locator(".main-svg")).to_have_count(0)
    # The list of sections leads there, unfolds it and leaves the address alone.
    page.locator("[data-jump]", has_text="Cache").click()
    expect(folded.locator(".main-svg").first).to_be_visible(timeout=90_000)
    expect(sections.nth(1).locator("> summary")).to_be_focused()
    assert page.url == url
    # By the keyboard, and kept for the next visit; a section opened by a link is not kept.
    page.keyboard.press("Enter")
    expect(sections.nth(1)).not_to_have_attribute("open", "")
    sections.nth(2).locator("> summary").click()
    sections.nth(0).locator("> summary").click()
    kept = "JSON.parse(localStorage.getItem('emberline.sections'))"
    until(lambda: len(page.evaluate(kept) or {}) == 3, what="all choices are kept")
    page.reload()
    drawn_in_third = sections.nth(2).locator(".main-svg").first
    expect(drawn_in_third).to_be_visible(timeout=90_000)
    assert [one.get_attribute("open") is not None for one in sections.all()] == [False, False, True]
    unfolded(page)
    assert it.complaints == []


def undone_by_nothing_late(page: Page) -> None:
    """The answer to an earlier choice comes after that to a later one, and changes nothing."""
    late: list[Route] = []
    page.route("**/dashboards/?range=7d*", lambda route: late.append(route))
    with page.expect_request("**/dashboards/?range=7d*"):
        page.get_by_label("Last 7 days").click()
    page.get_by_label("Last 24 hours").click()
    expect(page.locator("[aria-current=true]")).to_have_text("24h")
    with page.expect_response("**/dashboards/?range=7d*") as answer:
        late[0].continue_()
    answer.value.finished()
    page.evaluate("() => new Promise((done) => setTimeout(done, 100))")  # the page has read it
    expect(page.locator("[aria-current=true]")).to_have_text("24h")
    assert query(page)["range"] == "24h"


@pytest.mark.timeout(300)
def test_a_board_left_open_holds_no_more_than_at_first(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    """Every answer has new numbers; sixteen of them leave no chart, listener or node behind."""
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url)
    page, url = it.page, f"{live_server.url}/dashboards/endpoints/demo/?refresh=off"
    with page.expect_response("**/data?*") as first:
        page.goto(url)
    answer, document = first.value.json(), []

    def anew(route: Route) -> None:
        """What came first, each time with another newest number in every line."""
        document.append(route.request.url)
        for panel in answer["panels"]:
            for line in panel["figure"]["data"] if panel["figure"] else []:
                if isinstance(line.get("y", [None])[-1], float):
                    line["y"][-1] += len(document) % 4  # the same axes after every round
        route.fulfill(json=answer)

    page.route("**/data?*", anew)
    drawn(page)
    chrome_says = page.context.new_cdp_session(page)
    chrome_says.send("Performance.enable")

    names = ("JSEventListeners", "Nodes", "JSHeapUsedSize")

    def held(polls: int) -> dict[str, float]:
        wanted = len(document) + polls
        while len(document) < wanted:
            with page.expect_response("**/data?*"):
                page.get_by_label("Refresh", exact=True).click()
        frame = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
        page.evaluate(frame)
        seen = []
        for _ in range(3):  # what one collection finds unused, the next one frees
            chrome_says.send("HeapProfiler.collectGarbage")
            content = chrome_says.send("Performance.getMetrics")["metrics"]
            seen.append({one["name"]: one["value"] for one in content})
        least = {name: min(values[name] for values in seen) for name in names}
        return {**least, "attached": page.evaluate("document.querySelectorAll('*').length")}

    # Three charts or more are drawn for an answer: a leak of one listener or node for each is 48
    # in every round. A chart that comes near the screen late counts once, in one round; Chromium
    # frees detached nodes when it likes, so that up to 40 more or fewer of them say nothing.
    rounds = [held(4)]
    for _ in range(5):
        rounds.append(held(16))
        more = {name: value - rounds[-2][name] for name, value in rounds[-1].items()}
        heap_grew = more["JSHeapUsedSize"] > 0.1 * rounds[-2]["JSHeapUsedSize"]
        few = {"JSEventListeners": 16, "Nodes": 48, "attached": 16}
        if not heap_grew and all(more[name] < limit for name, limit in few.items()):
            break
    else:
        pytest.fail(f"each 16 answers leave something behind: {rounds}")
    once = "c => typeof c._ev._events.plotly_unhover === 'function'"  # a list, if it were more
    assert page.evaluate(f"[...document.querySelectorAll('.js-plotly-plot')].every({once})")
    assert it.complaints == []


def test_a_stretch_drawn_in_a_chart_is_the_time_of_all_and_of_the_address(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    zone = {"timezone_id": "Asia/Kolkata"}  # UTC+5:30: axes show it, addresses do not
    it = seen(chrome, live_server, settings, scraping.url, **zone)
    before = time.time()
    it.page.goto(f"{live_server.url}/dashboards/?range=15m&compare=previous")
    drawn(it.page)
    with it.page.expect_response(re.compile(r"/dashboards/data\?from=\d+")) as requested:
        drag(it.page, "requests")
    chosen = query(it.page)
    assert 240 <= int(chosen["to"]) - int(chosen["from"]) <= 300, "three tenths of 15 minutes"
    assert before - 30 < int(chosen["to"]) < time.time() + 30
    assert chosen["compare"] == "previous", "what was chosen before stays"
    window = requested.value.json()["window"]
    assert window["end"] - window["start"] <= 300
    assert window["step"] < 15
    begins = "c => c._fullLayout.xaxis.r2l(c._fullLayout.xaxis.range[0]) / 1000 - 19800"
    charts = it.page.locator(".panel-chart:has(.main-svg .nsewdrag):has(.xtick)")
    for chart in charts.all()[:2]:
        until(lambda c=chart: abs(c.evaluate(begins) - window["start"]) < 2, what="all zoomed")
    address = it.page.url
    it.page.reload()
    drawn(it.page)
    assert it.page.url == address
    assert abs(charts.first.evaluate(begins) - window["start"]) < 2, "the link shows the same"
    first = charts.first.evaluate("c => Date.parse(`${c.data[0].x0}Z`) / 1000 - 19800")
    assert abs(first - window["start"]) < 2, "lines are where the axis says"
    it.page.locator(".board-times summary").click()
    same = query(it.page)
    with it.page.expect_response(re.compile(r"/dashboards/data\?")):
        it.page.locator(".board-times-form [type=submit]").click()
    assert query(it.page) == same, "the form has the time of the chart"
    address = it.page.url
    it.page.get_by_label("Zoom out").click()
    expect(it.page).not_to_have_url(address)
    expect(it.page.get_by_label("Zoom out")).to_be_focused()
    wider = query(it.page)
    assert int(wider["from"]) < int(chosen["from"])
    it.page.go_back()
    expect(it.page).to_have_url(address)
    it.page.get_by_label("Last 6 hours").click()
    expect(it.page.locator("[aria-current=true]")).to_have_text("6h")
    assert query(it.page) == {"range": "6h", "compare": "previous"}
    drawn(it.page)
    undone_by_nothing_late(it.page)
    assert it.complaints == []


def test_a_hidden_tab_sends_no_requests_and_unchanged_data_is_not_sent_again(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.clock.install()  # the page's timers run when we say so
    now = int(time.time())
    it.page.goto(f"{live_server.url}/dashboards/?from={now - 300}&to={now}&refresh=5")
    drawn(it.page)
    with it.page.expect_response("**/dashboards/data?*") as again:
        it.page.clock.run_for(6_000)
    assert again.value.status == 304
    expect(it.page.locator("[data-board-status]")).to_contain_text("Targets up")
    it.page.evaluate(HIDE, True)
    requests: list[str] = []
    it.page.on("request", lambda request: requests.append(request.url))
    it.page.clock.run_for(60_000)
    assert requests == []
    with it.page.expect_response("**/dashboards/data?*"):
        it.page.evaluate(HIDE, False)
    assert it.complaints == []


def test_one_look_at_all_that_can_be_done_with_a_board(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    """One page for many things: opening a browser is what is dear."""
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url)
    page = it.page
    page.goto(f"{live_server.url}/dashboards/endpoints/demo/?range=15m")
    drawn(page)
    # What happened is a flag in the charts and a line in the list.
    expect(page.locator("[data-board-notes]")).to_contain_text("Events in this range: 1")
    page.locator("[data-board-notes] summary").click()
    expect(page.locator("[data-board-notes] li")).to_contain_text("Created")
    flags = page.locator(".panel-chart .annotation-text", has_text="▾")
    # It happened just now: the charts, which end at whole steps, reach it with the next answer.
    expect(flags.first).to_be_attached(timeout=90_000)
    # The period before is a ghost in the chart and two columns in the table.
    page.get_by_label("Compare with previous period").click()
    expect(page.get_by_label("Compare with previous period")).to_have_attribute(
        "aria-pressed", "true"
    )
    head = page.locator("[data-panel=ttft] thead th")
    expect(head.last).to_have_text("Change")
    assert query(page)["compare"] == "previous"
    # The pointer over one chart marks the moment in the others, not in itself.
    page.locator("[data-panel=requests] .nsewdrag").first.scroll_into_view_if_needed()
    box = page.locator("[data-panel=requests] .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] * 0.95, box["y"] + box["height"] / 2)
    expect(page.locator(".panel-crosshair:visible").first).to_be_visible()
    expect(page.locator("[data-panel=requests] .panel-crosshair")).to_have_count(0)
    # Pictures and numbers can be taken along.
    with page.expect_download() as picture:
        page.get_by_label("Time to first token: save as PNG").click()
    assert picture.value.suggested_filename.endswith("-ttft.png")
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as numbers:
        page.get_by_label("Time to first token: download CSV").click()
    reported = numbers.value.path().read_text()
    assert reported.startswith("time,p50 (seconds),p90 (seconds),")
    # A link to just these times.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Copy link to this time range").click()
    expect(page.locator("#toasts")).to_contain_text("copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert {"from", "to", "compare"} <= set(dict(parse_qsl(urlsplit(link).query)))
    # One panel fills the screen, and all come back.
    page.get_by_label("Time to first token: full screen").click()
    drawn(page)
    assert page.locator("[data-panel]").count() == 1
    tall = page.locator(".panel-chart").bounding_box()
    assert tall is not None
    assert tall["height"] > 300
    page.get_by_role("link", name="All panels").first.click()
    expect(page.locator("[data-panel]")).to_have_count(len(PANELS))
    assert it.complaints == []


def test_charts_stay_and_are_called_stale_when_prometheus_goes(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.goto(f"{live_server.url}/dashboards/")
    drawn(it.page)
    (port,) = free_ports(1)
    away = dataclasses.replace(settings.EMBERLINE, prometheus_url=f"http://127.0.0.1:{port}")
    settings.EMBERLINE = away
    status = it.page.locator("[data-board-status]")
    expect(status).to_contain_text("Stale since", timeout=90_000)
    expect(status).to_contain_text("Prometheus is unreachable")
    expect(it.page.locator("[data-board] > .panel-message")).to_contain_text(f":{port}")
    assert it.page.locator(".panel-chart:has(.main-svg)").count() > 0
    expect(it.page.locator("[data-panel] .panel-message:visible")).to_have_count(0)
    # Without a chart to keep there is the message alone, until Prometheus is back.
    it.page.reload()
    expect(it.page.locator("[data-board][data-empty] > .panel-message")).to_contain_text(f":{port}")
    expect(status).not_to_contain_text("Stale")
    expect(it.page.locator(".panel-plot:visible, [data-section][open]")).to_have_count(0)
    settings.EMBERLINE = dataclasses.replace(away, prometheus_url=scraping.url)
    it.page.get_by_role("button", name="Refresh", exact=True).click()
    drawn(it.page)
    expect(it.page.locator("[data-section]:not([open])")).to_have_count(0)


def test_what_all_panels_lack_is_said_once(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    """Its targets stopped answering: why, and what to do, stands above; since when, in each."""
    make_endpoint("left")
    it = seen(chrome, live_server, settings, scraping.url)
    it.page.goto(f"{live_server.url}/dashboards/endpoints/left/")
    expect(it.page.locator("[data-state=loading]")).to_have_count(0, timeout=90_000)
    above = it.page.locator("[data-board] > .panel-message")
    expect(above).to_contain_text("Prometheus cannot reach")
    lacking = it.page.locator("[data-panel] .panel-message:visible")
    titles = lacking.locator("[data-title]")
    until(lambda: titles.count() > 3, what="each panel's own message")

    def has_ended() -> bool:
        """The last samples have left the range that panels read."""
        it.page.get_by_label("Refresh", exact=True).click()
        expect(it.page.locator("[data-state=loading]")).to_have_count(0, timeout=90_000)
        shown = titles.all_inner_texts()
        return len(shown) > 3 and all(title.startswith("No data since") for title in shown)

    until(has_ended, what="No data since in each panel")
    words = [text for text in lacking.locator("[data-text]").all_inner_texts() if text]
    assert (above.locator("[data-text]").inner_text()) not in words


BOXES = """() => [...document.querySelectorAll(".board-panels [data-panel]")]
  .filter(card => card.offsetParent).map(card => {
    const box = card.getBoundingClientRect(), small = card.closest(".board-small") !== null;
    return {top: Math.round(box.top + scrollY), height: Math.round(box.height), small}; })"""


def test_a_row_has_one_height_and_the_colours_are_the_themes(
    chrome: Browser, live_server: Any, settings: Any, scraping: Scraping
) -> None:
    make_endpoint("demo")
    it = seen(chrome, live_server, settings, scraping.url)
    page = it.page
    page.goto(f"{live_server.url}/dashboards/")
    drawn(page)
    boxes = page.evaluate(BOXES)
    rows: dict[int, set[int]] = {}
    for box in boxes:
        rows.setdefault(box["top"], set()).add(box["height"])
    assert all(len(heights) == 1 for heights in rows.values()), boxes
    small = [box["height"] for box in boxes if box["small"]]
    assert small, "no request failed"
    assert max(small) < 120
    page.goto(f"{live_server.url}/dashboards/endpoints/demo/workers/")
    drawn(page)
    # GPUs and pods: a line each with the missing exporter.
    gpus = page.locator("[data-section='workers/gpus']")
    expect(gpus.locator("[data-told]")).to_have_text(
        "8 panels unavailable: Requires NVIDIA DCGM exporter"
    )
    assert gpus.get_attribute("open") is None
    gpus.locator("> summary").click()
    expect(gpus.locator("[data-section-lines] a")).to_have_count(8)
    expect(gpus.locator("[data-panel]:visible")).to_have_count(0)
    # The legend hides a series, and keeps it hidden when new values arrive.
    card = page.locator("[data-panel=workers-up]")
    lines = card.locator(".scatterlayer .trace")
    expect(lines).to_have_count(2)
    card.locator(".panel-legend button").first.focus()
    page.keyboard.press("Enter")
    expect(lines).to_have_count(1)
    with page.expect_response("**/data?*"):
        page.get_by_label("Refresh", exact=True).click()
    expect(card.locator(".panel-legend button").first).to_have_attribute("aria-pressed", "false")
    expect(lines).to_have_count(1)
    # Another theme: the same series in that theme's shade.
    stroke = "document.querySelector('[data-panel=workers-up] .js-line').style.stroke"
    light = page.evaluate(stroke)
    page.locator("[data-theme-choice=dark]").first.click()
    until(lambda: page.evaluate(stroke) != light, what="the shade of the dark theme")
    assert it.complaints == []
