"""Periodic tasks: state on page, REST and doctor; detection of late ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live
from django.db import DatabaseError
from django.utils import timezone

from console.launcher.layout import Layout, write_facts
from console.processkit.metrics import Registry
from console.system import preflight, rounds
from console.system.rounds import Round, RoundState
from dashboards.alerts.alertmanager.models import AlertWatch, Receiver, Route
from dashboards.alerts.alertmanager.transitions import (
    NO_PROMETHEUS,
    PROMETHEUS_UNREACHABLE,
    WATCHING,
)
from dashboards.alerts.settings import rule_file
from dashboards.alerts.settings.models import Load, OwnRule, RuleFile
from dashboards.costs.ledger import hours
from dashboards.costs.models import MeasuredHour
from endpoints.models import Endpoint
from tests.support.alertmanager import RunningAlertmanager
from tests.support.console import browser, make_endpoint, program
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
PART = {"HX-Request": "true"}
KEPT = Path(__file__).with_name("query_counts.json")


@pytest.fixture
def console_folder(settings: Any, tmp_path: Path) -> Path:
    """A console with its own Prometheus, which is not queried here."""
    layout = Layout(tmp_path)
    layout.prepare()
    write_facts(layout, prometheus_port=1)
    url = "http://127.0.0.1:1"
    settings.EMBERLINE = replace(live.EMBERLINE, var=tmp_path, prometheus_url=url)
    return tmp_path


def of(name: str) -> Round:
    (found,) = (one for one in rounds.list_rounds() if one.name == name)
    return found


def add_receiver() -> None:
    receiver = Receiver.objects.create(name="on-call", kind="email")
    Route.objects.create(receiver=receiver)


def test_alerts_round(console_folder: Path, alertmanager: RunningAlertmanager) -> None:
    assert of("alerts").state is RoundState.LATE, "it was never done"
    now = timezone.now()
    AlertWatch.objects.create(pk=1, looked_at=now, reason=WATCHING)
    found = of("alerts")
    assert (found.state, found.text) == (RoundState.IDLE, "No alert receivers configured.")
    add_receiver()
    found = of("alerts")
    assert (found.state, found.last_at) == (RoundState.WORKING, now)
    for reason, state in (
        (PROMETHEUS_UNREACHABLE, RoundState.FAILING),
        (NO_PROMETHEUS, RoundState.IDLE),
    ):
        AlertWatch.objects.update(reason=reason)
        assert of("alerts").state is state
        assert of("alerts").remedy
    AlertWatch.objects.update(reason=WATCHING, looked_at=now - timedelta(minutes=3))
    found = of("alerts")
    assert found.state is RoundState.LATE
    assert "beat" in found.remedy


def test_metrics_name_late_jobs(console_folder: Path, alertmanager: RunningAlertmanager) -> None:
    for looked_at, fine in ((timezone.now(), 1), (timezone.now() - timedelta(minutes=3), 0)):
        AlertWatch.objects.update_or_create(pk=1, defaults={"looked_at": looked_at})
        registry = Registry()
        rounds.RoundMetrics()(registry)
        assert (
            f'emberline_console_background_job_ok{{background_job="alerts"}} {fine:.1f}'
            in registry.render()
        )


def test_alert_rule_round(console_folder: Path, settings: Any) -> None:
    assert of("alert rules").state is RoundState.LATE, "nobody has brought them yet"
    row = RuleFile.objects.create(state=Load.LOADED, digest=rule_file._wanted()[1])
    found = of("alert rules")
    assert (found.state, found.last_at) == (RoundState.WORKING, row.at)
    own = OwnRule.objects.create(name="Mine", expr="up", summary="x")
    assert of("alert rules").state is RoundState.LATE, "other rules than those that were loaded"
    own.delete()
    RuleFile.objects.update(state=Load.WAITING)
    assert of("alert rules").state is RoundState.LATE
    RuleFile.objects.update(state=Load.REFUSED, message="promtool: endpoint theirs is bad")
    found = of("alert rules")
    assert found.state is RoundState.FAILING
    assert "theirs" not in found.text + found.remedy, "whoever may not see it reads this too"
    settings.EMBERLINE = replace(settings.EMBERLINE, prometheus_url="http://elsewhere")
    assert of("alert rules").state is RoundState.IDLE


ENDED = datetime(2026, 11, 10, 12, tzinfo=UTC)
"""When an hour ended."""


@pytest.fixture
def since_nine(console_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """An endpoint since then; call it with the minutes it is past twelve."""
    make_endpoint()
    Endpoint.objects.update(created_at=ENDED - 3 * hours.HOUR)

    def past(minutes: int) -> None:
        monkeypatch.setattr(timezone, "now", lambda: ENDED + timedelta(minutes=minutes))

    past(30)
    return past


def added(*back: int) -> None:
    for count in back:
        MeasuredHour.objects.create(hour=ENDED - count * hours.HOUR, covered_s=3600)


def test_cost_round(since_nine: Callable[[int], None], settings: Any) -> None:
    found = of("costs")
    assert (found.state, found.last_at) == (RoundState.LATE, None)
    assert "Missing hours: 3, the latest from 2026-11-10 11:00 UTC" in found.text
    added(1, 3)
    assert "Missing hours: 1, the latest from 2026-11-10 10:00 UTC" in of("costs").text
    added(2)
    found = of("costs")
    assert found.state is RoundState.WORKING
    assert found.last_at == MeasuredHour.objects.latest("looked_at").looked_at
    MeasuredHour.objects.all().delete()
    settings.EMBERLINE = replace(settings.EMBERLINE, prometheus_url="")
    assert of("costs").state is RoundState.IDLE


def test_console_without_costs_is_idle(console_folder: Path) -> None:
    assert of("costs").state is RoundState.IDLE


def test_hour_that_just_ended_is_not_late(since_nine: Callable[[int], None]) -> None:
    added(2, 3)
    for minutes, state in ((9, RoundState.WORKING), (11, RoundState.LATE)):
        since_nine(minutes)
        assert of("costs").state is state


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Round:
    found = Round(
        "a round", "It goes round", RoundState.LATE, timezone.now(), "It is <late>.", "Push."
    )
    monkeypatch.setattr(rounds, "_rounds", [lambda: found])
    return found


def test_state_is_on_the_page_and_in_rest(trouble: Round) -> None:
    viewer = browser("viewer")
    page = viewer.get("/system/").text
    for text in (page, viewer.get("/system/rounds/", headers=PART).text):
        for shown in ("a round", "It goes round", "late", "It is &lt;late&gt;.", "Push.", "<time"):
            assert shown in text
    assert "<html" not in viewer.get("/system/rounds/", headers=PART).text
    assert "a round" in viewer.get("/system/rounds/").text
    assert "a round" not in viewer.get("/system/", headers=PART).text, "it is polled by itself"
    (found,) = program("viewer").get("/api/v1/system/rounds/").json()["rounds"]
    assert (found["name"], found["state"], found["remedy"]) == ("a round", "late", "Push.")
    assert found["last_at"]


def test_doctor_reports_it(trouble: Round) -> None:
    (found,) = (one for one in preflight.ask() if one.subject == "a round")
    assert str(found).startswith("note  a round: It is <late>. Last run 0")
    assert str(found).endswith("ago. Push.")


def test_doctor_survives_an_unavailable_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Round:
        raise DatabaseError

    monkeypatch.setattr(rounds, "_rounds", [broken])
    assert list(rounds.round_checks()) == []


def test_number_of_queries_is_constant(console_folder: Path) -> None:
    make_endpoint()
    add_receiver()
    AlertWatch.objects.create(pk=1, looked_at=timezone.now(), reason=WATCHING)
    RuleFile.objects.create(state=Load.LOADED)
    client = browser("viewer")
    check(client, "/system/rounds/", KEPT)
    check(client, "/api/v1/system/rounds/", KEPT)


def test_clock_that_was_set_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rounds.clock_round().state is RoundState.WORKING
    for seconds, text in ((86_400, "set ahead by 1 day, 0:00:00"), (-90, "set back by 0:01:30")):
        moved = rounds._OFFSET + seconds
        monkeypatch.setattr(rounds, "_clock_offset", lambda moved=moved: moved)
        found = rounds.clock_round()
        assert (found.state, text in found.text) == (RoundState.FAILING, True)
    page = browser("operator").get("/system/rounds/", headers=PART).text
    assert "The clock was set back by 0:01:30" in page
