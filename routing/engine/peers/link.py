"""Connection of a router to the state store: publish, subscribe, reconnect.

A send never waits; frames that find a full queue are dropped, since the next batch states the load
again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from routing.engine.config.schema import StateStoreConfig

TIMEOUT_S = 1.0
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 0.5
MAX_QUEUED = 64
_CONGESTED = 8


class StoreLink:
    """`heard` gets every message; `changed` the reason when the store is away, "" when it is back.

    `serve` runs beside the connection, for commands other than publish.
    """

    def __init__(
        self,
        store: StateStoreConfig,
        channels: tuple[str, ...],
        heard: Callable[[bytes, bytes], None],
        changed: Callable[[str], None],
        serve: Callable[[Redis], Awaitable[None]],
    ) -> None:
        self.up = False
        self.unsent = 0
        self._store = store
        self._channels = channels
        self._heard = heard
        self._changed = changed
        self._serve = serve
        self._frames: deque[tuple[str, bytes]] = deque()
        self._wake = asyncio.Event()

    @property
    def congested(self) -> bool:
        return len(self._frames) >= _CONGESTED

    def send(self, channel: str, frame: bytes) -> bool:
        if not self.up or len(self._frames) >= MAX_QUEUED:
            self.unsent += 1
            return False
        self._frames.append((channel, frame))
        self._wake.set()
        return True

    async def drained(self) -> None:
        """Wait until there is room for further frames or the store is away."""
        while self.up and self.congested:
            await asyncio.sleep(0.01)

    async def written(self) -> None:
        while self.up and self._frames:
            await asyncio.sleep(0.005)

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        delay = FIRST_RETRY_S
        while True:
            try:
                await self._connected()
                error = "closed"
            except asyncio.CancelledError:
                raise
            except Exception as found:  # noqa: BLE001 - the client library raises many kinds
                error = f"{type(found).__name__}: {found}"[:200]
            if self.up:
                delay = FIRST_RETRY_S
            self.up = False
            self._changed(error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_S)

    async def _connected(self) -> None:
        client, reader = self._client(), self._client()
        pubsub = reader.pubsub()
        tasks: list[asyncio.Task[None]] = []
        try:
            await client.ping()
            await pubsub.subscribe(*self._channels)
            self._frames.clear()
            self.up = True
            self._changed("")
            tasks = [
                asyncio.create_task(self._read(pubsub)),
                asyncio.create_task(self._write(client)),
                asyncio.ensure_future(self._serve(client)),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(Exception):
                await pubsub.aclose()  # type: ignore[no-untyped-call]
            for one in (client, reader):
                with contextlib.suppress(Exception):
                    await one.aclose()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _client(self) -> Redis:
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        store = self._store
        secure: dict[str, Any] = {"ssl": True, "ssl_ca_certs": store.ca and str(store.ca)}
        return Redis(
            host=store.host,
            port=store.port,
            db=store.database,
            username=store.username or None,
            password=store.password or None,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            client_name="emberline-router",
            max_connections=4,
            **(secure if store.tls else {}),
        )

    async def _read(self, pubsub: Any) -> None:
        while True:
            # The router's own heartbeats come back, so that silence means a lost subscription.
            message = await pubsub.get_message(timeout=TIMEOUT_S)
            if message is None:
                raise TimeoutError("no message from the store")
            if message["type"] == "message":
                self._heard(message["channel"], message["data"])

    async def _write(self, client: Redis) -> None:
        frames = self._frames
        while True:
            await self._wake.wait()
            self._wake.clear()
            while frames:
                channel, frame = frames.popleft()
                await client.publish(channel, frame)
