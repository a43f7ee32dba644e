"""Drives a workload through a real router: the simulation's clock stands still while the router
has something to do.

Promises that neither this machine's speed nor a router's own latency is in the figures: the next
event of the simulation (a request is due, a worker's step ends) happens when everything the last
one brought has gone through the router, as it would have on workers, which are slow beside any
router. The clock runs no faster than `speed` times real time, so that what a router does by its
own clock (checks, evictions, events it reads) is not left behind.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from bench.fleet import prompts
from bench.fleet.client import Client
from bench.fleet.events import Publishers
from bench.fleet.serve import ServedFleet
from bench.fleet.worker import NEVER

_PATIENCE_S = 2.0  # real; a router which holds a request for longer has its reasons
_HEARD_S = 0.001  # real; for an event to be read: nothing tells that it was


class _Way:
    """What is on its way through the router: requests, first tokens, ends."""

    def __init__(self) -> None:
        self.held = 0  # times it was not waited for to the end
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
        self._settled.clear()  # nothing is lost by it: `_open` is what counts
        if self._open:
            try:
                await asyncio.wait_for(self._settled.wait(), _PATIENCE_S)
            except TimeoutError:
                self.held += len(self._open)
                self._open.clear()


class Lockstep:
    def __init__(
        self, fleet: ServedFleet, client: Client, speed: float, publishers: Publishers | None
    ) -> None:
        self._fleet = fleet
        self._client = client
        self._speed = speed
        self._publishers = publishers
        self._way = way = _Way()
        self._real = perf_counter()
        fleet.on_arrival = lambda number: way.ends("request", number)
        client.on_first = lambda number: way.ends("first", number)
        client.on_done = lambda number: way.ends("done", number)
        client.on_failed = way.failed

    @property
    def held(self) -> int:
        """How often the router kept something longer than anybody would wait for."""
        return self._way.held

    async def run(self, warm: int) -> list[float]:
        """Until the last request has come to a worker, or has not; then the model goes on alone.

        Returns how long each worker was busy after the first `warm` requests were sent.
        """
        fleet = self._fleet
        before: list[float] = []
        for number, ask in enumerate(fleet.asks):
            if number == warm:
                before = [worker.busy_s for worker in fleet.workers]
            await self._advance(ask.at)
            await self._turn(ask.at)
            self._way.begins("request", number)
            await self._client.send(number, prompts.wire(number, ask))
            await self._way.settled()
        busy = [worker.busy_s - was for worker, was in zip(fleet.workers, before, strict=True)]
        self._client.close()
        for worker in fleet.workers:
            while worker.next_at != NEVER:
                worker.advance(worker.next_at)
        return busy

    async def _turn(self, at: float) -> None:
        """The clock comes to `at`, not earlier than real time allows."""
        self._real += (at - self._fleet.now) / self._speed
        self._fleet.now = at
        early = self._real - perf_counter()
        if early > 0.002:
            await asyncio.sleep(early)
        else:
            self._real = max(self._real, perf_counter() - 0.05)

    async def _advance(self, until: float) -> None:
        """All steps which end by then, in order."""
        workers = self._fleet.workers
        while True:
            worker = min(workers, key=lambda worker: worker.next_at)
            if worker.next_at > until:
                return
            await self._turn(worker.next_at)
            first, done = self._fleet.advance(worker)
            # Before anything else is waited for: what was written may come through at any moment.
            for job in first:
                self._way.begins("first", job.tag)
            for job in done:
                self._way.begins("done", job.tag)
            if self._publishers is not None and self._publishers.publish():
                await asyncio.sleep(_HEARD_S)
            await self._way.settled()
