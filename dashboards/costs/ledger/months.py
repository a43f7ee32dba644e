"""Calendar months of UTC, written 2026-11, and how much of one was measured."""

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
        """The first day which is not in it."""
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
    """Of addresses, such as /costs/reports/2026-11/."""

    regex = r"20\d\d-(?:0[1-9]|1[0-2])"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of the hours of a month which are over (`due`): how many were `asked` of Prometheus, and how
    many hours' worth of scrapes there were (`scraped`)."""

    due: int
    asked: int
    scraped: float

    @property
    def share(self) -> float | None:
        return min(1.0, self.scraped / self.due) if self.due else None

    @property
    def whole(self) -> bool:
        """A scrape a minute may be lost without a word."""
        return self.share is None or self.share >= 0.995


def of(moment: datetime) -> Month:
    return Month(moment.astimezone(UTC).date().replace(day=1))


def read(text: str) -> Month | None:
    found = _WRITTEN.fullmatch(text)
    return Month(date(int(found[1]), int(found[2]), 1)) if found else None


def kept(now: datetime) -> list[Month]:
    """Those of which anything is kept, and the present one; the latest first."""
    first = CostDay.objects.order_by("day").values_list("day", flat=True).first()
    month, found = of(now), [of(now)]
    while first is not None and month.first > first:
        month = month.before
        found.append(month)
    return found


def coverage(month: Month, now: datetime) -> Coverage:
    return coverages([month], now)[month]


def coverages(wanted: Sequence[Month], now: datetime) -> dict[Month, Coverage]:
    """In one query. No hour before the first which was ever asked is due: nothing was to cost."""
    rows = MeasuredHour.objects.order_by().annotate(month=TruncMonth("hour", tzinfo=UTC))
    found = {
        row["month"].date(): row
        for row in rows.values("month").annotate(
            asked=Count("hour"), seconds=Sum("covered_s"), first=Min("hour")
        )
    }
    began = min((row["first"] for row in found.values()), default=None)
    over = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    covered = {}
    for month in wanted:
        row = found.get(month.first)
        due = 0
        if began is not None:
            due = int((min(month.ends, over) - max(month.begins, began)).total_seconds() / HOUR_S)
        asked, seconds = (row["asked"], row["seconds"]) if row else (0, 0.0)
        covered[month] = Coverage(max(0, due), asked, seconds / HOUR_S)
    return covered
