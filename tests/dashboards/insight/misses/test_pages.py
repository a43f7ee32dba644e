"""Misses page, REST and price of computed prompt tokens, over a router's admin port."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from dashboards.insight.misses.report import slope_error
from dashboards.models import Calibration
from endpoints.models import Endpoint
from endpoints.router.models import PrefixName
from endpoints.runs import RunState
from tests.endpoints.pages.routing.test_views import DECISION, WORKERS
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db
HOUR = int(time.time() // 3600) * 3600
MISSES = {
    "causes": {"first_seen": 600, "evicted_device": 400, "below_block": 24},
    "age_s": 12.5,
    "evicted_at": 1_795_000_000.5,
    "changed_offset": None,
    "changed_part": "",
}
TEMPLATE = {
    "requests": 5,
    "causes": {"changed_timestamp": 4000},
    "saved_tokens": 3000,
    "changed_offset": 12,
    "changed_part": "message 1 (system)",
    "stable_tokens": 800,
    "decision": "abc-1",
}
SUMS: dict[str, Any] = {
    "causes": {},
    "comparisons_skipped": 0,
    "slots": [
        {
            "start": HOUR,
            "requests": 3,
            "unreported": 0,
            "prompt_tokens": 2048,
            "cached_tokens": 1024,
            "causes": {"first_seen": 600, "evicted_device": 400, "below_block": 24},
            "keys": {"console": {"first_seen": 600, "evicted_device": 400, "below_block": 24}},
            "prefixes": {"aa": {"first_seen": 600, "evicted_device": 424}},
            "templates": {"bb": TEMPLATE, "cc": {**TEMPLATE, "causes": {"changed_id": 9000}}},
        },
        {
            "start": HOUR - 20 * 3600,
            "requests": 1,
            "prompt_tokens": 10,
            "causes": {"lost_reset": 8},
            "templates": {"bb": {**TEMPLATE, "changed_offset": 99, "decision": "old-1"}},
        },
        {"start": HOUR - 30 * 3600, "requests": 9, "prompt_tokens": 90, "causes": {"in_flight": 9}},
    ],
}


@pytest.fixture
def router() -> Iterator[Stub]:
    decision = {**DECISION, "misses": MISSES}
    answers = {
        "/misses": (200, SUMS),
        "/workers": (200, WORKERS),
        "/decisions": (200, {"decisions": [decision]}),
    }
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def demo(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), admin_url=router.url)


def calibrate(endpoint: Endpoint) -> None:
    samples = []
    for seconds in (1.0, 1.1, 0.9):
        samples += [{"tokens": 100, "ttft_s": 0.2}, {"tokens": 1100, "ttft_s": 0.2 + seconds}]
    Calibration.objects.create(
        endpoint=endpoint, state=RunState.DONE, seconds_per_token=0.001, samples=samples
    )


def test_page_lists_causes_with_prefill_time_and_remedy(demo: Endpoint) -> None:
    calibrate(demo)
    PrefixName.objects.create(endpoint=demo, digest="aa", name="Support bot")
    page = browser("operator").get("/routing/endpoints/demo/misses/").content.decode()
    assert "Evicted from device memory" in page
    assert "Enlarge the tier" in page
    # L1 is on and L2 off: what left the device and L1 would have stayed in L2.
    enable = "/endpoints/demo/edit/?cache.l1.enabled=on&amp;cache.l2.enabled=on"
    assert f'href="{enable}"' in page and "Enable L2" in page
    assert "Support bot" in page
    assert "Lost by a cache reset" in page, "20 hours ago"
    assert "Prefix still being computed" not in page, "more than a day ago"
    short = browser("viewer").get("/routing/endpoints/demo/misses/?range=1h&cause=nonsense")
    assert "Lost by a cache reset" not in short.content.decode()


def test_range_begins_with_the_first_router_at_the_earliest(demo: Endpoint, router: Stub) -> None:
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert f"since {datetime.fromtimestamp(HOUR - 24 * 3600, UTC):%Y-%m-%d}" in page
    started = HOUR - 120.5
    router.answers["/misses"] = (200, {**SUMS, "started": started})
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    moment = datetime.fromtimestamp(started, UTC)
    assert f"since {moment:%Y-%m-%d %H:%M}" in page
    document = program("viewer").get("/api/v1/endpoints/demo/misses/").json()
    assert datetime.fromisoformat(document["since"]) == moment.replace(microsecond=0)


def test_range_and_worker_go_along_to_the_other_pages(demo: Endpoint) -> None:
    page = browser("viewer").get("/routing/endpoints/demo/misses/?range=15m&worker=w-0").text
    assert 'href="?range=1h&amp;worker=w-0" aria-current="true"' in page, "the nearest to a board's"
    board = reverse("dashboards:endpoint", args=["demo"])
    assert f'href="{board}?range=15m&amp;worker=w-0"' in page
    assert "/routing/endpoints/demo/?range=15m&amp;worker=w-0" in page
    plain = browser("viewer").get("/routing/endpoints/demo/misses/").text
    assert 'href="/routing/endpoints/demo/"' in plain


def test_viewers_have_no_remedy_buttons(demo: Endpoint) -> None:
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert "Enlarge the tier" in page
    assert "Enable L2" not in page


def test_remedy_of_l2_leads_to_the_tier(router: Stub) -> None:
    cache = {"l2": {"enabled": True, "tier": "default"}}
    pretend_ready(make_endpoint(cache=cache), admin_url=router.url)
    slots = [{**SUMS["slots"][0], "causes": {"evicted_l2": 9, "evicted_device": 9}}]
    router.answers["/misses"] = (200, {**SUMS, "slots": slots})
    page = browser("operator").get("/routing/endpoints/demo/misses/").content.decode()
    assert 'href="/cache/default/edit/"' in page
    assert 'href="/endpoints/demo/edit/"' in page  # of the device: nothing to fill in


def test_examples_of_a_cause(demo: Endpoint) -> None:
    answer = browser("viewer").get("/routing/endpoints/demo/misses/?cause=evicted_device")
    page = answer.content.decode()
    assert "/routing/endpoints/demo/decisions/abc-1/" in page
    assert "displaced by" in page
    none = browser("viewer").get("/routing/endpoints/demo/misses/?cause=placed_load")
    assert "No decision kept" in none.content.decode()


def test_rest_adds_up_and_prices(demo: Endpoint) -> None:
    calibrate(demo)
    found = program("viewer").get("/api/v1/endpoints/demo/misses/?cause=evicted_device").json()
    assert found["computed_tokens"] == sum(one["tokens"] for one in found["causes"]) == 1032
    first = found["causes"][0]
    assert (first["code"], first["tokens"], first["seconds"]) == ("first_seen", 600, 0.6)
    assert found["seconds_per_token"] == 0.001
    assert found["examples"][0]["decision"] == "abc-1"
    assert found["examples"][0]["displaced_by"] == "abc-1"
    wrong = program("viewer").get("/api/v1/endpoints/demo/misses/?range=7y")
    assert wrong.status_code == 400
    assert "Choose one of 1h, 24h, 6h" in wrong.content.decode()


def test_templates_are_ranked_by_what_their_layout_costs(demo: Endpoint) -> None:
    calibrate(demo)
    found = program("viewer").get("/api/v1/endpoints/demo/misses/").json()["templates"]
    assert [(one["template"], one["tokens"]) for one in found] == [("cc", 9000), ("bb", 8000)]
    both = found[1]
    assert (both["requests"], both["saved_tokens"], both["cause"]) == (
        *(10, 6000),
        "changed_timestamp",
    )
    assert (both["changed_offset"], both["decision"]) == (12, "abc-1"), "of the latest hour"
    short = program("viewer").get("/api/v1/endpoints/demo/misses/?range=6h").json()["templates"]
    assert [one["tokens"] for one in short] == [9000, 4000]
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert page.index('data-template="cc"') < page.index('data-template="bb"')
    assert "at token 12, message 1 (system)<" in page


def test_without_data_calibration_or_router(demo: Endpoint, router: Stub) -> None:
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert "Not calibrated" in page
    calibrate(demo)
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert 'href="/costs/">Set price</a>' in page, "calibrated, the price is what is missing"
    router.answers["/misses"] = (200, {"slots": []})
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert "No computed prompt tokens" in page
    router.answers["/misses"] = (200, {"slots": [{"start": HOUR, "unreported": 4}]})
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert "--enable-prompt-tokens-details" in page
    router.answers["/misses"] = (200, {"slots": "?"})
    page = browser("viewer").get("/routing/endpoints/demo/misses/").content.decode()
    assert "Requests are not affected" in page
    assert "Each has one cause" not in page, "sums that are not known"
    assert program("viewer").get("/api/v1/endpoints/demo/misses/").status_code == 503


@pytest.mark.parametrize("samples", [[], None, [{"tokens": 1}], [{"tokens": 1, "ttft_s": 1}] * 4])
def test_error_of_unusable_samples_is_unknown(samples: Any) -> None:
    assert slope_error(samples, 0.001) is None


def test_error_is_the_spread_of_the_pairs() -> None:
    pairs = [(100, 0.1), (1100, 1.1), (100, 0.1), (1100, 1.2), (100, 0.1), (1100, 1.0)]
    samples = [{"tokens": tokens, "ttft_s": ttft} for tokens, ttft in pairs]
    assert slope_error(samples, 0.001) == pytest.approx(0.1)


def test_command_line_shows_causes_and_examples(
    demo: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    calibrate(demo)
    call_command("emberline", "misses", "demo", "--cause", "evicted_device")
    shown = capsys.readouterr().out
    head = r"1,032 of 2,058 prompt tokens of \d+ requests? computed since 20\d\d-\d\d-\d\d"
    assert re.match(head, shown)
    assert "evicted_device  400" in shown
    assert "abc-1" in shown
    assert "12 message 1 (system)" in shown
    with pytest.raises(CommandError, match="Known parameters: cause, range"):
        call_command("emberline", "misses", "demo", "--by", "team")
