"""Exchange of state with the other routers of an endpoint, off the request path.

A pick reads only local state. While the store is away, the router goes on alone; placements wait in
the outbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from time import perf_counter
from typing import TYPE_CHECKING, Any

from routing.engine.observe.decisions import known_elsewhere
from routing.engine.peers import messages
from routing.engine.peers.limits import SharedLimits
from routing.engine.peers.link import StoreLink
from routing.engine.peers.messages import Batch, MessageError
from routing.engine.peers.metrics import PeerMetrics
from routing.engine.peers.outbox import BATCH_INTERVAL_S, Outbox, wait_for_batch
from routing.engine.peers.view import SILENCE_S, PeerView

if TYPE_CHECKING:
    from routing.engine.config import StateStoreConfig
    from routing.engine.kv.progress import ExpectedPrompt
    from routing.engine.peers.connection import StoreConnection
    from routing.engine.peers.failure import StoreFailure
    from routing.engine.request import RoutedRequest
    from routing.engine.router import Router

HEARTBEAT_S = 0.25
_SETTLE_S = 0.5  # longer than a router waits before it connects again
_TIGHT_INTERVAL_S = 0.002
_RETRY_S = 1.0
_MOST_REQUESTS = 3
_RESTATE_BEATS = 8  # heartbeats between two statements of all budgets
_MEMORY_BLOCKS = 65_536  # of each worker, for a new router
_MEMORY_CHAINS = 64  # in a message


class PeerExchange:
    def __init__(self, router: Router) -> None:
        self._budgets = router.recorder.use
        self.router_id = router.instance  # as in the console
        self.away = ""  # reason; "": the store answers, or none is configured
        self._router = router
        self._store: StateStoreConfig | None = None
        self._key = b""
        self._task: asyncio.Task[None] | None = None
        self._memory_task: asyncio.Task[None] | None = None
        self._metrics: PeerMetrics | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0  # time of the last batch
        self._failure: StoreFailure | None = None  # since the store was connected
        self._own = messages.sender_mark(self.router_id)
        self._connected_at = 0.0  # after a time without the store
        self._tight = False  # a shared rate is nearly used up
        self._began = perf_counter()
        self._ticked = 0.0
        self._away_since = 0.0  # epoch seconds
        self._beat_sent: tuple[bytes, float] = (b"", 0.0)  # frame and time of the last heartbeat
        self._lag_s: float | None = None  # until a heartbeat came back
        self._requests_sent = 0
        self._requested_at = 0.0
        self._remembered = 0  # placements received from a peer's memory
        self.link: StoreLink
        self.outbox = Outbox(self.router_id, router.table)
        self.view = PeerView(router, self.router_id, self._budgets)

    @property
    def active(self) -> bool:
        return self._task is not None

    # -- configuration

    def follow(self) -> None:
        """Apply the router's configuration."""
        config = self._router.config
        store, key = config.state_store, config.hash_key
        self.outbox.dialect = self.view.dialect = messages.dialect(config.prefix_block_bytes)
        if (store, key) == (self._store, self._key):
            return
        self._stop()
        self._store, self._key = store, key
        if store is None:
            return
        if self._metrics is None:
            registry = self._router.metrics.registry
            self._metrics = PeerMetrics(registry)
            registry.before_render.append(self._refresh_metrics)
        place = f"emberline:{config.namespace}/{config.endpoint}:routers"
        self._channel, self._channel_bytes = place, place.encode()
        self._private = f"{place}:"
        self.link = StoreLink(
            store,
            (place, self._private + self.router_id),
            self._receive,
            self._store_changed,
            self._serve,
        )
        self._limits = SharedLimits(place, self._router.admission, lambda: len(self.view.peers) + 1)
        self._router.divide_limits(store.routers)
        self._budgets.exchange(False, store.routers)
        self.away = "connecting"
        self._away_since, self._lag_s = time.time(), None
        self._failure = None
        self._requests_sent = 0
        self._task = asyncio.get_running_loop().create_task(self.link.run())
        self._router.share_with(self)

    def _stop(self) -> None:
        for task in (self._task, self._memory_task):
            if task is not None:
                task.cancel()
        self._task = self._memory_task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.away = ""
        self.view.clear()
        self._router.share_with(None)
        if self._store is not None:
            self._router.divide_limits(1)
            self._budgets.exchange(None)
            self._router.peers_changed(self.view)

    async def close(self) -> None:
        if self._task is not None and self.link.up:
            self._publish(self.outbox.batch(complete=True, leaving=True))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.link.written(), HEARTBEAT_S)
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    # -- from the request path

    def placed(self, exchange: RoutedRequest) -> None:
        decision, facts = exchange.decision, exchange.facts
        guess = exchange.placing.guess if exchange.placing is not None else None
        self.outbox.sent(facts, decision.chosen, known=known_elsewhere(decision, facts))
        if guess is not None:
            self.outbox.expected(guess)
        if self._timer is None:
            self._schedule()

    def ended(self, exchange: RoutedRequest) -> None:
        """Date the prompt by its end at the peers, too, and share what its answer taught."""
        worker_id = exchange.decision.chosen
        if exchange.decision.status != 200 or worker_id not in self._router.table.workers:
            return
        self.outbox.sent(exchange.facts, worker_id, self._router.policy.share(worker_id))
        if self._timer is None:
            self._schedule()

    def answered(self, guess: ExpectedPrompt) -> None:
        self.outbox.answered(guess)

    def failed(self, guess: ExpectedPrompt) -> None:
        self.outbox.failed(guess)

    def timed(self, worker_id: str, work: int, ttft_s: float) -> None:
        self.outbox.timed(worker_id, work, ttft_s)

    def circuit(self, worker_id: str, opened: bool) -> None:
        if self.view.applying:
            return  # a peer's own report
        self.outbox.circuit(worker_id, opened)
        if self._timer is None:
            self._schedule()

    # -- sending

    def _schedule(self) -> None:
        if self.link.up:
            now = perf_counter()
            wait_s = wait_for_batch(now - self._last, time.time())
            if self._tight:
                wait_s = min(wait_s, _TIGHT_INTERVAL_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        if not self.link.up:
            return
        tight = self._tight
        self._tight = self._limits.touch()
        # Settlements of a rate that is nearly used up may be due before the next batch.
        early = tight and perf_counter() - self._last < 0.9 * BATCH_INTERVAL_S
        if not early and not self.link.congested:
            self._publish(self._batch())
        if self.outbox.busy or self._budgets.changed:
            self._schedule()

    def _batch(self, complete: bool = False, asks: str = "") -> Batch | None:
        return self.outbox.batch(
            self._router.admission.callers(),
            complete=complete,
            asks=asks,
            age_s=int(perf_counter() - self._began),
            hold=self._holds(),
            budgets=self._budgets.take_changed(messages.MAX_BUDGETS),
        )

    def _publish(self, batch: Batch | None) -> bytes:
        self._last = perf_counter()
        if batch is None:
            return b""
        frame = messages.encode(batch, self._key)
        self.link.send(self._channel, frame)
        return frame

    def _holds(self) -> bool:
        """Return True until the peers, too, have had time to connect again."""
        return perf_counter() < self._connected_at + _SETTLE_S

    async def _serve(self, store: StoreConnection) -> None:
        limits = asyncio.create_task(self._limits.run(store))
        try:
            await self._beat(limits)
        finally:
            limits.cancel()
            await asyncio.gather(limits, return_exceptions=True)

    async def _beat(self, limits: asyncio.Task[None]) -> None:
        """Send heartbeats and drop silent peers while the store is connected."""
        beats = peer_count = 0
        while True:
            if limits.done():
                limits.result()
            self._limits.refresh()
            beats += 1
            if beats % _RESTATE_BEATS == 0 or len(self.view.peers) != peer_count:
                peer_count = len(self.view.peers)
                self._budgets.restate()
            batch = self._batch(complete=True, asks=self._wanted())
            assert batch is not None  # a complete one
            self._beat_sent = (self._publish(batch), perf_counter())
            if self.outbox.busy and self._timer is None:
                self._schedule()
            await asyncio.sleep(HEARTBEAT_S)
            self.tick()

    def tick(self) -> None:
        """Drop silent peers; call at least every second."""
        now = perf_counter()
        before, self._ticked = self._ticked, now
        if now - before > 2 * SILENCE_S:
            return  # this process was stopped: what they sent meanwhile is not read yet
        if self.view.tick(now):
            self._router.peers_changed(self.view)

    # -- receiving

    def _receive(self, channel: bytes, data: bytes) -> None:
        now = perf_counter()
        if messages.is_from(data, self._own):
            if data == self._beat_sent[0]:
                self._lag_s = now - self._beat_sent[1]
            return
        try:
            batch = messages.decode(data, self._key)
            if channel != self._channel_bytes:
                self.view.remember(batch)
                self._remembered += len(batch.placed)
                self._router.misses.peers.note_batch(batch, self.view.dialect, memory=True)
                return
            self.view.apply(batch, now, now - self._began)
            self._router.misses.peers.note_batch(
                batch, self.view.dialect, self.router_id < batch.router
            )
        except MessageError as error:
            self._count(error.reason)
            return
        except Exception as error:  # noqa: BLE001 - the connection would end
            self._router.internal_error("peer_message", error)
            self._count("invalid")
            return
        self._count("applied")
        self._router.peers_changed(self.view)
        if batch.asks == self.router_id and (self._memory_task is None or self._memory_task.done()):
            sending = self._send_memory(batch.router)
            self._memory_task = asyncio.get_running_loop().create_task(sending)

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.messages[result].value += 1

    def _refresh_metrics(self) -> None:
        metrics = self._metrics
        assert metrics is not None
        metrics.peers.value = len(self.view.peers)
        metrics.lag.value = self._lag_s or 0.0
        metrics.up.value = int(self.active and self.link.up)
        metrics.dropped.value = self.outbox.dropped
        metrics.ignored.value = self.view.ignored
        metrics.budgets_alone.value = self._budgets.checked_alone

    def _store_changed(self, failure: StoreFailure | None) -> None:
        before, self.away = self.away, failure.error if failure is not None else ""
        failure_before, self._failure = self._failure, failure
        if failure is not None and not before:
            self._away_since, self._lag_s = time.time(), None
        store = self._store
        assert store is not None
        if before in ("", "connecting") or failure is None:
            self._router.divide_limits(1 if failure is None else store.routers)
            self._budgets.exchange(failure is None, store.routers)
        log = self._router.log
        if failure is not None and (
            failure_before is None or failure.reason != failure_before.reason
        ):
            if self._metrics is not None:
                self._metrics.failures[failure.reason].value += 1
            log.event(
                "warning",
                "state_store_away",
                store=str(store),
                reason=failure.reason,
                error=failure.error,
                effect="this router does not see the load and placements of the others",
                remedy=failure.remedy,
            )
        elif before and failure is None:
            self._requests_sent = 0
            if before != "connecting":
                self._connected_at = perf_counter()
            log.event("info", "state_store_connected", store=str(store))

    # -- memory of a new router

    def _wanted(self) -> str:
        """Return the peer whose memory is requested: the one that runs longest; "" for none."""
        now = perf_counter()
        if (
            self._remembered
            or self._requests_sent >= _MOST_REQUESTS
            or now - self._requested_at < _RETRY_S
        ):
            return ""
        older = [peer for peer in self.view.peers.values() if peer.age_s > now - self._began + 1]
        if not older:
            return ""
        self._requests_sent += 1
        self._requested_at = now
        older.sort(key=lambda peer: -peer.age_s)
        return older[(self._requests_sent - 1) % len(older)].id

    async def _send_memory(self, router_id: str) -> None:
        """Send what this router remembers, in slices."""
        policy = self._router.policy
        for worker_id in list(self._router.table.workers):
            chains = policy.memory(worker_id, _MEMORY_BLOCKS)
            for start in range(0, len(chains), _MEMORY_CHAINS):
                part = chains[start : start + _MEMORY_CHAINS]
                batch = self.outbox.memory((worker_id, size, chain) for size, chain in part)
                self.link.send(self._private + router_id, messages.encode(batch, self._key))
                await self.link.drained()
                await asyncio.sleep(0)

    # -- status

    def show(self) -> dict[str, Any] | None:
        if self._store is None:
            return None
        now = perf_counter()
        metrics = self._metrics
        assert metrics is not None
        return {
            "router": self.router_id,
            "store": str(self._store),
            "connected": self.link.up,
            "error": self.away,
            "reason": "" if self._failure is None else self._failure.reason,
            "remedy": "" if self._failure is None else self._failure.remedy,
            "away_since": round(self._away_since, 3) if self.away else None,
            "lag_s": None if self._lag_s is None else round(self._lag_s, 6),
            "failures": sum(int(child.value) for child in metrics.failures.values()),
            "messages": {name: int(child.value) for name, child in metrics.messages.items()},
            "budget_checks_alone": self._budgets.checked_alone,
            "waiting_placements": self.outbox.held,
            "dropped_placements": self.outbox.dropped,
            "ignored_placements": self.view.ignored,
            "remembered_placements": self._remembered,
            "peers": [
                {
                    "router": peer.id,
                    "silent_s": round(now - peer.received_at, 3),
                    "in_flight": sum(load[1] for load in peer.loads.values()),
                }
                for peer in self.view.peers.values()
            ],
        }
