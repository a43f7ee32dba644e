"""Calendar months (UTC), written 2026-11, and their measured coverage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db.models import Count, Min, Sum
from django.db.models.functions import TruncMonth
from django.urls.converters import StringConverter

from dashboards.costs.formulas.savings import HOUR_S
from dashboards.costs.models import CostDay, MeasuredHour

_WRITTEN = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class Month:
    first: date

    @property
    def key(self) -> str:
        return f"{self.first:%Y-%m}"

    @property
    def title(self) -> str:
        return f"{self.first:%B %Y}"

    @property
    def after(self) -> date:
        """Return the first day after the month."""
        return (self.first + timedelta(days=32)).replace(day=1)

    @property
    def before(self) -> Month:
        return Month((self.first - timedelta(days=1)).replace(day=1))

    @property
    def begins(self) -> datetime:
        return datetime.combine(self.first, datetime.min.time(), UTC)

    @property
    def ends(self) -> datetime:
        return datetime.combine(self.after, datetime.min.time(), UTC)

    @property
    def hours(self) -> int:
        return int((self.ends - self.begins).total_seconds() / HOUR_S)


class MonthKey(StringConverter):
    """URL converter, as in /costs/reports/2026-11/."""

    regex = r"20\d\d-(?:0[1-9]|1[0-2])"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Hours of a month: ended (`due`), `queried`, and covered by scrapes (`scraped`)."""

    due: int
    queried: int
    scraped: float

    @property
    def share(self) -> float | None:
        return min(1.0, self.scraped / self.due) if self.due else None

    @property
    def whole(self) -> bool:
        """Return whether the month is complete; one missed scrape is tolerated."""
        return self.share is None or self.share >= 0.995


def month_of(moment: datetime) -> Month:
    return Month(moment.astimezone(UTC).date().replace(day=1))


def parse_month(text: str) -> Month | None:
    match = _WRITTEN.fullmatch(text)
    return Month(date(int(match[1]), int(match[2]), 1)) if match else None


def stored_months(now: datetime) -> list[Month]:
    """Return the months with data and the current one, latest first."""
    first = CostDay.objects.order_by("day").values_list("day", flat=True).first()
    month, months = month_of(now), [month_of(now)]
    while first is not None and month.first > first:
        month = month.before
        months.append(month)
    return months


def coverage(month: Month, now: datetime) -> Coverage:
    return coverages([month], now)[month]


def coverages(wanted: Sequence[Month], now: datetime) -> dict[Month, Coverage]:
    """Return coverages with one query; hours before the first ever queried are not due."""
    rows = MeasuredHour.objects.order_by().annotate(month=TruncMonth("hour", tzinfo=UTC))
    by_month = {
        row["month"].date(): row
        for row in rows.values("month").annotate(
            queried=Count("hour"), seconds=Sum("covered_s"), first=Min("hour")
        )
    }
    began = min((row["first"] for row in by_month.values()), default=None)
    over = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    covered = {}
    for month in wanted:
        row = by_month.get(month.first)
        due = 0
        if began is not None:
            due = int((min(month.ends, over) - max(month.begins, began)).total_seconds() / HOUR_S)
        queried, seconds = (row["queried"], row["seconds"]) if row else (0, 0.0)
        covered[month] = Coverage(max(0, due), queried, seconds / HOUR_S)
    return covered
