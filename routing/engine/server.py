"""The process: listeners, the clock, configuration changes, and a graceful end.

Promises that stopping accepts nothing new, lets answers finish within their grace and then ends;
and that one coarse timer serves every deadline. Must not know HTTP details or policies.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from time import perf_counter

from routing.engine.admin import Admin
from routing.engine.admin_http import AdminConnection
from routing.engine.config import Address, Config, ConfigError
from routing.engine.front import ClientConnection
from routing.engine.health import Health
from routing.engine.logs import Log
from routing.engine.router import Router
from routing.engine.source import Source
from routing.engine.workers import Worker

TICK_S = 0.5
BACKLOG = 2048


class StartError(Exception):
    """The process cannot start; the message is for a person."""


def _port(server: asyncio.Server, wanted: Address) -> Address:
    return Address(wanted.host, server.sockets[0].getsockname()[1])


class Server:
    """One router process; `start`, then `run` until told to stop."""

    def __init__(self, config: Config, source: Source | None, log: Log) -> None:
        self.log = log
        self.router = Router(config, log)
        self._source = source
        self._health = Health(self._verdict, self.router.learn_models)
        self._admin = Admin(self.router)
        self._servers: list[asyncio.Server] = []
        self._stop = asyncio.Event()
        self._ticker: asyncio.TimerHandle | None = None
        self.listen = config.listen
        self.admin = config.admin

    async def start(self) -> None:
        """Open the ports and begin to ask the workers; raises StartError."""
        loop = asyncio.get_running_loop()
        config = self.router.config
        data = await self._open(config.listen, lambda: ClientConnection(self.router), BACKLOG)
        self.listen = _port(data, config.listen)
        if config.admin is not None:
            server = await self._open(config.admin, lambda: AdminConnection(self._admin), 128)
            self.admin = _port(server, config.admin)
        self._health.follow(list(self.router.table.workers.values()), config.health)
        self._ticker = loop.call_later(TICK_S, self._tick)
        self.log.event(
            "info",
            "listening",
            address=str(self.listen),
            admin=str(self.admin or ""),
            strategy=config.strategy,
            workers=len(config.workers),
            keys="open" if config.keys is None else len(config.keys),
        )

    async def _open(
        self, address: Address, factory: Callable[[], asyncio.Protocol], backlog: int
    ) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(factory, address.host, address.port, backlog=backlog)
        except OSError as error:
            raise StartError(
                f"cannot listen on {address}: {error.strerror or error}. "
                "Choose another address or stop what uses it."
            ) from None
        self._servers.append(server)
        return server

    def install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload, True)

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        """Serve until `stop`, then finish what is in flight."""
        await self._stop.wait()
        await self.close()

    async def close(self) -> None:
        router = self.router
        router.closing = True
        grace = router.config.limits.shutdown_grace_s
        self.log.event("info", "stopping", clients=len(router.clients), grace_s=grace)
        for server in self._servers[:1]:
            server.close()
        for client in list(router.clients):
            client.shut()
        until = perf_counter() + grace
        while router.clients and perf_counter() < until:
            await asyncio.sleep(0.02)
        cut = len(router.clients)
        for client in list(router.clients):
            client.transport.abort()
        await self._health.stop()
        for worker in list(router.table.workers.values()):
            worker.pool.close()
        for server in self._servers:
            server.close()
        if self._ticker is not None:
            self._ticker.cancel()
        await asyncio.sleep(0)  # aborted connections count their ends
        self.log.event("info", "stopped", cut=cut)

    def _verdict(self, worker: Worker, error: str, refused: bool) -> None:
        self.router.table.probed(worker, error, refused, self._health.config.fall)

    # -- the clock

    def _tick(self) -> None:
        now = perf_counter()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        for client in list(self.router.clients):
            client.tick(now)
        self.router.table.tick(now)
        for worker in self.router.table.workers.values():
            worker.pool.tick(now)
        self.reload(False)
        self.log.flush()

    def reload(self, force: bool) -> None:
        """Look for a changed configuration; a bad one changes nothing but what /config says."""
        if self._source is None:
            return
        found = self._source.poll(force)
        if found is None:
            return
        router = self.router
        if isinstance(found, ConfigError):
            router.config_error = str(found)
            router.metrics.reloads.child("refused").value += 1
            self.log.event(
                "error", "config_refused", field=found.field, error=str(found), kept="last good"
            )
            return
        router.reconfigure(found)
        router.metrics.reloads.child("ok").value += 1
        self._health.follow(list(router.table.workers.values()), found.health)
        self.log.event("info", "config_loaded", strategy=found.strategy, workers=len(found.workers))
