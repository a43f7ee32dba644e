"""Hourly costs: added once, with the facts of the hour, and only from data."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from console.catalogue.instance_types import INSTANCE_TYPES
from dashboards.costs import actions as money
from dashboards.costs import budgets
from dashboards.costs.formulas.price_terms import THIS_MACHINE, parse_stored_needs
from dashboards.costs.ledger import hours, sums
from dashboards.costs.ledger.hours import HourResult
from dashboards.costs.models import Budget, CostDay, CostPlace, MeasuredHour, TierPrice
from dashboards.costs.prices import tiers
from dashboards.models import Calibration
from endpoints import actions
from endpoints.models import Endpoint, Revision
from endpoints.runs import RunState
from tests.dashboards.costs.conftest import HOUR_S, NOON, PRICE, USED, StubPrometheus, made
from tests.support.people import Cast

HOUR = hours.HOUR
CACHED = ('source=~"device"', 'source=~"host"', 'source=~"disk')


def day(name: str = "one") -> CostDay:
    return CostDay.objects.get(endpoint_name=name)


def test_missing_hours_are_queried_latest_first(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    assert hours.missing_hours(NOON)[0] == NOON - 2 * HOUR, (
        "the last hour is two minutes old at least"
    )
    now = NOON + hours.SETTLED
    assert hours.missing_hours(now) == [NOON - n * HOUR for n in (1, 2, 3, 4)], (
        "none from before it was"
    )
    assert hours.measure_hours(stub_prometheus, now) == 4
    assert stub_prometheus.queried_at[0] == int(NOON.timestamp())
    assert hours.missing_hours(now) == []
    assert hours.measure_hours(stub_prometheus, now) == 0
    found = day()
    assert (found.worker_s, found.busy_s) == (8 * HOUR_S, 4 * HOUR_S)
    assert (found.prompt, found.generated, found.requests) == (144_000, 28_800, 240)
    assert (found.cached_device, found.cached_l1, found.cached_l2) == (40_000, 20_000, 4_000)
    assert found.load_s == 16
    assert found.hours == 0b1111 << 8
    assert (found.price, found.part) == (2.0, pytest.approx(0.1))


def test_hour_is_counted_once(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    hour = NOON - HOUR
    for _ in range(2):
        assert hours.add_hour(stub_prometheus, hour) is HourResult.YES
    assert day().worker_s == 2 * HOUR_S
    assert MeasuredHour.objects.count() == 1


def test_next_hour_writes_each_endpoint_and_reads_none(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    """An hour of five hundred endpoints takes as many updates, without further reads."""
    hours.add_hour(stub_prometheus, NOON - 3 * HOUR)
    with CaptureQueriesContext(connection) as seen:
        hours.add_hour(stub_prometheus, NOON - 2 * HOUR)
    days = [q["sql"] for q in seen if CostDay._meta.db_table in q["sql"]]
    assert [sql.split()[0] for sql in days] == ["SELECT", "UPDATE"]


def test_hour_without_a_response_is_retried_later(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    stub_prometheus.away = True
    assert hours.measure_hours(stub_prometheus, NOON) == 0
    assert not MeasuredHour.objects.exists()
    assert not CostDay.objects.exists()
    stub_prometheus.away = False
    assert hours.measure_hours(stub_prometheus, NOON) == 3


def test_unreachable_source_is_awaited_and_then_skipped(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    stub_prometheus.in_parts = True
    hour = NOON - hours.HOUR
    assert hours.add_hour(stub_prometheus, hour) is HourResult.IN_PARTS
    assert not MeasuredHour.objects.exists()
    assert hours.measure_hours(stub_prometheus, NOON + hours.PATIENCE) == 5
    assert MeasuredHour.objects.get(hour=hour).covered_s == HOUR_S / 2
    assert NOON + hours.HOUR in hours.missing_hours(NOON + hours.PATIENCE), "these are waited for"


def test_no_query_before_the_first_endpoint(stub_prometheus: StubPrometheus, people: Cast) -> None:
    assert hours.measure_hours(stub_prometheus, NOON) == 0
    assert stub_prometheus.queried_at == []


def test_unscraped_time_stays_unknown(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    stub_prometheus.used, stub_prometheus.covered_s = {}, 0.0
    hours.add_hour(stub_prometheus, NOON)
    assert MeasuredHour.objects.get().covered_s == 0.0
    assert not CostDay.objects.exists(), "nought would be a lie"


def test_spec_of_the_hour_counts(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    Revision.objects.update(created_at=NOON - 3 * HOUR)
    wanted = {**one.spec, "resources": {**one.spec["resources"], "cpus": 2}}
    actions.update(actions.SYSTEM, "one", wanted)
    hours.add_hour(stub_prometheus, NOON - HOUR)
    assert day().part == pytest.approx(0.1)
    CostDay.objects.all().delete()
    Endpoint.objects.update(changed_at=NOON)
    hours.add_hour(stub_prometheus, NOON)
    assert day().part == pytest.approx(0.2)


def test_deleted_endpoint_keeps_its_last_known_state(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    hours.add_hour(stub_prometheus, NOON - HOUR)
    Endpoint.objects.all().delete()
    stub_prometheus.used["never"] = USED
    hours.add_hour(stub_prometheus, NOON)
    assert day().worker_s == 4 * HOUR_S
    never = day("never")
    assert (never.worker_s, never.price, never.part, never.team_id) == (7200, None, None, None)


def test_new_price_and_calibration_update_their_days(
    stub_prometheus: StubPrometheus, one: Endpoint, people: Cast
) -> None:
    for back in (24, 0):
        hours.add_hour(stub_prometheus, NOON - back * HOUR)

    def seen() -> list[tuple[float | None, float | None]]:
        hours.revalue(NOON.date())
        return list(CostDay.objects.order_by("day").values_list("price", "slope"))

    Endpoint.objects.update(created_at=NOON - timedelta(days=3))
    CostDay.objects.all().delete()
    MeasuredHour.objects.all().delete()
    for back in (24, 0):
        hours.add_hour(stub_prometheus, NOON - back * HOUR)
    assert seen() == [(2.0, None), (2.0, None)]
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, {**PRICE, "price_usd_hour": 3.0})
    assert seen() == [(3.0, None), (3.0, None)]
    later = {**PRICE, "price_usd_hour": 4.0, "price_date": str(NOON.date())}
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, later)
    assert seen() == [(3.0, None), (4.0, None)]
    settings = parse_stored_needs(one.spec).settings
    made_now = Calibration.objects.create(
        endpoint=one, state=RunState.DONE, seconds_per_token=0.002, measured_as=settings
    )
    assert seen() == [(3.0, 0.002), (4.0, 0.002)]
    Calibration.objects.filter(pk=made_now.pk).update(seconds_per_token=0.009)
    assert seen() == [(3.0, 0.002), (4.0, 0.002)], "what was reckoned with stays"


def test_unknown_machine_gets_its_share_once_known(
    stub_prometheus: StubPrometheus, people: Cast
) -> None:
    made("one")
    hours.add_hour(stub_prometheus, NOON)
    assert (day().part, day().price) == (None, None)
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, PRICE)
    hours.revalue(NOON.date())
    assert (day().part, day().price) == (pytest.approx(0.1), 2.0)


def test_an_over_allocated_machine_costs_its_price(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    stub_prometheus.used = {"one": {**USED, "up{job": 40 * HOUR_S}}
    hours.add_hour(stub_prometheus, NOON - HOUR)
    assert day().worker_s * day().part == pytest.approx(HOUR_S)
    stub_prometheus.used = {"one": USED}
    hours.add_hour(stub_prometheus, NOON)
    # One machine for the first hour, and two tenths of it for the second.
    assert day().worker_s * day().part == pytest.approx(1.2 * HOUR_S)


def test_a_late_price_is_not_exceeded_either(stub_prometheus: StubPrometheus, people: Cast) -> None:
    made("one")
    stub_prometheus.used = {"one": {**USED, "up{job": 40 * HOUR_S}}
    hours.add_hour(stub_prometheus, NOON)
    INSTANCE_TYPES.save(people.alice, THIS_MACHINE, PRICE)
    hours.revalue(NOON.date())
    assert day().worker_s * day().part == pytest.approx(HOUR_S)


REDIS = {"cache": {"l2": {"enabled": True, "backend": "redis", "url": "redis://r:6379/1"}}}
REDIS_NAME = "redis:r:6379"
TIER_PRICES = ("tier_price", "tier_memory_price", "tier_disk_price")


def tier_usd(*names: str) -> list[float]:
    """Return the endpoints' tier cost and the number of hours without a price."""
    found = [sums.total(sums.by_endpoint(CostDay.objects.filter(endpoint_name=n))) for n in names]
    return [*(line.tier_usd for line in found), sum(line.unpriced_tier_h for line in found)]


def set_tier_price(since: date, **facts: Any) -> TierPrice:
    return TierPrice.objects.create(name=REDIS_NAME, since=since, **facts)


def test_tier_is_paid_by_its_users(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    for name in ("two", "three"):
        made(name, **REDIS)
    more = {'source=~"disk': 3_000.0, "router_cached_prompt_tokens_total": 18_000.0}
    stub_prometheus.used = {"two": USED, "three": {**USED, **more}}
    hours.add_hour(stub_prometheus, NOON - HOUR)
    assert day("two").tier == REDIS_NAME
    assert tier_usd("two", "three") == [0, 0, 1]
    CostDay.objects.all().delete()
    set_tier_price(NOON.date(), usd_hour=8.0)
    hours.add_hour(stub_prometheus, NOON)
    assert tier_usd("two", "three") == [2.0, 6.0, 0]
    stub_prometheus.used = {}
    CostDay.objects.all().delete()
    hours.add_hour(stub_prometheus, NOON + HOUR)
    assert tier_usd("two", "three") == [4.0, 4.0, 0], "unused, it costs all the same"


def test_tier_price_updates_its_days(stub_prometheus: StubPrometheus, people: Cast) -> None:
    made("two", **REDIS)
    Endpoint.objects.update(created_at=NOON - timedelta(days=5))
    stub_prometheus.used = {"two": USED}
    for back in range(4):
        hours.add_hour(stub_prometheus, NOON - timedelta(days=back))
    set_tier_price(NOON.date() - timedelta(days=2), usd_hour=8.0)
    set_tier_price(NOON.date() - timedelta(days=1), usd_hour=5.0)
    set_tier_price(NOON.date())
    today, before = (NOON.date() - timedelta(days=back) for back in (0, 1))
    assert tiers.rates({}, lambda _machine: None, today) == {}, "forgotten from today on"
    assert tiers.rates({}, lambda _machine: None, before)[REDIS_NAME].usd_hour == 5.0
    for _ in range(2):
        hours.revalue(NOON.date())
        found = CostDay.objects.order_by("day").values_list("tier_price", flat=True)
        assert list(found) == [None, 8.0, 5.0, None]
    assert tier_usd("two") == [13.0, 2.0]
    CostDay.objects.update(tier_place=CostPlace.KEPT)
    TierPrice.objects.all().delete()
    hours.revalue(NOON.date())
    assert tier_usd("two") == [13.0, 2.0], "only its cost was kept: it stays"


def test_own_tier_is_valued_by_memory_and_disks(
    stub_prometheus: StubPrometheus, one: Endpoint, people: Cast
) -> None:
    """Four GiB on each of two nodes of 16 GiB at 1 USD/h, and 73 GiB of disk each."""
    INSTANCE_TYPES.save(people.alice, "node", {**PRICE, "memory_gib": 16, "price_usd_hour": 1.0})
    row = CostDay.objects.create(
        endpoint_name="one",
        day=NOON.date(),
        tier="warm",
        tier_place=CostPlace.CLUSTER,
        tier_h=2,
        tier_memory_h=16,
        tier_disk_h=292,
        tier_price=None,
    )

    def worth() -> list[float]:
        hours.revalue(NOON.date())
        return tier_usd("one")

    assert worth() == [0, 2]
    money.save_tier_price(people.alice, "warm", {"machine": "node", "since": "2026-11-02"})
    assert worth() == [0, 2], "nobody said what disks cost"
    money.save_tier_price(people.alice, "warm", {"disk_usd_gib_month": 0.5, "since": "2026-11-02"})
    assert worth() == [pytest.approx(16 / 16 + 292 * 0.5 / 730), 0]
    CostDay.objects.filter(pk=row.pk).update(tier_place=CostPlace.GONE)
    assert worth() == [0, 2], "how large it was is not known"
    money.save_tier_price(people.alice, "warm", {"usd_hour": 3.0, "since": "2026-11-02"})
    assert worth() == [6.0, 0]


def test_deleted_tier_makes_its_day_unknown(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    """No tier has this name: its size is unknown."""
    Endpoint.objects.update(spec={**one.spec, "cache": {"l2": {"enabled": True, "tier": "warm"}}})
    everything = Budget(name="all", usd=100.0)
    hours.add_hour(stub_prometheus, NOON - HOUR)
    CostDay.objects.update(tier_place=CostPlace.HERE, **dict.fromkeys(TIER_PRICES, 1.0))
    (state,) = budgets.budget_states([everything], NOON)
    assert (tier_usd("one"), state.unpriced) == ([1.0, 0], False)
    hours.add_hour(stub_prometheus, NOON)
    assert day().tier_place == CostPlace.GONE
    assert tier_usd("one") == [0, 2]
    (state,) = budgets.budget_states([everything], NOON)
    assert state.unpriced


def test_cache_without_hits_has_a_cost(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    """Without calibration: not needed for zero tokens."""
    stub_prometheus.used = {"one": {**USED, **dict.fromkeys(CACHED, 0.0), "load_time": 0.0}}
    hours.add_hour(stub_prometheus, NOON)
    CostDay.objects.update(l1_part=0.05)
    line = sums.total(sums.by_endpoint(CostDay.objects.all()))
    assert line.valued
    assert line.saved_usd == pytest.approx(-2 * 0.05 * 2.0)
    CostDay.objects.update(cached_l1=1.0)
    line = sums.total(sums.by_endpoint(CostDay.objects.all()))
    assert (line.valued, line.saved_usd) == (False, 0.0)
