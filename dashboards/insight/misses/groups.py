"""Computed prompt tokens of all endpoints by team, tag, model or machine, from Prometheus.

One query covers all endpoints; sums outlive restarts of routers, unlike an endpoint's page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.accounts.permissions import Somebody
from dashboards.boards.queries import Scope
from dashboards.boards.results import evidence
from dashboards.boards.results.board import Message, make_fault_message
from dashboards.costs.formulas.price_terms import Needs, parse_stored_needs
from dashboards.costs.formulas.savings import HOUR_S, rate
from dashboards.costs.ledger.sums import BY, NO_TEAM, UNTAGGED
from dashboards.costs.prices.factors import known
from dashboards.costs.prices.machines import occupied_machines
from dashboards.costs.reports.endpoints import RANGES
from dashboards.insight.misses.report import slope_error
from dashboards.models import Calibration
from dashboards.prometheus.http.client import Asker
from endpoints import selectors
from routing.analysis.label_names import get_name
from routing.analysis.misses import MissRemedy, find_remedy

TAG = "tag:"
_QUERY = "usage_misses"


@dataclass(slots=True)
class MissGroup:
    """Tokens by cause of one group. `seconds`, `usd`: prefill of its calibrated, and of its priced,
    tokens; `usd_error`: ± of `usd`, from the spread of the calibrations' prompt pairs.
    `uncalibrated`, `unpriced`: tokens that these do not include.
    """

    name: str
    causes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    usd: float = 0.0
    usd_error: float = 0.0
    uncalibrated: int = 0
    unpriced: int = 0
    share: float = 0.0

    @property
    def tokens(self) -> int:
        return self.causes.total()

    @property
    def known_seconds(self) -> float | None:
        return None if self.uncalibrated == self.tokens else self.seconds

    @property
    def known_usd(self) -> float | None:
        return None if self.unpriced == self.tokens else self.usd

    @property
    def main_cause(self) -> str:
        return self.causes.most_common(1)[0][0] if self.causes else ""

    @property
    def label(self) -> str:
        """Return the main cause's label."""
        return get_name("cause", self.main_cause) if self.causes else ""

    @property
    def main_share(self) -> float:
        return self.causes[self.main_cause] / self.tokens if self.tokens else 0.0

    @property
    def remedy(self) -> MissRemedy:
        return find_remedy(self.main_cause)


@dataclass(frozen=True, slots=True)
class MissGroups:
    """Costs of misses by group. `causes`: a group for each cause; both with most tokens first.
    `tags`: keys to group by.
    """

    key: str
    by: str
    groups: Sequence[MissGroup]
    causes: Sequence[MissGroup]
    tags: Sequence[str]
    fault: Message | None = None

    @property
    def tokens(self) -> int:
        return sum(group.tokens for group in self.groups)

    @property
    def uncalibrated(self) -> int:
        return sum(group.uncalibrated for group in self.groups)

    @property
    def unpriced(self) -> int:
        """Return the calibrated tokens without a price."""
        return sum(group.unpriced for group in self.groups) - self.uncalibrated


@dataclass(frozen=True, slots=True)
class _Priced:
    """Of a computed token: worker seconds, USD, relative error; None: unknown."""

    seconds: float | None
    usd: float | None
    error: float


def report(prometheus: Asker, key: str, by: str, now: float, viewer: Somebody = None) -> MissGroups:
    """Return the tokens of the endpoints that the viewer may see. `by`: see `BY`, or tag:KEY."""
    counts, fault = _count(prometheus, RANGES[key], now)
    related = selectors.endpoints(viewer).select_related(None).select_related("team")
    listed = [
        (row.pk, row.name, row.team.slug if row.team else "", parse_stored_needs(row.spec))
        for row in related.only("name", "spec", "team__slug")
    ]
    prices = _prices((pk, needs) for pk, name, _, needs in listed if name in counts)
    groups: dict[str, MissGroup] = {}
    causes: dict[str, MissGroup] = {}
    for pk, name, team, needs in listed:
        for cause, tokens in counts.get(name, {}).items():
            label = _label(by, name, team, needs)
            _add(groups.setdefault(label, MissGroup(label)), cause, tokens, prices[pk])
            _add(causes.setdefault(cause, MissGroup(cause)), cause, tokens, prices[pk])
    total = sum(group.tokens for group in groups.values())
    for group in (*groups.values(), *causes.values()):
        group.share = group.tokens / total if total else 0.0
    tags = sorted({tag for *_, needs in listed for tag in needs.tags})
    return MissGroups(key, by, _by_tokens(groups), _by_tokens(causes), tags, fault)


def groupings(tags: Iterable[str]) -> list[str]:
    return [*BY, *(TAG + tag for tag in tags)]


def _count(
    prometheus: Asker, range_s: int, now: float
) -> tuple[Mapping[str, Mapping[str, int]], Message | None]:
    """Return the tokens by endpoint and cause."""
    (questions,) = evidence.plan_recent_totals(prometheus, Scope(), [_QUERY], range_s, now)
    answer = prometheus.ask(questions)[_QUERY]
    fault = answer.fault or next(iter(answer.missing), None)
    counts: dict[str, dict[str, int]] = {}
    for series in answer.series:
        if series.latest and round(series.latest):
            mine = counts.setdefault(series.label("endpoint"), {})
            mine[series.label("cause")] = round(series.latest)
    return counts, make_fault_message(fault) if fault else None


def _prices(listed: Iterable[tuple[Any, Needs]]) -> Mapping[Any, _Priced]:
    listed = list(listed)
    slopes, catalogue = known(listed), occupied_machines()
    used = {slope.calibration.pk for slope in slopes.values()}
    samples = dict(Calibration.objects.filter(pk__in=used).values_list("pk", "samples"))
    prices = {}
    for pk, needs in listed:
        slope, hourly = slopes.get(pk), rate(needs, catalogue).usd_hour
        if slope is None:
            prices[pk] = _Priced(None, None, 0.0)
            continue
        usd = None if hourly is None else slope.slope * hourly / HOUR_S
        error = slope_error(samples.get(slope.calibration.pk), slope.slope) or 0.0
        prices[pk] = _Priced(slope.slope, usd, error)
    return prices


def _label(by: str, name: str, team: str, needs: Needs) -> str:
    if by.startswith(TAG):
        return needs.tags.get(by.removeprefix(TAG), "") or UNTAGGED
    return {"endpoint": name, "team": team or NO_TEAM, "model": needs.model}.get(by, needs.machine)


def _add(group: MissGroup, cause: str, tokens: int, price: _Priced) -> None:
    group.causes[cause] += tokens
    if price.seconds is None:
        group.uncalibrated += tokens
    else:
        group.seconds += tokens * price.seconds
    if price.usd is None:
        group.unpriced += tokens
    else:
        group.usd += tokens * price.usd
        group.usd_error += tokens * price.usd * price.error


def _by_tokens(groups: Mapping[str, MissGroup]) -> list[MissGroup]:
    return sorted(groups.values(), key=lambda one: (-one.tokens, one.name))
