"""Alert history page and REST: lanes, opened intervals, permissions."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect

from dashboards.alerts.alertmanager import silences
from dashboards.alerts.alertmanager.models import AlertRecord
from dashboards.alerts.alertmanager.timeline import read_timeline
from dashboards.alerts.alertmanager.transitions import fingerprint
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from tests.journeys.operate.test_every_page import violations
from tests.support import query_counts
from tests.support import teams as made
from tests.support.alertmanager import RunningAlertmanager
from tests.support.browser import watch
from tests.support.console import browser, make_endpoint, person, program
from tests.support.people import client_of

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).parent / "query_counts.json"
PAGE, API = "/alerts/timeline/", "/api/v1/alert-history/"
LATE = {"alertname": "HighTTFT", "severity": "page", "endpoint": "demo", "namespace": "default"}
STALE = {"alertname": "IndexStale", "severity": "ticket", "endpoint": "demo", "worker": "demo-0"}
TIER = {"alertname": "L2NodeDown", "severity": "page", "pool": "shared"}


def fired(labels: dict[str, str], begin: int, end: int, **more: Any) -> AlertRecord:
    """Record an alert that fired from `begin` to `end` seconds before now; 0: still fires."""
    now = timezone.now()
    return AlertRecord.objects.create(
        fingerprint=fingerprint(labels),
        rule=labels["alertname"],
        endpoint=labels.get("endpoint", ""),
        severity=labels["severity"],
        labels=labels,
        started_at=now - timedelta(seconds=begin),
        seen_at=now - timedelta(seconds=end),
        ended_at=now - timedelta(seconds=end) if end else None,
        **more,
    )


@pytest.fixture
def past() -> None:
    for labels, begin, end in (
        (LATE, 7200, 3600),
        (LATE, 900, 0),
        (STALE, 40_000, 30_000),
        (TIER, 86_000, 80_000),
    ):
        fired(labels, begin, end)


def opened(client: Any, alert: dict[str, str], ago_s: int) -> str:
    at = str(int(timezone.now().timestamp()) - ago_s)
    requested = {"alert": alert["alertname"], "about": alert.get("endpoint", ""), "at": at}
    return str(client.get(PAGE, requested).text)


@pytest.mark.usefixtures("past")
def test_each_rule_and_endpoint_has_a_lane() -> None:
    make_endpoint("demo")
    text = browser("viewer").get(PAGE).text
    assert text.index('data-lane="HighTTFT demo"') < text.index('data-lane="IndexStale demo"')
    assert 'data-lane="L2NodeDown "' in text
    assert text.count('data-interval="HighTTFT"') == 2
    assert text.count('<rect class="severity-') == 4
    assert "style=" not in text.split("<main")[-1]
    short = browser("viewer").get(f"{PAGE}?range=1h").text
    assert "L2NodeDown" not in short
    only = browser("viewer").get(f"{PAGE}?rule=IndexStale&endpoint=demo").text
    assert 'data-lane="HighTTFT' not in only
    odd = browser("viewer").get(f"{PAGE}?range=x&rule=%00&page=zz&alert=a&at=soon&state=y")
    assert odd.status_code == 200
    assert "outside the selected range" in odd.text


def test_overlapping_alerts_are_one_interval() -> None:
    for worker, begin, end in (("a", 500, 300), ("b", 400, 100), ("c", 90, 50)):
        fired({**STALE, "worker": worker}, begin, end)
    (lane,) = read_timeline(person("viewer"), "1h").lanes
    assert [one.duration_s for one in lane.intervals] == [400, 40]
    assert [len(one.alerts) for one in lane.intervals] == [2, 1]


@pytest.mark.usefixtures("past")
def test_history_of_a_deleted_endpoint_is_kept() -> None:
    assert "HighTTFT" in browser("viewer").get(PAGE).text
    found = program("viewer").get(f"{API}?endpoint=demo&alert=HighTTFT").json()["results"]
    assert [one["end"] is None for one in found] == [True, False]
    assert found[1]["duration_s"] == 3600
    wrong = program("viewer").get(f"{API}?range=2y")
    assert (wrong.status_code, wrong.json()["field"]) == (400, "range")


@pytest.mark.usefixtures("past")
def test_an_interval_opens(alertmanager: RunningAlertmanager) -> None:
    make_endpoint("demo")
    fields = {"matchers": ['endpoint="demo"'], "comment": "new driver"}
    silences.create(person("operator"), fields)
    text = opened(browser("viewer"), LATE, 7000)
    assert 'data-opened="HighTTFT"' in text
    assert "new driver" not in text  # it began later
    assert "/dashboards/endpoints/demo/?from=" in text
    assert "Acknowledge</button>" not in text  # it no longer fires
    now = opened(browser("operator"), LATE, 800)
    assert "Silenced by one-operator" in " ".join(now.split())
    assert "new driver" in now
    assert "Acknowledge</button>" in now
    assert "/alerts/silences/new/?alertname=HighTTFT&amp;endpoint=demo" in now
    assert "Acknowledge</button>" not in opened(browser("viewer"), LATE, 800)


def test_empty_history() -> None:
    assert "No alerts in this range" in browser("viewer").get(PAGE).text
    assert program("viewer").get(API).json()["results"] == []


def test_a_team_sees_its_own_endpoints_also_deleted_ones() -> None:
    teams = made.teams()
    made.their_endpoints(teams)
    fired({**LATE, "endpoint": made.OURS}, 900, 0)
    fired({**LATE, "endpoint": made.CANARY}, 900, 0)
    fired({**LATE, "endpoint": "gone"}, 900, 300, team=teams.ours)
    fired(TIER, 900, 0)
    text = client_of(teams.erin).get(PAGE).text
    assert made.OURS in text
    assert "gone" in text
    assert made.CANARY not in text
    assert "L2NodeDown" not in text
    rows = client_of(teams.erin).get(API).json()["results"]
    assert {one["endpoint"] for one in rows} == {made.OURS, "gone"}


def test_the_page_needs_as_many_queries_for_many_alerts() -> None:
    make_endpoint("demo")
    fired(LATE, 900, 0)
    viewer = browser("viewer")
    query_counts.check(viewer, PAGE, KEPT)
    AlertRecord.objects.all().delete()
    for n in range(120):
        fired({**LATE, "alertname": f"Rule{n}", "endpoint": f"e{n}"}, 900 + n, 0)
    query_counts.check(viewer, PAGE, KEPT)
    text = viewer.get(f"{PAGE}?range=6h").text
    assert text.count("data-lane=") == 30
    assert "90 more timelines not drawn" in text
    assert text.count("data-interval=") == 25


def test_timeline_is_operated_by_keyboard_in_chromium(
    chrome: Browser,
    live_server: Any,
    settings: Any,
    past: None,
    alertmanager: RunningAlertmanager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_endpoint("demo")
    alert = FiringAlert("HighTTFT", "demo", "", "page", None, "slow", "Check.", LATE)
    path = "dashboards.alerts.evaluation.firing_alerts.query_firing"
    monkeypatch.setattr(path, lambda *_: FiringAlerts((alert,)))
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
