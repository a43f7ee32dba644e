"""Alert history page and REST: lanes, opened intervals, notifications, permissions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from dashboards.alerts.notify import receivers, silences
from dashboards.alerts.notify.models import Delivery, Receiver
from tests.journeys.operate.test_every_page import violations
from tests.support import query_counts
from tests.support import teams as made
from tests.support.browser import watch
from tests.support.console import browser, make_endpoint, person, program
from tests.support.http_stub import http_stub
from tests.support.people import client_of

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).parent / "query_counts.json"
PAGE, API = "/alerts/timeline/", "/api/v1/alert-history/"
LATE = {"alertname": "HighTTFT", "severity": "page", "endpoint": "demo", "namespace": "default"}
STALE = {"alertname": "IndexStale", "severity": "ticket", "endpoint": "demo", "worker": "demo-0"}
TIER = {"alertname": "L2NodeDown", "severity": "page", "pool": "shared"}
# Alert, state, begin and end in seconds before now.
PAST = (
    (LATE, "pending", 7500, 7200),
    (LATE, "firing", 7200, 3600),
    (LATE, "firing", 900, 0),
    (STALE, "firing", 40_000, 30_000),
    (STALE, "pending", 1200, 0),
    (TIER, "firing", 86_000, 80_000),
)


class FakePrometheus:
    """Answers queries on ALERTS from `past`, everything else with 2.5."""

    def __init__(self) -> None:
        self.past: Any = PAST
        self.now = time.time()

    def __call__(self, path: str, _body: bytes) -> Any:
        parts = urlsplit(path)
        requested = {key: values[0] for key, values in parse_qs(parts.query).items()}
        grid = [float(requested.get("time", self.now))]
        if parts.path.endswith("query_range"):
            start, end, step = (float(requested[key]) for key in ("start", "end", "step"))
            grid = [start + n * step for n in range(int((end - start) / step) + 1)]
        found = list(self.series(requested["query"], grid))
        if parts.path.endswith("query_range"):
            data = {"resultType": "matrix", "result": found}
        else:
            rows = [{"metric": one["metric"], "value": one["values"][-1]} for one in found]
            data = {"resultType": "vector", "result": rows}
        return 200, {"status": "success", "data": data}

    def series(self, query: str, grid: list[float]) -> Iterator[dict[str, Any]]:
        if "ALERTS" not in query:
            metric = {"namespace": "default", "endpoint": "demo"} if "up" not in query else {}
            yield {"metric": metric, "values": [[at, "2.5"] for at in grid]}
            return
        window = float(query.split("[")[1].split("s]")[0]) if "[" in query else 0.0
        for labels, state, begin, end in self.past:
            if "alertname=" in query and labels["alertname"] not in query:
                continue
            if "alertstate=" in query and f'alertstate="{state}"' not in query:
                continue
            first, last = self.now - begin, self.now - end if end else float("inf")
            times = [at for at in grid if first <= at and at - window <= last]
            value = str(first) if "FOR_STATE" in query else "1"
            metric = labels if "FOR_STATE" in query else {**labels, "alertstate": state}
            if times:
                yield {"metric": metric, "values": [[at, value] for at in times]}


@pytest.fixture
def prometheus(settings: Any) -> Iterator[FakePrometheus]:
    found = FakePrometheus()
    with http_stub({"/api/v1/query": found, "/api/v1/query_range": found}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        yield found


def sent(alert: dict[str, str], ago_s: float, state: str = "sent", error: str = "") -> Delivery:
    one = {"status": "firing", "labels": alert, "endsAt": "0001-01-01T00:00:00Z"}
    row = Delivery.objects.create(
        receiver=Receiver.objects.get(),
        receiver_name="on-call",
        kind="webhook",
        title="[FIRING:1]",
        body={"alerts": [one], "commonLabels": alert},
        state=state,
        error=error,
    )
    Delivery.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(seconds=ago_s))
    return row


def receiver(everything: bool = True) -> None:
    fields = {"name": "on-call", "kind": "email", "to": ["a@example.org"], "everything": everything}
    receivers.create(person("admin"), fields)


def opened(client: Any, alert: dict[str, str], ago_s: float, **more: str) -> str:
    at = str(int(time.time() - ago_s))
    requested = {"alert": alert["alertname"], "about": alert.get("endpoint", ""), "state": "firing"}
    return str(client.get(PAGE, {**requested, "at": at, **more}).text)


def test_each_rule_and_endpoint_has_a_lane(prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    text = browser("viewer").get(PAGE).text
    assert text.index('data-lane="HighTTFT demo"') < text.index('data-lane="IndexStale demo"')
    assert 'data-lane="L2NodeDown "' in text
    assert text.count('data-interval="HighTTFT" data-state="firing"') == 2
    assert text.count('data-interval="HighTTFT" data-state="pending"') == 1
    assert "firing now" in text
    assert text.count('<rect class="severity-') == len(PAST)
    assert "style=" not in text.split("<main")[-1]
    short = browser("viewer").get(f"{PAGE}?range=1h").text
    assert "L2NodeDown" not in short
    only = browser("viewer").get(f"{PAGE}?rule=IndexStale&endpoint=demo").text
    assert 'data-lane="HighTTFT' not in only
    odd = browser("viewer").get(f"{PAGE}?range=x&rule=%00&page=zz&alert=a&at=soon&state=y")
    assert odd.status_code == 200
    assert "outside the selected range" in odd.text


def test_an_interval_opens_to_its_value_and_notifications(prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    receiver()
    sent(LATE, 7000, "failed", "hooks.example.org returned 500.")
    text = opened(browser("viewer"), LATE, 7200)
    assert 'data-opened="HighTTFT"' in text
    assert "2.5 s" in text
    assert text.count("data-notification=") == 1
    assert "hooks.example.org returned 500." in text
    assert "/dashboards/endpoints/demo/?from=" in text
    assert "Acknowledge</button>" not in text  # it no longer fires
    now = opened(browser("operator"), LATE, 900)
    assert "Acknowledge</button>" in now
    assert "/alerts/silences/new/?alertname=HighTTFT&amp;endpoint=demo" in now
    assert "Acknowledge</button>" not in opened(browser("viewer"), LATE, 900)


def test_without_notification_the_reason_is_shown(prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    assert "No alert receivers configured" in opened(viewer, LATE, 900)
    receiver(everything=False)
    assert "No route matches this alert" in opened(viewer, LATE, 900)
    fields = {"matchers": ['endpoint="demo"'], "comment": "new driver"}
    silences.create(person("operator"), fields)
    assert "Silenced by one-operator: new driver." in opened(viewer, LATE, 900)


def test_missing_metrics_are_reported(settings: Any, prometheus: FakePrometheus) -> None:
    prometheus.past = ()
    assert "No alerts in this range" in browser("viewer").get(PAGE).text
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="")
    assert "Alert history unavailable" in browser("viewer").get(PAGE).text
    assert program("viewer").get(API).status_code == 409


def test_rest_lists_intervals_with_their_notifications(prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    receiver()
    row = sent(LATE, 850)
    sent(LATE, 7000)
    client = program("viewer")
    found = client.get(f"{API}?phase=firing&endpoint=demo&alert=HighTTFT").json()["results"]
    assert [one["end"] is None for one in found] == [True, False]
    assert [one["delivery"] for one in found[0]["notifications"]] == [str(row.pk)]
    assert len(found[1]["notifications"]) == 1
    pending = client.get(f"{API}?phase=pending&alert=HighTTFT").json()["results"]
    assert [one["notifications"] for one in pending] == [[]]
    assert abs(found[1]["duration_s"] - 3600) <= 2 * found[1]["step_s"]
    wrong = client.get(f"{API}?range=2y")
    assert (wrong.status_code, wrong.json()["field"]) == (400, "range")


def test_a_team_sees_its_own_endpoints(prometheus: FakePrometheus) -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    scopes = []
    answer = prometheus.series

    def seen(query: str, grid: list[float]) -> Any:
        scopes.append(query)
        return answer(query, grid)

    prometheus.series = seen  # type: ignore[method-assign]
    assert client_of(teams.erin).get(PAGE).status_code == 200
    requested = [one for one in scopes if "ALERTS" in one]
    assert requested
    assert all(f'endpoint=~"{made.OURS}' in one or made.OURS in one for one in requested)


def test_the_page_needs_as_many_queries_for_many_alerts(prometheus: FakePrometheus) -> None:
    make_endpoint("demo")
    receiver()
    viewer = browser("viewer")
    query_counts.check(viewer, PAGE, KEPT)
    prometheus.past = [
        ({**LATE, "alertname": f"Rule{n}", "endpoint": f"e{n}"}, "firing", 900 + n, 0)
        for n in range(120)
    ]
    query_counts.check(viewer, PAGE, KEPT)
    text = viewer.get(f"{PAGE}?range=6h").text
    assert text.count("data-lane=") == 30
    assert "90 more timelines not drawn" in text
    assert text.count("data-interval=") == 25


def test_timeline_is_operated_by_keyboard_in_chromium(
    chrome: Browser, live_server: Any, settings: Any, prometheus: FakePrometheus
) -> None:
    make_endpoint("demo")
    cookie = browser("operator").cookies[settings.SESSION_COOKIE_NAME]
    it = watch(chrome, live_server.url)
    it.page.context.add_cookies(
        [{"name": cookie.key, "value": cookie.value, "url": live_server.url}]
    )
    it.open(PAGE)
    bar = it.page.locator('[data-lane="HighTTFT demo"] svg a').last
    bar.focus()
    it.page.keyboard.press("Enter")
    expect(it.page.locator("[data-opened=HighTTFT]")).to_be_visible()
    assert it.fits()
    assert violations(it) == []
    it.page.get_by_label("Note").fill("on it")
    it.page.get_by_role("button", name="Acknowledge").click()
    expect(it.page.locator("[data-acknowledged]")).to_contain_text("one-operator")
    assert it.complaints == []
