"""Sockets and processing state of one event source.

A step ends soon after its deadline and never blocks. Nothing is received while batches wait to be
applied: ZeroMQ's high-water mark bounds memory, and dropped messages are replayed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import cast

import zmq
from zmq.utils.monitor import parse_monitor_message

from routing.engine.kv.events import EventApplier
from routing.engine.kv.index import Index
from routing.engine.kv.recovery import SourceFollower
from routing.engine.kv.sources import EventSource
from routing.engine.kv.wire import END_SEQ, Decoder, WireError, read_message, replay_request

# High-water marks; further messages are dropped. With usual batches of 15 KB, 30 MB each.
LIVE_MESSAGES = 2_000
REPLAY_MESSAGES = 2_000
SOCKET_PATH_BYTES = 107
MESSAGE_BYTES = 16 * 1024 * 1024  # a step's events take tens of kB; decoding cannot be sliced
MAX_BLOCKS = 2_000_000  # of a rank: 60 million tokens, or a source that never removes any
RECONNECT_MS = (100, 5_000)
HEARTBEAT_MS = (10_000, 30_000)  # detects a vanished host
ERRORS = ("malformed_batch", "malformed_frames", "rank", "too_many_blocks")
_EVENTS = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED

WatchDescriptor = Callable[["Stream", int, bool], None]  # start or stop watching a descriptor


class Stream:
    """Call `step` when a descriptor passed to `watch` is readable."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        index: Index,
        applier: EventApplier,
        worker: str,
        model: str,
        source: EventSource,
        watch: WatchDescriptor,
    ) -> None:
        self.worker = worker
        self.source = source
        self.follower = SourceFollower(self, bool(source.replay))
        self.decoder = Decoder()
        self.batches = 0
        self.lag_s = 0.0  # engine step to application, of the last live batch (s)
        self.errors: dict[str, int] = dict.fromkeys(ERRORS, 0)
        self.opened_at = perf_counter()
        self.has_connected = False
        self.warned = False
        self._context = context
        self._index = index
        self._applier = applier
        self._rank = index.rank(worker, source.rank, model)
        self._watch = watch
        self._waiting: deque[tuple[bytes, bool]] = deque()
        self._tick_due = False
        self._work: Iterator[None] | None = None
        self._dealer: zmq.Socket[bytes] | None = None
        self._sub = self._open(zmq.SUB, LIVE_MESSAGES)
        self._monitor = self._sub.get_monitor_socket(_EVENTS)
        self._folders: dict[str, int] = {}
        self._watch(self, self._monitor.fileno(), True)
        self._sub.subscribe(b"")
        if source.bind:
            self._sub.bind(source.events)
        else:
            self._connect(self._sub, source.events)

    def _connect(self, socket: zmq.Socket[bytes], endpoint: str) -> None:
        """Connect; long Unix socket paths (limit 107 bytes) go through an open directory
        descriptor.
        """
        path = endpoint.removeprefix("ipc://")
        if path != endpoint and len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            folder, name = os.path.split(path)
            if folder not in self._folders:  # kept open for ZeroMQ's reconnects
                try:
                    self._folders[folder] = os.open(folder, os.O_PATH | os.O_DIRECTORY)
                except OSError as error:
                    raise zmq.ZMQError(error.errno or 0, error.strerror) from None
            endpoint = f"ipc:///proc/self/fd/{self._folders[folder]}/{name}"
        socket.connect(endpoint)

    @property
    def blocks(self) -> int:
        return self._rank.blocks

    @property
    def parked(self) -> int:
        return self._rank.parked

    @property
    def state(self) -> str:
        if not self.has_connected:
            return "connecting"
        return self.follower.phase.value if self.follower.connected else "disconnected"

    def apply(self, payload: bytes, live: bool) -> None:
        self._waiting.append((payload, live))

    def clear(self, waiting_too: bool) -> None:
        if waiting_too:
            self._waiting.clear()
            self._work = None
        self._index.empty(self._rank)

    def replay(self, start: int, fresh: bool) -> None:
        if fresh and self._dealer is not None:
            self._close(self._dealer)
            self._dealer = None
        if self._dealer is None:
            self._dealer = self._open(zmq.DEALER, REPLAY_MESSAGES)
            self._connect(self._dealer, self.source.replay)
        with contextlib.suppress(zmq.Again):  # the follower's deadline handles it
            self._dealer.send_multipart(replay_request(start), zmq.NOBLOCK)

    def tick(self) -> None:
        """Make the next `step` check deadlines."""
        self._tick_due = True

    def step(self, deadline: float) -> bool:
        """Work until the deadline; return False when idle."""
        while True:
            work = self._work
            if work is not None:
                for _ in work:
                    if perf_counter() >= deadline:
                        return True
                if self._work is work:
                    self._work = None
            elif self._waiting:
                self._start(*self._waiting.popleft())
            elif not self._receive():
                return False
            if perf_counter() >= deadline:
                return True

    def close(self) -> None:
        self._work = None
        self._waiting.clear()
        self._watch(self, self._monitor.fileno(), False)
        self._sub.disable_monitor()
        self._monitor.close(linger=0)
        self._close(self._sub)
        if self._dealer is not None:
            self._close(self._dealer)
            self._dealer = None
        while self._folders:
            os.close(self._folders.popitem()[1])
        self._index.forget(self.worker, self.source.rank)

    def _start(self, payload: bytes, live: bool) -> None:
        try:
            batch = self.decoder.decode(payload)
        except WireError as error:
            self.errors[error.reason] += 1
            return
        if batch.rank is not None and batch.rank != self.source.rank:
            self.errors["rank"] += 1
        self.batches += 1
        if self._rank.blocks > MAX_BLOCKS:
            self.errors["too_many_blocks"] += 1
            self.clear(False)
        if live:
            self.lag_s = max(time.time() - batch.ts, 0.0)
        self._rank.batch_at = batch.ts
        self._work = self._applier.apply(self._rank, batch.events)

    def _receive(self) -> bool:
        """Receive one message; monitor events first, so that a restart is known before new data."""
        frames = _receive_message(self._monitor)
        if frames is not None:
            self._connection(frames)
            return True
        now = perf_counter()
        frames = _receive_message(self._dealer)
        if frames is not None:
            message = self._read(frames)
            if message is None:
                return True
            if message[0] == END_SEQ:
                self.follower.replay_ended(now)
            else:
                self.follower.replayed(*message, now)
            return True
        if self._tick_due:
            # Only after the replay socket is drained: an answer that arrived while the loop was
            # busy is no timeout.
            self._tick_due = False
            self.follower.tick(now)
            return True
        frames = _receive_message(self._sub)
        if frames is not None:
            message = self._read(frames)
            if message is not None:
                self.follower.live(*message, now)
            return True
        return False

    def _read(self, frames: list[bytes]) -> tuple[int, bytes] | None:
        try:
            return read_message(frames)
        except WireError as error:
            self.errors[error.reason] += 1
            return None

    def _connection(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)["event"]
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self.has_connected = True
            self.follower.is_connected(perf_counter())
        elif event == zmq.Event.DISCONNECTED and self.follower.connected:
            self.follower.is_disconnected()

    def _open(self, kind: int, messages: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvhwm = messages
        socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS[0])
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_MS[1])
        self._watch(self, socket.fileno(), True)
        return socket

    def _close(self, socket: zmq.Socket[bytes]) -> None:
        self._watch(self, socket.fileno(), False)
        socket.close()


def _receive_message(socket: zmq.Socket[bytes] | None) -> list[bytes] | None:
    if socket is None or not cast(int, socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
        return None  # cheaper than an exception
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None
