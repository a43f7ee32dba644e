"""A router's link to the state store: publish, subscribe, reconnect.

A send never waits; frames beyond what the store takes are dropped, since the next batch states the
load again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING

from routing.engine.peers.connection import TIMEOUT_S, Heard, StoreConnection, StoreError

if TYPE_CHECKING:
    from routing.engine.config.schema import StateStoreConfig

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.3
_CHECK_S = 0.25
_CONGESTED_BYTES = 1024 * 1024
_MAX_BYTES = 4 * 1024 * 1024


class StoreLink:
    """`heard` gets every message; `changed` the reason when the store is away, "" when it is back.

    `serve` runs beside the connection, for commands other than publish.
    """

    def __init__(
        self,
        store: StateStoreConfig,
        channels: tuple[str, ...],
        heard: Heard,
        changed: Callable[[str], None],
        serve: Callable[[StoreConnection], Awaitable[None]],
    ) -> None:
        self.up = False
        self._store = store
        self._channels = channels
        self._heard = heard
        self._changed = changed
        self._serve = serve
        self._publisher: StoreConnection | None = None

    @property
    def congested(self) -> bool:
        publisher = self._publisher
        return publisher is not None and publisher.buffered > _CONGESTED_BYTES

    def send(self, channel: str, frame: bytes) -> None:
        publisher = self._publisher
        if publisher is not None and not publisher.lost.done() and publisher.buffered < _MAX_BYTES:
            publisher.post("PUBLISH", channel, frame)

    async def drained(self) -> None:
        """Wait until there is room for further frames or the store is away."""
        while self.up and self.congested:
            await asyncio.sleep(0.01)

    async def written(self) -> None:
        while self.up and self._publisher is not None and self._publisher.waiting_s:
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        delay = FIRST_RETRY_S
        while True:
            error = "closed"
            try:
                await self._connected()
            except (OSError, StoreError, TimeoutError) as found:
                error = f"{type(found).__name__}: {found}"[:200]
            if self.up:
                delay = FIRST_RETRY_S
            self.up = False
            self._changed(error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_S)

    async def _connected(self) -> None:
        publisher = await StoreConnection.to(self._store)
        subscriber: StoreConnection | None = None
        serving: asyncio.Task[None] | None = None
        try:
            subscriber = await StoreConnection.to(self._store, self._heard)
            async with asyncio.timeout(TIMEOUT_S):
                for channel in self._channels:
                    await subscriber.command("SUBSCRIBE", channel)
            subscriber.heard_at = perf_counter()
            self._publisher = publisher
            self.up = True
            self._changed("")
            serving = asyncio.ensure_future(self._serve(publisher))
            await self._watch(publisher, subscriber, serving)
        finally:
            self._publisher = None
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            for connection in (publisher, subscriber):
                if connection is not None:
                    connection.close()

    @staticmethod
    async def _watch(
        publisher: StoreConnection, subscriber: StoreConnection, serving: asyncio.Task[None]
    ) -> None:
        """Return or raise when the connection is of no use any more."""
        ends: set[asyncio.Future[None]] = {publisher.lost, subscriber.lost, serving}
        while True:
            began = perf_counter()
            done, _ = await asyncio.wait(
                ends, timeout=_CHECK_S, return_when=asyncio.FIRST_COMPLETED
            )
            for end in done:
                return end.result()
            if perf_counter() - began > 2 * _CHECK_S:
                continue  # this process was stopped: what came meanwhile is not read yet
            # The router's own heartbeats come back: silence means a lost subscription.
            silent_s = perf_counter() - subscriber.heard_at
            if max(publisher.waiting_s, silent_s) > TIMEOUT_S:
                raise TimeoutError("no reply from the store")
