"""Budgets: spending, forecast and notifications."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from console.audit.models import AuditEvent
from console.processkit.metrics import Registry
from dashboards.costs import budgets, metrics
from dashboards.costs.budgets import FORESEEN, BudgetState, budget_banner
from dashboards.costs.ledger import hours
from dashboards.costs.models import Budget, BudgetCrossing, CostDay, MeasuredHour, Whose
from endpoints.models import Endpoint
from tests.dashboards.costs.conftest import NOON, StubPrometheus
from tests.support.people import Cast, client_of
from tests.support.teams import CANARY, OURS, Teams

# 0.2 USD/h for each of two workers.
HOURLY = 0.4


def budget(usd: float, whose: str = Whose.ALL, subject: str = "") -> Budget:
    return Budget.objects.create(
        name=f"{whose} {subject}".strip(), whose=whose, subject=subject, usd=usd
    )


def state(of: Budget, now: datetime = NOON) -> BudgetState:
    (found,) = budgets.budget_states([of], now)
    return found


def test_budget_usage_and_forecast(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    for back in range(4):
        hours.add_hour(stub_prometheus, NOON - (back + 1) * hours.HOUR)
    found = state(budget(10.0))
    assert found.spent == pytest.approx(4 * HOURLY)
    left = (datetime(2026, 12, 1, tzinfo=UTC) - NOON).total_seconds() / 3600
    assert found.foreseen == pytest.approx(4 * HOURLY + left * HOURLY), "today is all there is"
    tomorrow = NOON + timedelta(days=1)
    assert found.used == pytest.approx(0.16)
    assert state(budget(10.0, Whose.TAG, "a=b"), tomorrow).spent == 0.0
    MeasuredHour.objects.update(covered_s=1800)
    found = state(Budget.objects.get(whose="all"), tomorrow)
    assert found.foreseen == pytest.approx(4 * HOURLY + (left - 24) * 2 * HOURLY), (
        "what was not scraped is no idle time"
    )


def test_without_a_measured_hour_there_is_no_forecast(one: Endpoint) -> None:
    found = state(budget(10.0))
    assert (found.spent, found.foreseen, found.forecast, found.passed) == (0.0, None, None, [])


def test_budgets_by_team_tag_and_endpoint(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    hours.add_hour(stub_prometheus, NOON - hours.HOUR)
    CostDay.objects.update(team="search", tags={"app": "chat", "a=b": "c"})
    wanted = {
        (Whose.TEAM, "search"): HOURLY,
        (Whose.TEAM, "other"): 0.0,
        (Whose.TAG, "app=chat"): HOURLY,
        (Whose.TAG, "app=else"): 0.0,
        (Whose.ENDPOINT, "one"): HOURLY,
        (Whose.ENDPOINT, "two"): 0.0,
    }
    for (whose, subject), spent in wanted.items():
        assert state(budget(1.0, whose, subject)).spent == pytest.approx(spent), subject


def test_threshold_is_reported_once_a_month(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    hours.add_hour(stub_prometheus, NOON - hours.HOUR)
    tight = budget(HOURLY / 0.85)
    assert {one.mark for one in budgets.record_crossings(NOON)} == {50, 80, FORESEEN}
    assert budgets.record_crossings(NOON) == []
    Budget.objects.update(usd=HOURLY)
    assert [one.mark for one in budgets.record_crossings(NOON)] == [100]
    assert AuditEvent.objects.filter(target=f"budget/{tight.name}", verb="budget.pass").count() == 4
    assert budgets.record_crossings(NOON + timedelta(days=30)) == [], (
        "another month, and nothing spent"
    )


def test_budget_metrics_are_exported(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    hours.add_hour(stub_prometheus, NOON - hours.HOUR)
    for whose, subject in ((Whose.TEAM, "search"), (Whose.ENDPOINT, "one")):
        budget(1.0, whose, subject)
    registry = Registry()
    collector = metrics.BudgetMetrics()
    collector(registry)
    text = registry.render()
    assert f'{metrics.USED}{{budget="team search",team="search"}}' in text
    assert f'{metrics.USED}{{budget="endpoint one",endpoint="one"}}' in text
    Budget.objects.all().delete()
    again = Registry()
    collector(again)
    assert again.render() == text, "it is not reckoned for every scrape"


def test_budget_banner_is_on_every_page(
    stub_prometheus: StubPrometheus, one: Endpoint, people: Cast
) -> None:
    cache.clear()
    now = datetime.now(UTC).replace(day=15, hour=12, minute=0, second=0, microsecond=0)
    mine = budget(1.0)
    assert budget_banner(people.charlie) is None
    month = now.date().replace(day=1)
    BudgetCrossing.objects.create(budget=mine, month=month, mark=FORESEEN, spent=0.5, usd=1.0)
    assert budget_banner(people.charlie) is None, "asked of the database only now and then"
    cache.clear()
    shown = budget_banner(people.charlie)
    assert shown is not None
    assert (shown.level, "all" in shown.text) == ("warning", True)
    BudgetCrossing.objects.create(budget=mine, month=month, mark=100, spent=1.5, usd=1.0)
    cache.clear()
    shown = budget_banner(people.charlie)
    assert shown is not None
    assert shown.level == "danger"
    assert "Budget exceeded" in client_of(people.charlie).get("/instance-types/").content.decode()
    cache.clear()


def test_visible_budgets_of_a_team(two_teams: Teams, people: Cast) -> None:
    for whose, subject in (
        (Whose.ALL, ""),
        (Whose.TAG, "a=b"),
        (Whose.ENDPOINT, CANARY),
        (Whose.ENDPOINT, OURS),
        (Whose.TEAM, two_teams.theirs.slug),
        (Whose.TEAM, two_teams.ours.slug),
    ):
        budget(1.0, whose, subject)
    assert budgets.budgets(people.charlie).count() == 6
    seen = set(budgets.budgets(two_teams.erin).values_list("subject", flat=True))
    assert seen == {OURS, two_teams.ours.slug}
    assert not budgets.budgets(two_teams.nora).exists()
