"""Router process: listeners, timer, configuration reload, graceful shutdown.

Shutdown stops accepting, finishes in-flight requests within the grace period and exits. One coarse
timer serves all deadlines.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import Callable
from time import perf_counter

from routing.engine.admin import AdminHandler
from routing.engine.admin_connection import AdminConnection
from routing.engine.client_connection import ClientConnection
from routing.engine.config import Config, ConfigError, TlsConfig, WorkerConfig
from routing.engine.config.source import ConfigSource
from routing.engine.config.tls import server_context
from routing.engine.discovery.finders import Discovery
from routing.engine.fleet.health import HealthChecker
from routing.engine.fleet.progress import ProgressWatch
from routing.engine.fleet.workers import Worker
from routing.engine.http.listeners import Listener, StartError
from routing.engine.kvaware.metrics import KvMetrics
from routing.engine.kvaware.service import KvAwareService
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import is_compiled
from routing.engine.peers.service import PeerExchange
from routing.engine.request_path import RequestPath
from routing.engine.router import Router

TICK_S = 0.5
BACKLOG = 2048
# Of 20 ms, for the request of a connection that was accepted while the listeners closed.
FIRST_REQUEST_ROUNDS = 50
LAST_WORDS_ROUNDS = 25  # of 20 ms, for the errors of requests that are cut


__all__ = ["RouterServer", "StartError"]


class RouterServer:
    def __init__(self, config: Config, source: ConfigSource | None, log: Log) -> None:
        self.log = log
        self.router = Router(config, log)
        self.path = RequestPath(self.router)
        self._source = source
        progress = ProgressWatch(self.router.engine_stuck, self.router.table.engine_moved)
        self._health = HealthChecker(
            self._verdict,
            self.router.learn_models,
            self.router.roster.learn_vitals,
            progress,
            self.router.descriptors_exhausted,
        )
        self.router.adapters.learn_models = self._health.learn_models
        self._discovery = Discovery(self._discovered, log, self.router.metrics)
        self._kvaware = KvAwareService(self.router)
        KvMetrics(self.router.metrics.registry, self._kvaware)
        self._exchange = PeerExchange(self.router)
        self.router.reload_changed = self.reload
        self._admin = AdminHandler(self.router, self._discovery, self._kvaware, self._exchange)
        self._data: list[Listener] = []
        self._admin_port: Listener | None = None
        self._tls = config.tls
        self._renewing: asyncio.Task[None] | None = None
        self._steps = self._make_steps()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ticker: asyncio.TimerHandle | None = None
        self.listen = config.listen
        self.admin = config.admin

    async def start(self) -> None:
        """Open the ports and start health checks. Raise StartError and ConfigError."""
        config = self.router.config
        self._discovery.check(config.discovery)
        tls = self._server_context(config)
        for address in (config.listen, *config.listen_more):
            listener = Listener(
                address,
                lambda: ClientConnection(self.path),  # type: ignore[arg-type,return-value]  # acts like one
                BACKLOG,
                reuse_port=config.reuse_port,
            )
            await listener.open(tls, config.limits.header_timeout_s)
            self._data.append(listener)
        self.listen = self._data[0].address
        if config.admin is not None:
            self._admin_port = Listener(config.admin, lambda: AdminConnection(self._admin), 128)
            await self._admin_port.open()
            self.admin = self._admin_port.address
        self._health.follow(list(self.router.table.workers.values()), config.health)
        self._discovery.follow(config.discovery)
        self._kvaware.follow()
        self._exchange.follow()
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.log.event(
            "info",
            "listening",
            address=str(self.listen),
            more=[str(listener.address) for listener in self._data[1:]],
            tls=config.tls is not None,
            admin=str(self.admin or ""),
            strategy=config.strategy,
            workers=len(config.workers),
            keys="open" if config.keys is None else len(config.keys),
            compiled=is_compiled(),
        )

    def _server_context(self, config: Config) -> ssl.SSLContext | None:
        if config.tls is None:
            return None
        return server_context(config.tls, self.router.metrics.handshake_failed)

    def install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload, True)

    def stop(self) -> None:
        """First call: graceful shutdown. Second call: exit now."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> None:
        await self._stop.wait()
        await self.close()

    async def close(self) -> None:
        router = self.router
        limits = router.config.limits
        self.log.event(
            "info",
            "stopping",
            clients=len(router.clients),
            delay_s=limits.shutdown_delay_s,
            grace_s=limits.shutdown_grace_s,
        )
        router.draining = True  # load balancers remove the router
        if limits.shutdown_delay_s:
            await self._wait(limits.shutdown_delay_s)
        router.closing = True
        self._shut_idle()
        for listener in self._data:
            await listener.close_drained()
        until = perf_counter() + limits.shutdown_grace_s
        rounds = 0
        while router.clients and perf_counter() < until and not self._hurry.is_set():
            await self._wait(0.02)
            rounds += 1
            if rounds > FIRST_REQUEST_ROUNDS:
                self._shut_idle()
        await self._end()

    def _shut_idle(self) -> None:
        for client in list(self.router.clients):
            client.shut()

    async def _wait(self, seconds: float) -> None:
        """Sleep until the time is up or a second stop is requested."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)

    async def _end(self) -> None:
        router = self.router
        cut = len(router.clients)
        for client in list(router.clients):
            client.cut()
        for _ in range(LAST_WORDS_ROUNDS):
            if router.clients:
                await asyncio.sleep(0.02)
        for client in list(router.clients):
            client.transport.abort()
        await self._discovery.stop()
        await self._health.stop()
        await self._kvaware.close()
        await self._exchange.close()
        for worker in list(router.table.workers.values()):
            worker.pool.close()
            worker.probe_pool.close()
        if self._admin_port is not None:
            self._admin_port.close()
        if self._ticker is not None:
            self._ticker.cancel()
        await asyncio.sleep(0)  # let aborted connections record their ends
        router.recorder.close()
        self.log.event("info", "stopped", cut=cut, hurried=self._hurry.is_set())

    def _verdict(self, worker: Worker, error: str, refused: bool, silent: bool) -> None:
        self.router.table.probed(worker, error, refused, self._health.config.fall, silent)

    def _discovered(self, workers: tuple[WorkerConfig, ...]) -> None:
        self.router.roster.discovered(workers)
        self._health.follow(list(self.router.table.workers.values()), self._health.config)
        self._kvaware.follow()

    def _tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        for name, step in self._steps:
            try:
                step(perf_counter())
            except Exception as error:  # noqa: BLE001 - the other steps go on
                self.router.internal_error(name, error)

    def _make_steps(self) -> tuple[tuple[str, Callable[[float], object]], ...]:
        """Return the housekeeping of every tick, each step with its name in logs."""
        router = self.router

        def tick_clients(now: float) -> None:
            for client in list(router.clients):
                client.tick(now)

        def tick_pools(now: float) -> None:
            for worker in router.table.workers.values():
                worker.pool.tick(now)

        return (
            ("clients", tick_clients),
            ("workers", router.table.tick),
            ("admission", router.admission.tick),
            ("retries", self.path.retries.tick),
            ("kv_events", lambda _: self._kvaware.tick()),
            ("exchange", lambda _: self._exchange.tick()),
            ("notices", lambda _: router.resend_notices()),
            ("pools", tick_pools),
            ("config", lambda _: self.reload()),
            ("tls", lambda _: self._renew_tls()),
            ("recorder", lambda _: router.recorder.tick()),
            ("log", lambda _: self.log.flush()),
        )

    def reload(self, force: bool = False) -> None:
        """Reload a changed configuration; an invalid one is only reported in /config."""
        if self._source is None:
            return
        polled = self._source.poll(force)
        if polled is None:
            return
        if isinstance(polled, ConfigError):
            self._refused(polled)
            return
        router = self.router
        try:
            self._discovery.check(polled.discovery)
            router.reconfigure(polled)
        except ConfigError as error:
            self._refused(error)  # a file changed between validation and use
            return
        self._discovery.follow(polled.discovery)
        router.metrics.reloads.child("ok").value += 1
        self._health.follow(list(router.table.workers.values()), polled.health)
        self._kvaware.follow()
        self._exchange.follow()
        self.log.event(
            "info", "config_loaded", strategy=polled.strategy, workers=len(polled.workers)
        )

    def _refused(self, error: ConfigError) -> None:
        self.router.config_error = str(error)
        self.router.metrics.reloads.child("refused").value += 1
        self.log.event(
            "error", "config_refused", field=error.field, error=str(error), kept="last good"
        )

    def _renew_tls(self) -> None:
        """Apply changed certificates; failures are retried at the next tick."""
        tls = self.router.config.tls
        if tls == self._tls or self._renewing is not None:
            return
        try:
            context = self._server_context(self.router.config)
        except ConfigError as error:
            self._refused(error)
            return
        task = asyncio.get_running_loop().create_task(self._renew_listeners(tls, context))
        self._renewing = task

    async def _renew_listeners(
        self, wanted: TlsConfig | None, context: ssl.SSLContext | None
    ) -> None:
        try:
            for listener in self._data:
                await listener.renew(context, self.router.config.limits.header_timeout_s)
            self._tls = wanted
            self.log.event("info", "tls_renewed", tls=wanted is not None)
        except OSError as error:
            self.log.event("error", "tls_not_renewed", error=str(error), kept="last good")
        finally:
            self._renewing = None
