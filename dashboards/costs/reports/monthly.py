"""Monthly report: costs, savings and measured coverage.

An incomplete month is marked beside every sum. Page, CSV and REST show the same values, limited to
what the viewer may see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from console.accounts.permissions import Somebody
from dashboards.costs.ledger import months, sums
from dashboards.costs.ledger.months import Coverage, Month
from dashboards.costs.ledger.sums import CostLine
from dashboards.costs.reports import shares
from dashboards.costs.reports.shares import Allocation, TierPool

_NUMBERS = (
    *("workers_usd", "idle_usd", "tier_usd", "total_usd", "l1_usd", "saved_usd"),
    *("worker_s", "unpriced_s", "tier_h", "unpriced_tier_h"),
    *("prompt", "generated", "requests", "cached", "unvalued"),
)
MOST = 50
"""Maximum number of table rows on the page."""
COLUMNS = ("month", "group", "name", "team", *_NUMBERS, "covered")
"""CSV columns; `group` is the kind of a row, such as endpoint, team, tier:NAME or key."""


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a monthly report. `by`: endpoint, team, model, machine or tag:KEY."""

    by: str
    lines: Sequence[CostLine]


@dataclass(frozen=True, slots=True)
class MonthReport:
    month: Month
    coverage: Coverage
    total: CostLine
    tables: Sequence[Table]
    keys: Allocation
    pools: Sequence[TierPool] = ()

    @property
    def partial(self) -> str:
        """Return what is missing from the sums, or ""."""
        reasons = []
        if not self.coverage.whole:
            share = self.coverage.share or 0.0
            reasons.append(f"{1 - share:.1%} of the hours so far were not measured")
        if self.total.unpriced_s:
            share = self.total.unpriced_s / self.total.worker_s
            reasons.append(f"{share:.1%} of the worker time has no price")
        if self.total.unpriced_tier_h:
            share = self.total.unpriced_tier_h / self.total.tier_h
            reasons.append(f"{share:.1%} of the cache tier time has no price")
        return "; ".join(reasons)


def report(
    month: Month, now: datetime, viewer: Somebody, weight: float = shares.WEIGHT
) -> MonthReport:
    lines = sums.by_endpoint(sums.days(month.first, month.after, viewer))
    groups = ["endpoint", "team", *(f"tag:{key}" for key in sums.tag_keys(lines))]
    tables = [Table(by, sums.group_lines(lines, by)) for by in (*groups, "model", "machine")]
    return MonthReport(
        month,
        months.coverage(month, now),
        sums.total(lines),
        tables,
        shares.allocate(month, viewer, lines, weight),
        shares.pools(month, viewer),
    )


def shorten(table: Table, most: int = MOST) -> Table:
    """Return the most expensive lines, and one line for the rest."""
    if len(table.lines) <= most:
        return table
    others = table.lines[most:]
    last = replace(sums.total(others), name=f"{len(others)} more: see the CSV")
    return Table(table.by, [*table.lines[:most], last])


def report_rows(found: MonthReport) -> Iterator[dict[str, Any]]:
    """Return a row by `COLUMNS` for each line of each table."""
    same = {"month": found.month.key, "covered": found.coverage.share}
    for table in found.tables:
        for line in table.lines:
            numbers = line_numbers(line)
            team = line.team if table.by == "endpoint" else ""
            yield {**same, "group": table.by, "name": line.name, "team": team, **numbers}
    for pool in found.pools:
        for part in pool.parts:
            amounts = {
                "tier_usd": part.usd,
                "tier_h": part.hours,
                "unpriced_tier_h": part.unpriced_h,
            }
            yield {**same, "group": f"tier:{pool.name}", "name": part.team, **amounts}
    for key in found.keys.lines:
        numbers = {"requests": key.requests, "prompt": key.prompt_tokens}
        numbers |= {"cached": key.cached_tokens, "generated": key.completion_tokens}
        yield {**same, "group": "key", "name": key.name, "total_usd": key.usd, **numbers}


def report_document(found: MonthReport) -> dict[str, Any]:
    """Return the REST document."""
    return {
        "month": found.month.key,
        "coverage": {**asdict(found.coverage), "share": found.coverage.share},
        "missing": found.partial,
        "total": line_document(found.total),
        "groups": {
            table.by: [line_document(line) for line in table.lines] for table in found.tables
        },
        "tiers": {pool.name: [asdict(part) for part in pool.parts] for pool in found.pools},
        "keys": allocation_document(found.keys),
    }


def line_document(line: CostLine) -> dict[str, Any]:
    return {"name": line.name, **line_numbers(line)}


def line_numbers(line: CostLine) -> dict[str, Any]:
    """Return the values of `_NUMBERS`; an amount without any price is None."""
    return {name: getattr(line, name) for name in _NUMBERS} | line.known


def allocation_document(found: Allocation) -> dict[str, Any]:
    lines = [{**asdict(line), "endpoints": sorted(line.endpoints)} for line in found.lines]
    fields = ("weight", "busy_usd", "idle_usd", "tier_usd", "unreported_usd")
    return {"lines": lines, **{name: getattr(found, name) for name in fields}}
