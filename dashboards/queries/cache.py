"""What cache tiers say. Pure."""

from __future__ import annotations

from dashboards.queries.names import L2_CAPACITY, L2_HITS, L2_LOOKUPS, L2_USED
from dashboards.queries.shape import Scope, Times, named, rate_by


@named("l2_hit_share")
def l2_hit_share(_scope: Scope, times: Times) -> str:
    hits = rate_by("pool", L2_HITS, "", times)
    return f"{hits} / ({rate_by('pool', L2_LOOKUPS, '', times)} > 0)"


@named("l2_fill")
def l2_fill(_scope: Scope, _times: Times) -> str:
    return f"sum by (pool) ({L2_USED}) / (sum by (pool) ({L2_CAPACITY}) > 0)"
