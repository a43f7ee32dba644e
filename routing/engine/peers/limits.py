"""Rates shared by routers: each charges its own bucket and settles with the store.

A request never waits for the store. Between two settlements a router admits by the level it last
read, so that together they exceed a rate by at most what they admit within a settlement interval;
the excess is charged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routing.engine.access.admission import RequestAdmission
    from routing.engine.access.callers import Bucket
    from routing.engine.peers.connection import StoreConnection

MAX_BUCKETS = 256  # in a settlement
# KEYS: buckets, each the time at which it is full again. ARGV: seconds to add.
_SETTLE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local used = {}
for index, key in ipairs(KEYS) do
  local full = math.max(tonumber(redis.call('GET', key) or '0'), now)
  local cost = tonumber(ARGV[index])
  if cost ~= 0 then
    full = math.max(full + cost, now)
    local kept = string.format('%d', math.min((full - now) * 1000 + 1000, 1e12))
    redis.call('SET', key, string.format('%.6f', full), 'PX', kept)
  end
  used[index] = string.format('%.6f', full - now)
end
return used
"""


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
            found = await store.command("EVALSHA", name, len(keys), *keys, *costs)
            for (_, bucket), used, cost in zip(part, found, costs, strict=True):
                bucket.settle(float(used), cost, sent_at, self._routers())

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
