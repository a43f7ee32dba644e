"""Drive a workload through a real router while the simulation clock waits for the router.

Neither this machine's speed nor the router's latency affects the results: the next simulation event
(request due, worker step ends) happens once the router has processed everything before, as real
workers are slow compared to any router. With the ports of our routers it also waits for their KV
events and for what they exchange. The clock runs at most at `speed` times real time, so that the
router's own timers (checks, evictions) keep up.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.fleet import prompts
from bench.fleet.client import Client
from bench.fleet.events import Publishers
from bench.fleet.router_states import RouterStates
from bench.fleet.serve import ServedFleet
from dashboards.insight.whatif.simulation.arrivals import Arrivals
from dashboards.insight.whatif.simulation.state_exchange import DELAY_S
from dashboards.insight.whatif.simulation.worker import NEVER
from routing.engine.peers.outbox import BATCH_INTERVAL_S

_PATIENCE_S = 10.0  # real time; the router may hold a request longer
_HEARD_S = 0.001  # real time to read an event, of routers that do not state what they have read


class _Way:
    """Messages in transit through the router: requests, first tokens, ends."""

    def __init__(self) -> None:
        self.held = 0  # number of timeouts
        self._open: set[tuple[str, object]] = set()
        self._settled = asyncio.Event()

    def begins(self, what: str, number: object) -> None:
        self._open.add((what, number))

    def ends(self, what: str, number: object) -> None:
        self._open.discard((what, number))
        if not self._open:
            self._settled.set()

    def failed(self, number: int) -> None:
        for what in ("request", "first", "done"):
            self.ends(what, number)

    async def settled(self) -> None:
        self._settled.clear()  # safe: `_open` is authoritative
        if self._open:
            try:
                await asyncio.wait_for(self._settled.wait(), _PATIENCE_S)
            except TimeoutError:
                self.held += len(self._open)
                self._open.clear()


class Lockstep:
    def __init__(
        self,
        fleet: ServedFleet,
        client: Client,
        speed: float,
        publishers: Publishers | None,
        routers: RouterStates | None = None,
    ) -> None:
        """`routers`: ours, if they read events or exchange state."""
        self._routers = routers
        self._changed_at = NEVER  # simulation time of the first change not exchanged
        self._fleet = fleet
        self._client = client
        self._speed = speed
        self._publishers = publishers
        self._way = way = _Way()
        self._arrivals = Arrivals(fleet.asks)
        self._real = perf_counter()
        self.order: list[int] = []  # numbers of the requests sent: closed loops reorder them
        fleet.on_arrival = lambda number: way.ends("request", number)
        client.on_first = lambda number: way.ends("first", number)
        client.on_done = lambda number: way.ends("done", number)
        client.on_failed = self._failed

    @property
    def held(self) -> int:
        """Return how often waiting for the router timed out."""
        return self._way.held

    async def run(self, warm: int) -> list[float]:
        """Run until the last request has reached a worker or failed; the model then finishes alone.

        Return the busy time of each worker after the first `warm` requests were sent.
        """
        fleet = self._fleet
        before: list[float] = []
        for sent in range(len(fleet.asks)):
            if sent == warm:
                before = [worker.busy_s for worker in fleet.workers]
            await self._advance()
            await self._apply_changes(self._arrivals.next_at)
            at, number = self._arrivals.take()
            self.order.append(number)
            await self._turn(at)
            self._changed_at = min(self._changed_at, at)
            self._way.begins("request", number)
            await self._client.send(number, prompts.wire(number, fleet.asks[number]))
            await self._way.settled()
        busy = [worker.busy_s - was for worker, was in zip(fleet.workers, before, strict=True)]
        self._client.close()
        for worker in fleet.workers:
            while worker.next_at != NEVER:
                worker.advance(worker.next_at)
        return busy

    async def _apply_changes(self, at: float) -> None:
        """Let the routers apply what happened before the event at `at`: KV events before each
        request, exchanged state before changes that are published too late for the next request.
        """
        routers, next_at = self._routers, self._arrivals.next_at
        if routers is None:
            return
        # Busy routers publish at multiples of the interval.
        published_at = (next_at - DELAY_S) // BATCH_INTERVAL_S * BATCH_INTERVAL_S
        exchanges = routers.several and self._changed_at <= published_at < at
        if self._publishers is not None and (exchanges or at == next_at):
            await routers.read_events(self._publishers.last)
        if exchanges:
            await routers.agree()
            self._changed_at = NEVER

    async def _turn(self, at: float) -> None:
        """Advance the clock to `at`, not earlier than real time allows."""
        self._real += (at - self._fleet.now) / self._speed
        self._fleet.now = at
        early = self._real - perf_counter()
        if early > 0.002:
            await asyncio.sleep(early)
        else:
            self._real = max(self._real, perf_counter() - 0.05)

    def _failed(self, number: int) -> None:
        self._way.failed(number)
        self._arrivals.ended(number, self._fleet.now)

    async def _advance(self) -> None:
        """End all steps before the next arrival, in order."""
        workers = self._fleet.workers
        while True:
            worker = min(workers, key=lambda worker: worker.next_at)
            if worker.next_at > self._arrivals.next_at or worker.next_at == NEVER:
                return
            await self._apply_changes(worker.next_at)
            await self._turn(worker.next_at)
            first, done = self._fleet.advance(worker)
            self._changed_at = min(self._changed_at, self._fleet.now)
            # Before waiting for anything else: written data may arrive at any time.
            for job in first:
                self._way.begins("first", job.tag)
            for job in done:
                self._way.begins("done", job.tag)
                self._arrivals.ended(job.tag, self._fleet.now)
            published = self._publishers is not None and self._publishers.publish()
            if published and self._routers is None:
                await asyncio.sleep(_HEARD_S)
            await self._way.settled()
