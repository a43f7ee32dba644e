"""What each cache tier cost in a month, and what part of it fell to whose endpoints.

Promises that the parts of a tier are whole together, those of teams the viewer may not see as one
line without a name. A part is that of the use, hour by hour: what was kept of each hour are its
hours times the endpoint's part of what was read.
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
    """Of a team. `share` of the tier's hours; dollars are of what is priced, `unpriced_h` are hours
    which are not."""

    team: str
    share: float
    hours: float
    usd: float
    unpriced_h: float


@dataclass(frozen=True, slots=True)
class TierPool:
    """A cache tier; who used most of it stands first, who may not be named last."""

    name: str
    parts: Sequence[TierPoolShare]

    @property
    def hours(self) -> float:
        return sum(part.hours for part in self.parts)


def pools(month: Month, viewer: Somebody) -> list[TierPool]:
    """Those which the viewer's endpoints use."""
    mine = sums.by_tier(sums.days(month.first, month.after, viewer))
    every = {one.tier: TierLine(one.tier, "") for one in mine}
    for one in sums.by_tier(sums.days(month.first, month.after)):
        if one.tier in every:
            every[one.tier] = every[one.tier].plus(one)
    return [
        _pool(whole, [one for one in mine if one.tier == name]) for name, whole in every.items()
    ]


def _pool(whole: TierLine, mine: Sequence[TierLine]) -> TierPool:
    parts = [_part(one.team or sums.NOBODYS, one, whole) for one in mine]
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
