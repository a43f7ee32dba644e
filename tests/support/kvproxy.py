"""Lossy proxy between a KV event publisher and its subscribers.

Forwards whole messages: live ones from PUB to PUB, replay requests and replies through a DEALER for
each client (vLLM accepts no further envelope). `lose_live` and `deaf` apply from the next message.
`lost` counts dropped live messages.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import zmq

from tests.support.waiting import until

_POLL_MS = 20


class KvProxy:
    def __init__(self, events: str, replay: str) -> None:
        """Connect to the publisher's endpoints."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._behind = self._socket(zmq.SUB)
        self._behind.subscribe(b"")
        self._behind.connect(events)
        self._replay = replay
        self._front = self._socket(zmq.PUB)
        self.events = f"tcp://127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._askers = self._socket(zmq.ROUTER)
        self.replay = f"tcp://127.0.0.1:{self._askers.bind_to_random_port('tcp://127.0.0.1')}"
        self._dealers: dict[bytes, Any] = {}
        self.lose_live = False
        self.deaf = False  # drop replay requests
        self.passed = 0
        self.lost = 0
        self.replay_starts: list[
            int
        ] = []  # start numbers of replay requests, dropped ones included
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-proxy", daemon=True)

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.linger = 0
        return socket

    def __enter__(self) -> KvProxy:
        self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join(10)
        self._context.destroy(linger=0)

    def loses(self, count: int) -> None:
        """Wait until `count` live messages in total were dropped."""
        until(lambda: self.lost >= count, what=f"{count} lost messages")

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._behind, zmq.POLLIN)
        poller.register(self._askers, zmq.POLLIN)
        while not self._ending.is_set():
            ready = dict(poller.poll(_POLL_MS))
            if self._behind in ready:
                self._live(self._behind.recv_multipart())
            if self._askers in ready:
                self._question(poller, *self._askers.recv_multipart())
            for asker, dealer in self._dealers.items():
                if dealer in ready:
                    self._askers.send_multipart([asker, *dealer.recv_multipart()])

    def _live(self, frames: list[bytes]) -> None:
        if self.lose_live:
            self.lost += 1
        else:
            self._front.send_multipart(frames)
            self.passed += 1

    def _question(self, poller: zmq.Poller, asker: bytes, *frames: bytes) -> None:
        self.replay_starts.append(int.from_bytes(frames[-1], "big"))
        if self.deaf:
            return
        if asker not in self._dealers:
            dealer = self._dealers[asker] = self._socket(zmq.DEALER)
            dealer.connect(self._replay)
            poller.register(dealer, zmq.POLLIN)
        self._dealers[asker].send_multipart(list(frames))
