"""A router's link to the state store: publish, subscribe, reconnect.

A send never waits; frames beyond what the store takes are dropped, since the next batch states the
load again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING

from routing.engine.peers.connection import TIMEOUT_S, OnMessage, StoreConnection, StoreError
from routing.engine.peers.failure import StoreFailure, describe_failure

if TYPE_CHECKING:
    from routing.engine.config.schema import StateStoreConfig

FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.3
LOST_S = 10.0  # without a reply, as when the store's machine is gone
_CHECK_S = 0.25
_CONGESTED_BYTES = 1024 * 1024
_MAX_BYTES = 4 * 1024 * 1024


class StoreLink:
    """Link to the state store, reconnected for ever. `on_message` gets every message; `changed`
    each failed attempt, None once connected.

    `serve` uses the connection for commands other than publish.
    """

    def __init__(
        self,
        store: StateStoreConfig,
        channels: tuple[str, ...],
        on_message: OnMessage,
        changed: Callable[[StoreFailure | None], None],
        serve: Callable[[StoreConnection], Awaitable[None]],
    ) -> None:
        self.up = False
        self._store = store
        self._channels = channels
        self._on_message = on_message
        self._changed = changed
        self._serve = serve
        self._connection: StoreConnection | None = None

    @property
    def congested(self) -> bool:
        connection = self._connection
        return connection is not None and connection.buffered > _CONGESTED_BYTES

    def send(self, channel: str, frame: bytes) -> None:
        to = self._connection
        if to is not None and not to.lost.done() and to.buffered < _MAX_BYTES:
            to.post("PUBLISH", channel, frame)

    async def drained(self) -> None:
        """Wait until there is room for further frames or the store is away."""
        while self.up and self.congested:
            await asyncio.sleep(0.01)

    async def written(self) -> None:
        while self.up and self._connection is not None and self._connection.waiting_s:
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        delay = FIRST_RETRY_S
        while True:
            error: Exception = StoreError("closed")
            try:
                await self._connected()
            except Exception as outcome:  # noqa: BLE001 - whatever it is, the next try may succeed
                error = outcome
            if self.up:
                delay = FIRST_RETRY_S
            self.up = False
            self._changed(describe_failure(error, self._store.password))
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_S)

    async def _connected(self) -> None:
        connection = await StoreConnection.to(self._store, self._on_message)
        serving: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for channel in self._channels:
                    await connection.command("SUBSCRIBE", channel)
            connection.received_at = perf_counter()
            self._connection = connection
            self.up = True
            self._changed(None)
            serving = asyncio.ensure_future(self._serve(connection))
            await self._watch(connection, serving)
        finally:
            self._connection = None
            if serving is not None:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
            connection.close()

    async def _watch(self, connection: StoreConnection, serving: asyncio.Task[None]) -> None:
        """Return or raise when the connection is of no use any more.

        While replies are slow it is kept, and the router goes on alone: a store with much to do
        would have more with every new connection.
        """
        error = TimeoutError("no reply from the store")
        ends: set[asyncio.Future[None]] = {connection.lost, serving}
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
            silent_s = perf_counter() - connection.received_at
            silent_s = max(connection.waiting_s, silent_s)
            if silent_s > LOST_S:
                raise error
            if self.up != (silent_s <= TIMEOUT_S):
                self.up = not self.up
                self._changed(None if self.up else describe_failure(error))
