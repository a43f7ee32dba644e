"""Follow the KV events of all workers on the router's event loop.

The loop is never held longer than SLICE_S plus one piece (about 0.2 ms). A thread would hold the
GIL for 5 ms at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import zmq

from routing.engine.kv.events import EventApplier
from routing.engine.kv.index import Index
from routing.engine.kv.recovery import RecoveryPhase
from routing.engine.kv.sources import (
    DIALS_OUT,
    EventSource,
    SourceError,
    configured_sources,
    discovered_sources,
)
from routing.engine.kv.stream import Stream

SLICE_S = 0.0005
TICK_S = 0.5
PAUSE_TICKS = 2  # a tick this late follows a pause of the process
DISCOVER_EVERY_S = 60.0
RETRY_S = (1.0, 30.0)
FOLLOWING = RecoveryPhase.FOLLOWING.value
CONNECT_GRACE_S = 5.0

LogEvent = Callable[..., None]


@dataclass(frozen=True, slots=True)
class SubscriptionTarget:
    """A worker to follow. `ask` fetches a path by HTTP. `events` and `replays` replace discovery,
    one endpoint per rank.
    """

    id: str
    host: str
    model: str
    ask: Callable[[str], Awaitable[tuple[int, bytes]]] = field(compare=False)
    events: tuple[str, ...] = ()
    replays: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class _FollowedWorker:
    """State of one worker: its streams, or why there are none."""

    target: SubscriptionTarget
    streams: dict[EventSource, Stream] = field(default_factory=dict)
    reason: str = "undiscovered"
    message: str = ""
    task: asyncio.Task[None] | None = None
    wanted: asyncio.Event = field(default_factory=asyncio.Event)


class Subscriber:
    """Subscriber to the KV events of all workers. `failures`: exception types of
    `SubscriptionTarget.ask`.
    """

    def __init__(self, index: Index, log: LogEvent, failures: tuple[type[Exception], ...]) -> None:
        self.index = index
        self.applier = EventApplier(index)
        self.on_applied: Callable[[str], object] = lambda _worker: None
        self._log = log
        self._failures = failures
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._workers: dict[str, _FollowedWorker] = {}
        self._ended: Counter[str] = Counter()  # counts of closed streams
        self._ready: deque[Stream] = deque()
        self._is_ready: set[Stream] = set()
        self._running = False
        self._ticker: asyncio.TimerHandle | None = None
        self._ticked_at = 0.0
        self._put_off = False  # the last tick skipped deadlines

    def follow(self, targets: Iterable[SubscriptionTarget]) -> None:
        by_id = {target.id: target for target in targets}
        for name, followed in list(self._workers.items()):
            target = by_id.get(name)
            if target != followed.target:
                self._drop(self._workers.pop(name))
        for name, target in by_id.items():
            if name not in self._workers:
                followed = self._workers[name] = _FollowedWorker(target)
                followed.task = asyncio.create_task(self._discover(followed))
        if self._ticker is None:
            self._ticked_at = perf_counter()
            self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def close(self) -> None:
        tasks = [item.task for item in self._workers.values() if item.task is not None]
        for followed in self._workers.values():
            self._drop(followed)
        self._workers.clear()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    def _drop(self, followed: _FollowedWorker) -> None:
        if followed.task is not None:
            followed.task.cancel()
        for stream in followed.streams.values():
            self._end(stream)
        followed.streams.clear()

    def _end(self, stream: Stream) -> None:
        self._is_ready.discard(stream)
        if stream in self._ready:
            self._ready.remove(stream)
        self._ended.update(stream.follower.counts)
        stream.close()
        self._schedule()

    def worker_up(self, worker: str) -> None:
        followed = self._workers.get(worker)
        if followed is not None:
            followed.wanted.set()
            now = perf_counter()
            for stream in followed.streams.values():
                stream.follower.is_back(now)
                self._wake(stream)

    def worker_lost(self, worker: str) -> None:
        for stream in self._streams_of(worker):
            stream.follower.is_lost()
        self._schedule()

    def process_started(self, worker: str, at: float) -> None:
        now = perf_counter()
        for stream in self._streams_of(worker):
            stream.follower.process_started(at, now)
            self._wake(stream)

    def cache_reset(self, worker: str) -> None:
        for stream in self._streams_of(worker):
            stream.follower.was_reset()
        self._schedule()

    def _streams_of(self, worker: str) -> list[Stream]:
        followed = self._workers.get(worker)
        return list(followed.streams.values()) if followed is not None else []

    async def _discover(self, followed: _FollowedWorker) -> None:
        wait = RETRY_S[0]
        while True:
            followed.wanted.clear()
            try:
                sources = await self._sources(followed.target)
                self._take_over(followed, sources)
                wait = RETRY_S[0]
                pause = DISCOVER_EVERY_S
            except SourceError as error:
                self._refused(followed, error)
                pause, wait = wait, min(wait * 2, RETRY_S[1])
            try:
                async with asyncio.timeout(pause):
                    await followed.wanted.wait()
            except TimeoutError:
                pass

    async def _sources(self, target: SubscriptionTarget) -> list[EventSource]:
        if target.events:
            return configured_sources(target.events, target.replays, target.host)
        try:
            status, body = await target.ask("/kv_event_sources")
        except self._failures as error:
            raise SourceError("unreachable", f"/kv_event_sources: {error}") from None
        return discovered_sources(status, body, target.host)

    def _refused(self, followed: _FollowedWorker, error: SourceError) -> None:
        """Handle failed discovery: without an answer streams stay, without events they end."""
        if error.reason != "unreachable":
            self._take_over(followed, [])
        if followed.reason != error.reason and not followed.streams:
            followed.reason, followed.message = error.reason, str(error)
            self._log(
                "warning",
                "kv_events_unavailable",
                worker=followed.target.id,
                reason=error.reason,
                remedy=str(error),
            )

    def _take_over(self, followed: _FollowedWorker, sources: list[EventSource]) -> None:
        target = followed.target
        for source in set(followed.streams) - set(sources):
            self._end(followed.streams.pop(source))
        for source in sources:
            if source in followed.streams:
                continue
            self._refuse_taken(source)
            try:
                stream = Stream(
                    self._context,
                    self.index,
                    self.applier,
                    target.id,
                    target.model,
                    source,
                    self._watch,
                )
            except zmq.ZMQError as error:
                raise SourceError(
                    "endpoint_unusable", f"{source.events}: {error.strerror}."
                ) from None
            followed.streams[source] = stream
            self._wake(stream)
        if sources:
            followed.reason, followed.message = "", ""

    def _refuse_taken(self, source: EventSource) -> None:
        if not source.bind:
            return
        for other in self._workers.values():
            if any(taken.bind and taken.events == source.events for taken in other.streams):
                raise SourceError(
                    "endpoint_shared",
                    f"{source.events} is bound for {other.target.id} already, and messages of two "
                    "workers cannot be distinguished. Give each its own port.",
                )

    def _watch(self, stream: Stream, descriptor: int, begin: bool) -> None:
        loop = asyncio.get_running_loop()
        if begin:
            loop.add_reader(descriptor, self._wake, stream)
        else:
            loop.remove_reader(descriptor)

    def _wake(self, stream: Stream) -> None:
        if stream not in self._is_ready:
            self._is_ready.add(stream)
            self._ready.append(stream)
        self._schedule()

    def _schedule(self) -> None:
        if not self._running:
            self._running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Run one time slice, round robin, then return to the loop."""
        deadline = perf_counter() + SLICE_S
        ready = self._ready
        while ready:
            stream = ready.popleft()
            if stream.step(deadline):
                ready.append(stream)
            else:
                self._is_ready.discard(stream)
            self.on_applied(stream.worker)
            if perf_counter() >= deadline:
                break
        index = self.index
        while index.sweeping:
            index.sweep()  # at least one piece, so that sweeping is not starved
            if perf_counter() >= deadline:
                break
        self._running = False
        if ready or index.sweeping:
            self._schedule()

    def _tick(self) -> None:
        self._ticker = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        now = perf_counter()
        # After a pause ZeroMQ's threads need a moment to read. Never twice in a row, so that
        # deadlines also apply on a slow loop.
        self._put_off = not self._put_off and now - self._ticked_at > PAUSE_TICKS * TICK_S
        self._ticked_at = now
        for followed in self._workers.values():
            for stream in followed.streams.values():
                if not self._put_off:
                    stream.tick()
                if not stream.has_connected and not stream.warned:
                    self._lose_patience(followed, stream, now)
                # ZeroMQ's descriptor is edge-triggered.
                self._wake(stream)

    def _lose_patience(self, followed: _FollowedWorker, stream: Stream, now: float) -> None:
        if now < stream.opened_at + CONNECT_GRACE_S:
            return
        stream.warned = True
        self._log(
            "warning",
            "kv_events_unavailable",
            worker=followed.target.id,
            reason="not_connected",
            endpoint=stream.source.events,
            remedy=DIALS_OUT,
        )

    def recoveries(self) -> Counter[str]:
        """Return recovery counts over all streams, by recovery.REASONS."""
        total = self._ended.copy()
        for followed in self._workers.values():
            for stream in followed.streams.values():
                total.update(stream.follower.counts)
        return total

    def followed(self, worker: str) -> bool:
        """Return True if events of at least one rank are followed."""
        return any(stream.state == FOLLOWING for stream in self._streams_of(worker))

    def ranks(self, worker: str) -> int:
        """Return its number of ranks; 0 until all are followed."""
        streams = self._streams_of(worker)
        return len(streams) if all(stream.state == FOLLOWING for stream in streams) else 0

    def partial(self, worker: str) -> bool:
        """Return True if part of its history is missing."""
        return any(stream.follower.partial for stream in self._streams_of(worker))

    def status(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for name, followed in self._workers.items():
            entries += [_show_stream(name, stream) for stream in followed.streams.values()]
            if not followed.streams:
                entries.append(
                    {
                        "worker": name,
                        "state": "none",
                        "reason": followed.reason,
                        "message": followed.message,
                    }
                )
        return entries


def _show_stream(worker: str, stream: Stream) -> dict[str, Any]:
    follower = stream.follower
    return {
        "worker": worker,
        "rank": stream.source.rank,
        "endpoint": stream.source.events,
        "replay": stream.source.replay,
        "state": stream.state,
        "partial": follower.partial,
        "blocks": stream.blocks,
        "parked": stream.parked,
        "batches": stream.batches,
        "last": follower.last,
        "lag_s": round(stream.lag_s, 3),
        "counts": {reason: count for reason, count in follower.counts.items() if count},
        "errors": {reason: count for reason, count in stream.errors.items() if count},
        "skipped": dict(stream.decoder.skipped),
    }
