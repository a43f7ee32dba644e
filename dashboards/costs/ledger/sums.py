"""Sums of stored cost days by endpoint, team, tag, model or machine.

One query covers all days and endpoints. Unpriced usage is counted separately, not as zero. Only
rows visible to the viewer are included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date
from typing import Any

from django.db.models import Case, F, FloatField, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce

from console.accounts.permissions import Somebody, allows, team_ids_with_role
from dashboards.costs.formulas.savings import HOUR_S, MILLION
from dashboards.costs.models import CostDay
from endpoints import teams
from endpoints.models import Endpoint

NO_TEAM = "no team"
UNTAGGED = "without"
BY = ("endpoint", "team", "model", "machine")
"""Group keys, besides `tag:KEY`."""


@dataclass(frozen=True, slots=True)
class CostLine:
    """Costs of one endpoint or several, USD of priced usage only.

    `unpriced_s`: worker seconds without a price; `unpriced_tier_h`: likewise hours of cache tiers.
    `saved_usd` is net; `unvalued` counts cached tokens without a known value (no worker price,
    calibration or tier price).
    """

    name: str
    team: str = ""
    model: str = ""
    machine: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    workers_usd: float = 0.0
    idle_usd: float = 0.0
    tier_usd: float = 0.0
    l1_usd: float = 0.0
    saved_usd: float = 0.0
    worker_s: float = 0.0
    unpriced_s: float = 0.0
    tier_h: float = 0.0
    unpriced_tier_h: float = 0.0
    prompt: float = 0.0
    generated: float = 0.0
    requests: float = 0.0
    cached: float = 0.0
    unvalued: float = 0.0

    @property
    def total_usd(self) -> float:
        return self.workers_usd + self.tier_usd

    @property
    def busy_usd(self) -> float:
        return self.workers_usd - self.idle_usd

    @property
    def priced(self) -> bool:
        """Return whether any part has a price."""
        return self.unpriced_s < self.worker_s or bool(self.tier_usd)

    @property
    def valued(self) -> bool:
        """Return whether the saving of any part is known."""
        is_valued = self.unvalued < self.cached if self.cached else not self.unpriced_tier_h
        return self.priced and is_valued

    @property
    def known(self) -> dict[str, float | None]:
        """Return the USD amounts by name; None without any price, rather than zero."""
        has_worker_price = self.unpriced_s < self.worker_s or not self.worker_s
        has_tier_price = self.unpriced_tier_h < self.tier_h or not self.tier_h
        amounts = {
            **dict.fromkeys(("workers_usd", "idle_usd", "l1_usd"), has_worker_price),
            "tier_usd": has_tier_price,
            "total_usd": self.priced,
            "saved_usd": self.valued,
        }
        return {name: getattr(self, name) if known else None for name, known in amounts.items()}

    @property
    def per_million_tokens(self) -> float | None:
        tokens = self.prompt + self.generated
        return self.total_usd / tokens * MILLION if tokens and self.priced else None


Days = QuerySet[CostDay]
_SUMS = [field.name for field in fields(CostLine) if field.type == "float"]
_HOURLY = F("part") * F("price") / HOUR_S
_CACHED = F("cached_device") + F("cached_l1") + F("cached_l2")
_DISKS = Case(
    When(tier_disk_h__gt=0, then=F("tier_disk_h") * F("tier_disk_price")),
    default=Value(0.0),
    output_field=FloatField(),
)
_TIER = F("tier_h") * F("tier_price") + F("tier_memory_h") * F("tier_memory_price") + _DISKS
_L1 = F("worker_s") * F("l1_part") * F("price") / HOUR_S
_SPARED_S = Case(
    # Without hits the saving is zero at any token price; the cache is charged anyway.
    When(cached_device=0, cached_l1=0, cached_l2=0, then=Value(0.0)),
    default=_CACHED * F("slope"),
    output_field=FloatField(),
)
_SAVED = (_SPARED_S - F("load_s")) * _HOURLY - _L1 - _TIER
_IDLE_S = Case(
    When(busy_s__lt=F("worker_s"), then=F("worker_s") - F("busy_s")),
    default=Value(0.0),
    output_field=FloatField(),
)
_NO_PRICE = Q(price=None) | Q(part=None)
_NO_TIER_PRICE = (
    Q(tier_price=None) | Q(tier_memory_price=None) | Q(tier_disk_h__gt=0, tier_disk_price=None)
)
_NO_WORTH = _NO_PRICE | Q(slope=None) | _NO_TIER_PRICE


def _sum(value: Any, when: Q | None = None) -> Any:
    """Sum the values; NULL terms are left out."""
    counted = value if when is None else Case(When(when, then=value), default=Value(0.0))
    return Coalesce(Sum(counted, output_field=FloatField()), 0.0)


def days(begin: date, end: date, viewer: Somebody = None) -> QuerySet[CostDay]:
    """Return days from `begin` to before `end`, of endpoints visible to the viewer and of deleted
    ones of their teams. Viewer None: all.
    """
    rows = CostDay.objects.filter(day__gte=begin, day__lt=end)
    if viewer is None or allows(viewer, "viewer"):
        return rows
    mine = team_ids_with_role(viewer, "viewer") or frozenset()
    hidden = Endpoint.objects.exclude(name__in=teams.names(viewer)).values("name")
    return rows.filter(team_id__in=mine).exclude(endpoint_name__in=hidden)


def by_endpoint(rows: QuerySet[CostDay]) -> list[CostLine]:
    """Return a line for each endpoint and state."""
    columns = ("endpoint_name", "team", "model", "machine", "tags")
    ordered = rows.order_by("endpoint_name").values(*columns)
    ordered = ordered.annotate(
        sum_workers_usd=_sum(F("worker_s") * _HOURLY),
        sum_idle_usd=_sum(_IDLE_S * _HOURLY),
        sum_tier_usd=_sum(_TIER),
        sum_l1_usd=_sum(_L1),
        sum_saved_usd=_sum(_SAVED),
        sum_worker_s=_sum(F("worker_s")),
        sum_unpriced_s=_sum(F("worker_s"), _NO_PRICE),
        sum_tier_h=_sum(F("tier_h")),
        sum_unpriced_tier_h=_sum(F("tier_h"), _NO_TIER_PRICE),
        sum_prompt=_sum(F("prompt")),
        sum_generated=_sum(F("generated")),
        sum_requests=_sum(F("requests")),
        sum_cached=_sum(_CACHED),
        sum_unvalued=_sum(_CACHED, _NO_WORTH),
    )
    return [
        CostLine(
            row["endpoint_name"],
            row["team"],
            row["model"],
            row["machine"],
            row["tags"],
            **{name: row[f"sum_{name}"] for name in _SUMS},
        )
        for row in ordered
    ]


@dataclass(frozen=True, slots=True)
class TierLine:
    """Use of one cache tier by a team's endpoints: hours times their share."""

    tier: str
    team: str
    hours: float = 0.0
    usd: float = 0.0
    unpriced_h: float = 0.0

    def plus(self, other: TierLine, sign: float = 1.0) -> TierLine:
        return replace(
            self,
            hours=self.hours + sign * other.hours,
            usd=self.usd + sign * other.usd,
            unpriced_h=self.unpriced_h + sign * other.unpriced_h,
        )

    def minus(self, other: TierLine) -> TierLine:
        return self.plus(other, -1.0)


def by_tier(rows: Days) -> list[TierLine]:
    """Return a line for each tier and team."""
    ordered = rows.exclude(tier="").order_by("tier", "team").values("tier", "team")
    sums_of = ordered.annotate(
        sum_h=_sum(F("tier_h")), sum_usd=_sum(_TIER), sum_unpriced=_sum(F("tier_h"), _NO_TIER_PRICE)
    )
    columns = ("tier", "team", "sum_h", "sum_usd", "sum_unpriced")
    return [TierLine(*row) for row in sums_of.values_list(*columns)]


def busy_by_day(rows: Days) -> Iterable[tuple[str, date, float]]:
    """Return endpoint, day and the cost (USD) of its workers' busy time, for days with a price."""
    priced = rows.exclude(_NO_PRICE)
    ordered = priced.order_by("endpoint_name", "day").values_list("endpoint_name", "day")
    return ordered.annotate(sum_busy_usd=_sum((F("worker_s") - _IDLE_S) * _HOURLY))


def group_lines(lines: Iterable[CostLine], by: str) -> list[CostLine]:
    """Group by one of `BY` or tag:KEY, highest cost first."""
    cost_lines: dict[str, CostLine] = {}
    name_of = _names(by)
    for line in lines:
        name = name_of(line)
        before = cost_lines.get(name)
        cost_lines[name] = replace(line, name=name) if before is None else add_lines(before, line)
    return sorted(cost_lines.values(), key=lambda line: (-line.total_usd, line.name))


def total(lines: Iterable[CostLine]) -> CostLine:
    cost_line = CostLine("")
    for line in lines:
        cost_line = add_lines(cost_line, line)
    return cost_line


def add_lines(one: CostLine, other: CostLine) -> CostLine:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in _SUMS})


def tag_keys(lines: Iterable[CostLine]) -> list[str]:
    return sorted({key for line in lines for key in line.tags})


def _names(by: str) -> Callable[[CostLine], str]:
    if by.startswith("tag:"):
        key = by.removeprefix("tag:")
        return lambda line: line.tags.get(key) or f"{UNTAGGED} {key}"
    if by == "team":
        return lambda line: line.team or NO_TEAM
    if by in ("model", "machine"):
        return lambda line: getattr(line, by) or "not known"
    return lambda line: line.name
