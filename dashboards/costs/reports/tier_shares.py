"""Monthly cost of each cache tier and its split among teams.

The shares of a tier add up to 1; teams that the viewer may not see are one unnamed line. Shares are
by use, hour by hour: tier hours times the endpoint's share of the bytes read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from console.accounts.permissions import Somebody
from dashboards.costs.ledger import sums
from dashboards.costs.ledger.months import Month
from dashboards.costs.ledger.sums import TierLine

OTHERS = "other teams"


@dataclass(frozen=True, slots=True)
class TierPoolShare:
    """Part of a team. `share`: of the tier's hours; `unpriced_h`: hours without a price."""

    team: str
    share: float
    hours: float
    usd: float
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
    every = {one.tier: TierLine(one.tier, "") for one in mine}
    for one in sums.by_tier(sums.days(month.first, month.after)):
        if one.tier in every:
            every[one.tier] = every[one.tier].plus(one)
    return [
        _pool(whole, [one for one in mine if one.tier == name]) for name, whole in every.items()
    ]


def _pool(whole: TierLine, mine: Sequence[TierLine]) -> TierPool:
    parts = [_part(one.team or sums.NO_TEAM, one, whole) for one in mine]
    parts.sort(key=lambda part: (-part.share, part.team))
    rest = whole
    for one in mine:
        rest = rest.minus(one)
    if rest.hours > whole.hours * 1e-9:
        parts.append(_part(OTHERS, rest, whole))
    return TierPool(whole.tier, parts)


def _part(team: str, one: TierLine, whole: TierLine) -> TierPoolShare:
    share = one.hours / whole.hours if whole.hours else 0.0
    return TierPoolShare(team, share, one.hours, one.usd, one.unpriced_h)
