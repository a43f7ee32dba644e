"""Costs of a month split among inference keys, and costs of cache tiers split among teams.

Keys share the busy time of each endpoint and day by computed tokens. Idle time, and busy days
without key usage from routers, are shown separately, not distributed. A generated token counts as
`weight` uncached prompt tokens. vLLM does not report the time of each, so the weight is a
convention, shown with every number.

Teams share a tier by use, hour by hour: tier hours times the endpoint's share of the bytes read.
The shares of a tier add up to 1; teams that the viewer may not see are one unnamed line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from console.accounts.permissions import Somebody
from dashboards.costs.ledger import sums
from dashboards.costs.ledger.months import Month
from dashboards.costs.ledger.sums import CostLine, TierLine
from endpoints.keys import selectors, storage, usage
from endpoints.keys.usage import DayUse, KeyUse

WEIGHT = 4.0
"""Weight of a generated token, as in common price lists of hosted models."""
_NAMED = {"": "without a key", storage.CONSOLE: "this console"}
_EndpointDay = tuple[str, date]
OTHERS = "other teams"


@dataclass(frozen=True, slots=True)
class KeyLine:
    """Usage of one key in a month, at all its endpoints. `usd`: of days with a price; None without
    such a day.
    """

    key_id: str
    name: str
    endpoints: frozenset[str]
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """USD of a month; None: no price. `unreported_usd`: busy time on days without key usage."""

    lines: Sequence[KeyLine]
    weight: float
    busy_usd: float | None
    idle_usd: float | None
    tier_usd: float | None
    unreported_usd: float | None


def allocate(
    month: Month, viewer: Somebody, lines: Sequence[CostLine], weight: float = WEIGHT
) -> Allocation:
    """Allocate `lines`, the month's lines visible to the viewer."""
    whole = sums.total(lines)
    uses = usage.usage_by_day(month.begins, month.ends, {line.name for line in lines})
    used = {use.endpoint for use in uses}
    days = sums.days(month.first, month.after, viewer).filter(endpoint_name__in=used)
    busy = {(name, day): usd for name, day, usd in sums.busy_by_day(days)} if used else {}
    weights: dict[_EndpointDay, float] = {}
    for use in uses:
        place = use.endpoint, use.day
        weights[place] = weights.get(place, 0.0) + weighted_tokens(use.used, weight)
    key_lines: dict[str, KeyLine] = {}
    allocated = 0.0
    for use in uses:
        place = use.endpoint, use.day
        weighed = weights[place]
        usd = busy.get(place)
        if usd is not None:
            usd *= weighted_tokens(use.used, weight) / weighed if weighed else 0.0
            allocated += usd
        key_lines[use.key_id] = _more(key_lines.get(use.key_id), use, usd)
    idle, tier = whole.known["idle_usd"], whole.known["tier_usd"]
    busy_usd = None if idle is None else whole.busy_usd
    unreported = None if busy_usd is None else max(0.0, busy_usd - allocated)
    return Allocation(_named(key_lines), weight, busy_usd, idle, tier, unreported)


def weighted_tokens(used: KeyUse, weight: float) -> float:
    """Return computed prompt tokens plus weighted generated tokens."""
    return max(0, used.prompt_tokens - used.cached_tokens) + weight * used.completion_tokens


def _more(line: KeyLine | None, use: DayUse, usd: float | None) -> KeyLine:
    before = line or KeyLine(use.key_id, "", frozenset())
    return replace(
        before,
        endpoints=before.endpoints | {use.endpoint},
        requests=before.requests + use.used.requests,
        prompt_tokens=before.prompt_tokens + use.used.prompt_tokens,
        cached_tokens=before.cached_tokens + use.used.cached_tokens,
        completion_tokens=before.completion_tokens + use.used.completion_tokens,
        usd=before.usd if usd is None else (before.usd or 0.0) + usd,
    )


def _named(found: Mapping[str, KeyLine]) -> list[KeyLine]:
    names = selectors.names_by_id(found) | _NAMED
    lines = [
        replace(line, name=names.get(key, f"deleted key {key[:8]}")) for key, line in found.items()
    ]
    return sorted(lines, key=lambda line: (-(line.usd or 0.0), line.name))


@dataclass(frozen=True, slots=True)
class TierPoolShare:
    """Part of a team. `share`: of the tier's hours; `unpriced_h`: hours without a price; `usd`: of
    the others, None if there are none.
    """

    team: str
    share: float
    hours: float
    usd: float | None
    unpriced_h: float


@dataclass(frozen=True, slots=True)
class TierPool:
    """Cache tier with its users, the largest first and the unnamed line last."""

    name: str
    parts: Sequence[TierPoolShare]

    @property
    def hours(self) -> float:
        return sum(part.hours for part in self.parts)


def pools(month: Month, viewer: Somebody) -> list[TierPool]:
    """Return the tiers used by the viewer's endpoints."""
    mine = sums.by_tier(sums.days(month.first, month.after, viewer))
    every = {line.tier: TierLine(line.tier, "") for line in mine}
    for line in sums.by_tier(sums.days(month.first, month.after)):
        if line.tier in every:
            every[line.tier] = every[line.tier].plus(line)
    return [
        _pool(whole, [line for line in mine if line.tier == name]) for name, whole in every.items()
    ]


def _pool(whole: TierLine, mine: Sequence[TierLine]) -> TierPool:
    parts = [_part(tier_line.team or sums.NO_TEAM, tier_line, whole) for tier_line in mine]
    parts.sort(key=lambda part: (-part.share, part.team))
    rest = whole
    for tier_line in mine:
        rest = rest.minus(tier_line)
    if rest.hours > whole.hours * 1e-9:
        parts.append(_part(OTHERS, rest, whole))
    return TierPool(whole.tier, parts)


def _part(team: str, one: TierLine, whole: TierLine) -> TierPoolShare:
    share = one.hours / whole.hours if whole.hours else 0.0
    usd = one.usd if one.unpriced_h < one.hours else None
    return TierPoolShare(team, share, one.hours, usd, one.unpriced_h)
