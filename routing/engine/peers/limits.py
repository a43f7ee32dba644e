"""Rates shared by routers: each charges its own bucket and settles with the store.

A request never waits for the store. Between two settlements a router admits by the level it last
read, so that together they exceed a rate by at most what they admit within a settlement interval;
the excess is charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from routing.engine.peers.connection import StoreError

if TYPE_CHECKING:
    from routing.engine.access.admission import RequestAdmission
    from routing.engine.access.callers import Bucket
    from routing.engine.peers.connection import StoreConnection

MAX_BUCKETS = 256  # in a settlement
MAX_USED_S = 86_400  # until a bucket is full again; what is longer is no level
# KEYS: buckets, each the time at which it is full again. ARGV: seconds to add. Anything else that
# somebody has stored under a key counts as a full bucket.
_SETTLE = f"""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local used = {{}}
for index, key in ipairs(KEYS) do
  local stored = redis.pcall('GET', key)
  local full = type(stored) == 'string' and tonumber(stored) or now
  if not (full >= now and full <= now + {MAX_USED_S}) then full = now end
  local cost = tonumber(ARGV[index])
  if cost ~= 0 then
    full = math.max(full + cost, now)
    local kept = string.format('%d', (full - now) * 1000 + 1000)
    redis.call('SET', key, string.format('%.6f', full), 'PX', kept)
  end
  used[index] = string.format('%.6f', full - now)
end
return used
"""


def _levels(reply: Any, buckets: int) -> list[float]:
    """Return the levels of buckets in seconds. Raise StoreError for anything else."""
    try:
        levels = [float(used) for used in reply] if type(reply) is list else []
    except (TypeError, ValueError):
        levels = []
    if len(levels) != buckets or not all(0.0 <= used <= 2 * MAX_USED_S for used in levels):
        raise StoreError("implausible levels of rate limits")
    return levels


class SharedLimits:
    def __init__(self, place: str, admission: RequestAdmission, routers: Callable[[], int]) -> None:
        self._routers = routers
        self._place = f"{{{place}}}:limit:"  # one hash slot in a cluster
        self._admission = admission
        self._wake = asyncio.Event()
        self._all = False
        self._next = 0

    def touch(self) -> bool:
        """Settle soon if a bucket was charged; return True if one is nearly used up."""
        charged = [bucket for _, bucket in self._admission.buckets() if bucket.unsent]
        if charged:
            self._wake.set()
        return any(bucket.tight for bucket in charged)

    def refresh(self) -> None:
        """Read all levels soon: an idle router learns what the others used."""
        self._all = True
        self._wake.set()

    async def run(self, store: StoreConnection) -> None:
        name = await store.command("SCRIPT", "LOAD", _SETTLE)
        while True:
            await self._wake.wait()
            self._wake.clear()
            part = self._part()
            if not part:
                continue
            costs = [bucket.unsent_s for _, bucket in part]
            keys = [self._place + bucket_name for bucket_name, _ in part]
            sent_at = perf_counter()
            result = await store.command("EVALSHA", name, len(keys), *keys, *costs)
            for (_, bucket), used, cost in zip(
                part, _levels(result, len(part)), costs, strict=True
            ):
                bucket.settle(used, cost, sent_at, self._routers())

    def _part(self) -> list[tuple[str, Bucket]]:
        """Return charged buckets; for a refresh also others, in turn."""
        buckets = list(self._admission.buckets())
        charged = [item for item in buckets if item[1].unsent][:MAX_BUCKETS]
        if self._all:
            self._all = False
            room = MAX_BUCKETS - len(charged)
            start = self._next if self._next < len(buckets) else 0
            rest = buckets[start : start + room]
            self._next = start + room
            charged += [item for item in rest if not item[1].unsent]
        return charged
