"""Months in UTC: their bounds in any year and across clock changes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from dashboards.costs.ledger import hours, months
from dashboards.costs.ledger.months import Month
from dashboards.costs.models import CostDay, MeasuredHour
from endpoints.models import Endpoint
from tests.dashboards.costs.conftest import HOUR_S, StubPrometheus

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("first", "days", "before", "after"),
    [
        (date(2028, 2, 1), 29, date(2028, 1, 1), date(2028, 3, 1)),
        (date(2026, 2, 1), 28, date(2026, 1, 1), date(2026, 3, 1)),
        (date(2026, 12, 1), 31, date(2026, 11, 1), date(2027, 1, 1)),
        (date(2026, 1, 1), 31, date(2025, 12, 1), date(2026, 2, 1)),
        # Clocks change in both: no UTC hour is missing or repeated.
        (date(2026, 3, 1), 31, date(2026, 2, 1), date(2026, 4, 1)),
        (date(2026, 10, 1), 31, date(2026, 9, 1), date(2026, 11, 1)),
    ],
)
def test_hours_of_a_month(first: date, days: int, before: date, after: date) -> None:
    month = Month(first)
    assert month.hours == days * 24
    assert (month.before.first, month.after) == (before, after)
    assert months.parse_month(month.key) == month


def test_month_is_in_utc() -> None:
    late = datetime(2026, 12, 1, 0, 30, tzinfo=BERLIN)
    assert months.month_of(late).key == "2026-11"
    early = datetime(2026, 11, 30, 19, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert months.month_of(early).key == "2026-12"


def test_repeated_hour_of_a_clock_change_is_counted_twice(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    """02:30 occurs twice in Berlin: two hours of UTC."""
    Endpoint.objects.update(created_at=datetime(2026, 10, 25, 0, tzinfo=UTC))
    now = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    assert now.astimezone(UTC).hour == 1
    assert [hour.hour for hour in hours.missing_hours(now)] == [0]
    later = datetime(2026, 10, 25, 3, 30, tzinfo=BERLIN)
    assert [hour.hour for hour in hours.missing_hours(later)] == [1, 0]
    assert hours.measure_hours(stub_prometheus, later) == 2
    assert CostDay.objects.get().worker_s == 4 * HOUR_S


def test_hour_belongs_to_the_day_of_its_start(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    midnight = datetime(2026, 12, 1, tzinfo=UTC)
    for hour in (midnight - hours.HOUR, midnight):
        hours.add_hour(stub_prometheus, hour)
    found = CostDay.objects.order_by("day").values_list("day", "hours")
    assert list(found) == [(date(2026, 11, 30), 1 << 23), (date(2026, 12, 1), 1)]
    now = midnight + 2 * hours.HOUR
    covered = months.coverages([Month(date(2026, 11, 1)), Month(date(2026, 12, 1))], now)
    coverage = [(one.due, one.queried, one.whole) for one in covered.values()]
    assert coverage == [(1, 1, True), (2, 1, False)]
    assert MeasuredHour.objects.count() == 2
