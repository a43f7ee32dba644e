"""KV event publisher of a worker: PUB and ROUTER sockets, as documented by vLLM.

Frames: topic, eight bytes of sequence number, payload. A replay request is an empty frame and a
number; the reply is every kept batch from there on, and an end marker. `lose` drops batches from
the live stream only, like a slow subscriber or a lost connection.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import zmq

from tests.support.ports import free_port
from tests.support.waiting import until

END = (-1).to_bytes(8, "big", signed=True)


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Retry: ZeroMQ's thread releases a closed port with a delay."""

    def bound() -> bool:
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
            return False
        return True

    until(bound, 60.0, endpoint)


class Publisher:
    """`restart` simulates a new process on the same ports: numbers restart."""

    def __init__(
        self,
        *,
        buffer: int = 10_000,
        replay: bool = True,
        rank: int = 0,
        topic: bytes = b"kv@w@m",
        dial: str = "",
    ) -> None:
        self.events_port = free_port()
        self.replay_port = free_port() if replay else 0
        self.number = 0
        self.lose: set[int] = set()  # numbers not sent live
        self.deaf = False  # replay requests get no reply
        self.requests: list[int] = []
        self.topic_in_replay = True
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self._rank = rank
        self._topic = topic
        self._dial = dial
        self._context = zmq.Context()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pub: zmq.Socket[bytes]
        self._subscribed = False
        self._open()

    @property
    def events(self) -> str:
        return f"tcp://127.0.0.1:{self.events_port}"

    def has_subscriber(self) -> bool:
        """Return whether a subscription has arrived; earlier messages are lost.

        A connected subscriber is not enough: its subscription follows the handshake.
        """
        with self._lock:
            while self._pub.poll(0):
                self._subscribed = self._pub.recv()[:1] == b"\x01"
        return self._subscribed

    @property
    def replay(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}" if self.replay_port else ""

    def source(self) -> dict[str, Any]:
        """Return its entry in /kv_event_sources."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.events_port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}" if self.replay_port else None,
            "buffer_steps": self._kept.maxlen,
            "topic": self._topic.decode(),
        }

    def publish(self, *events: Any, ts: float = 1_800_000_000.0) -> int:
        """Publish one batch; return its number."""
        payload = msgspec.msgpack.encode([ts, list(events), self._rank])
        with self._lock:
            number = self.number
            self.number += 1
            if number not in self.lose:
                self._pub.send_multipart([self._topic, number.to_bytes(8, "big"), payload])
            self._kept.append((number, payload))
        return number

    def send(self, frames: Iterable[bytes]) -> None:
        """Send arbitrary frames live."""
        with self._lock:
            self._pub.send_multipart(list(frames))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        with self._lock:
            self._pub.close(linger=0)

    def restart(self) -> None:
        self.stop()
        self.number = 0
        self._kept.clear()
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stop.is_set():
            self.stop()
        self._context.destroy(linger=0)

    def _open(self) -> None:
        self._stop = threading.Event()
        self._subscribed = False
        self._pub = self._context.socket(zmq.XPUB)  # PUB that receives subscriptions
        self._pub.linger = 0
        if self._dial:
            self._pub.connect(self._dial)
        else:
            _bind(self._pub, self.events)
        self._thread = threading.Thread(target=self._serve, args=(self._stop,), daemon=True)
        self._thread.start()

    def _serve(self, stop: threading.Event) -> None:
        if not self.replay_port:
            return
        router = self._context.socket(zmq.ROUTER)
        router.linger = 0
        _bind(router, self.replay)
        while not stop.is_set():
            if router.poll(5):
                who, _, start = router.recv_multipart()
                self.requests.append(int.from_bytes(start, "big"))
                if not self.deaf:
                    self._answer(router, who, self.requests[-1])
        router.close()

    def _answer(self, router: zmq.Socket[bytes], who: bytes, start: int) -> None:
        with self._lock:
            kept = list(self._kept)
        topic = [self._topic] if self.topic_in_replay else []
        for number, payload in kept:
            if number >= start:
                router.send_multipart([who, b"", *topic, number.to_bytes(8, "big"), payload])
        router.send_multipart([who, b"", b"", END, b""])


class LossyProxy:
    """Forwards messages between publisher and subscribers except those numbered in `lose`."""

    def __init__(self, publisher: Publisher) -> None:
        self.lose: set[int] = set()
        self.lost = 0
        self.port = free_port()
        self._context = zmq.Context()
        self._stop = threading.Event()
        self._there = publisher.events
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def events(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        back, front = self._context.socket(zmq.XSUB), self._context.socket(zmq.XPUB)
        back.connect(self._there)
        front.bind(self.events)
        poller = zmq.Poller()
        poller.register(back, zmq.POLLIN)
        poller.register(front, zmq.POLLIN)
        while not self._stop.is_set():
            ready = dict(poller.poll(5))
            if front in ready:
                back.send_multipart(front.recv_multipart())  # subscriptions
            if back in ready:
                frames = back.recv_multipart()
                if int.from_bytes(frames[-2], "big") in self.lose:
                    self.lost += 1
                else:
                    front.send_multipart(frames)
        back.close(linger=0)
        front.close(linger=0)
