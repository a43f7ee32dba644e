"""Screenshots of every board with recorded data, light and dark, wide and narrow.

    PHOTOGRAPHS=/tmp/boards python -m pytest -n 0 \\
        tests/dashboards/boards/panels/recorded/photographs.py

Collected only when named; for visual review. Recordings show one minute per line; with MONTH, a
folder of `python -m bench.dashboards --data FOLDER`, boards show a day. BOARDS selects boards.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from dashboards.boards.panels import BOARDS
from dashboards.prometheus.http.client import Prometheus, Question
from tests.dashboards.boards.panels.recorded.recordings_prometheus import ENDPOINTS
from tests.support.browser import watch
from tests.support.console import browser as logged_in
from tests.support.console import make_endpoint, pretend_ready
from tests.support.prometheus import running_prometheus

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LOOKS = [(w, theme) for w in (390, 768, 1280, 1920) for theme in ("light", "dark")]


@pytest.fixture(scope="module")
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[str], str]]:
    """Which Prometheus, which endpoints, which range."""
    month = os.environ.get("MONTH")
    if not month:
        yield request.getfixturevalue("replayed").url, list(ENDPOINTS), "15m"
        return
    with running_prometheus(Path(month), "", "--storage.tsdb.retention.time=60d") as url:
        at = int(max(file.stat().st_mtime for file in Path(month).glob("data/*/index")))
        query = "count by (endpoint_name) (last_over_time(vllm:prompt_tokens_total[6h]))"
        found = Prometheus(url).ask({"q": Question(query, at)})["q"].series
        yield url, [series.label("endpoint_name") for series in found], "24h"


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_photograph(
    chrome: Browser,
    live_server: Any,
    settings: Any,
    shown: tuple[str, list[str], str],
    width: int,
    theme: str,
) -> None:
    url, names, span = shown
    folder = Path(os.environ["PHOTOGRAPHS"])
    folder.mkdir(parents=True, exist_ok=True)
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)
    for name in names:
        made = make_endpoint(name)
        pretend_ready(made, workers={f"{name}-worker-0": "http://127.0.0.1:1"})
    it = watch(chrome, live_server.url, width=width, theme=theme)
    cookie = logged_in("viewer").cookies[settings.SESSION_COOKIE_NAME]
    it.page.context.add_cookies(
        [{"name": cookie.key, "value": cookie.value, "url": live_server.url}]
    )
    wanted = os.environ.get("BOARDS", "").split() or list(BOARDS)
    for key in wanted:
        pages = {"fleet": f"/dashboards/{key}/", "one": f"/dashboards/endpoints/{names[0]}/{key}/"}
        for what, path in pages.items():
            if not BOARDS[key].panels(one=what == "one"):
                continue
            it.page.goto(f"{live_server.url}{path}?range={span}")
            expect(it.page.locator("[data-state=loading]")).to_have_count(0, timeout=60_000)
            height = it.page.evaluate("document.documentElement.scrollHeight")
            for down in range(0, height, 600):  # charts are drawn when they come into view
                it.page.mouse.wheel(0, 600)
                it.page.wait_for_timeout(40 if down else 300)
            it.page.evaluate("window.scrollTo(0, 0)")
            assert not it.overflows(), path
            it.page.screenshot(path=folder / f"{key}-{what}-{width}-{theme}.png", full_page=True)
