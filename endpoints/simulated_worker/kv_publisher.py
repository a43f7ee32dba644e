"""ZeroMQ publisher of KV events with vLLM 0.32's framing and replay protocol.

Frames: topic, sequence number from 0 per process, and a msgpack array of time, events and rank. A
bounded buffer of batches is replayed on request, followed by an end marker. A separate module,
since only publishers need pyzmq and msgspec.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

import msgspec
import zmq

from endpoints.simulated_worker.kv_events import Event

BUFFER_STEPS = 10_000
HWM = 100_000
_END = (-1).to_bytes(8, "big", signed=True)
_pack = msgspec.msgpack.encode


class EndpointError(Exception):
    """The socket endpoint cannot be used; the text is for display."""


class Publisher:
    """PUB socket for events and ROUTER socket for replays. Raises EndpointError."""

    def __init__(self, endpoint: str, replay_endpoint: str, topic: str = "") -> None:
        self._topic = topic.encode()
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=BUFFER_STEPS)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._replay: zmq.Socket[bytes] | None = None
        self.config = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": endpoint,
            "replay_endpoint": replay_endpoint or None,
            "buffer_steps": BUFFER_STEPS,
            "hwm": HWM,
            "max_queue_size": HWM,
            "topic": topic,
        }
        try:
            self._pub = self._open(zmq.PUB)
            if "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://")):
                self._pub.bind(endpoint)
            else:
                self._pub.connect(endpoint)  # as vLLM does
            if replay_endpoint:
                self._replay = self._open(zmq.ROUTER)
                self._replay.bind(replay_endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise EndpointError(f"{endpoint} or {replay_endpoint}: {error.strerror}") from None

    def start(self) -> None:
        if self._replay is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._replay.fileno(), self._serve)
            loop.call_soon(self._serve)

    def publish(self, events: list[Event]) -> None:
        payload = _pack([time.time(), events, 0])
        number, self._number = self._number, self._number + 1
        self._pub.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
        self._kept.append((number, payload))

    def close(self) -> None:
        if self._replay is not None:
            asyncio.get_running_loop().remove_reader(self._replay.fileno())
        self._context.destroy(linger=0)

    def _open(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.set_hwm(HWM)
        return socket

    def _serve(self) -> None:
        """Answer every waiting request: ZeroMQ signals readiness once, not per request."""
        assert self._replay is not None
        while True:
            try:
                frames = self._replay.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) == 3 and len(frames[2]) == 8:
                self._answer(self._replay, frames[0], int.from_bytes(frames[2], "big"))

    def _answer(self, replay: zmq.Socket[bytes], who: bytes, start: int) -> None:
        for number, payload in self._kept:
            if number >= start:
                replay.send_multipart([who, b"", self._topic, number.to_bytes(8, "big"), payload])
        replay.send_multipart([who, b"", b"", _END, b""])
