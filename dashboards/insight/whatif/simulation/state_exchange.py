"""Exchange of state between simulated routers, on the simulation clock.

The router's own outbox, messages and view, with the router's publishing interval; the store is a
fixed delay.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from dashboards.insight.whatif.simulation.router_model import RouterModel
from routing.engine.access.key_usage import KeyUse
from routing.engine.peers import messages
from routing.engine.peers.outbox import BATCH_INTERVAL_S, Outbox
from routing.engine.peers.view import PeerView

DELAY_S = 0.002  # publish, store, delivery, on a network
_KEY = b"bench"


class StateExchange:
    """Call `advance` before each event of the simulation, `touch` after it."""

    def __init__(self, routers: Sequence[RouterModel], delay_s: float = DELAY_S) -> None:
        self._delay_s = delay_s
        self._outboxes = [
            Outbox(f"{number:08x}", router.table) for number, router in enumerate(routers)
        ]
        names = [outbox.router_id for outbox in self._outboxes]
        self._views = [
            PeerView(router, name, KeyUse(name))
            for router, name in zip(routers, names, strict=True)
        ]
        self._last = [-1.0] * len(routers)
        self._due: dict[int, float] = {}  # router: time of its next batch
        self._wire: list[tuple[float, int, int, bytes]] = []
        self._sent = 0
        self.bytes = 0
        for router, outbox in zip(routers, self._outboxes, strict=True):
            router.outbox = outbox

    def touch(self, number: int, now: float) -> None:
        if number not in self._due:
            self._due[number] = max(now, self._last[number] + BATCH_INTERVAL_S)

    def advance(self, now: float) -> None:
        """Publish and deliver everything up to `now`."""
        while True:
            publish = min(self._due.items(), key=lambda item: item[1], default=(0, float("inf")))
            arrival = self._wire[0][0] if self._wire else float("inf")
            if min(publish[1], arrival) > now:
                return
            if arrival <= publish[1]:
                arrived_s, _, sender, data = heapq.heappop(self._wire)
                batch = messages.decode(data, _KEY)
                for number, view in enumerate(self._views):
                    if number != sender:
                        view.apply(batch, arrived_s)
            else:
                self._publish(*publish)

    def _publish(self, number: int, at: float) -> None:
        del self._due[number]
        self._last[number] = at
        batch = self._outboxes[number].batch()
        if batch is not None:
            data = messages.encode(batch, _KEY)
            self._sent += 1
            self.bytes += len(data)
            heapq.heappush(self._wire, (at + self._delay_s, self._sent, number, data))
            if self._outboxes[number].held:
                self.touch(number, at)
