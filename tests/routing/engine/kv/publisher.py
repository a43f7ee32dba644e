"""Publisher like that of vLLM, two lossy channels, and the follower under test.

A payload here is b"process:number", so that what was applied can be read off.
"""

from __future__ import annotations

from collections import deque

from routing.engine.kv.recovery import IDLE_POLL_S, SourceFollower


class Source:
    """A publisher, two lossy channels and a follower; time only moves by `wait`."""

    def __init__(self, buffer: int = 10_000, replay: bool = True) -> None:
        self.process = 1
        self.number = 0
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer)
        self.replay_starts: list[int] = []
        self.sockets = 0
        self.answering = True
        self.lose_replayed: set[int] = set()
        self.now = 100.0
        self.applied: list[bytes] = []
        self.follower = SourceFollower(self, replay)

    # what the follower orders

    def apply(self, payload: bytes, live: bool) -> None:
        self.applied.append(payload)

    def clear(self, waiting_too: bool) -> None:
        self.applied.clear()

    def replay(self, start: int, fresh: bool) -> None:
        if fresh:
            self.replay_starts.clear()
            self.sockets += 1
        self.replay_starts.append(start)

    # what happens

    def connect(self) -> None:
        self.follower.is_connected(self.now)
        self.answer()

    def publish(self, *, lost: bool = False) -> tuple[int, bytes]:
        message = (self.number, b"%d:%d" % (self.process, self.number))
        self.buffer.append(message)
        self.number += 1
        if not lost:
            self.follower.live(*message, self.now)
        return message

    def answer(self) -> None:
        """Serve replay requests until there are no more."""
        while self.replay_starts and self.answering:
            start, socket = self.replay_starts.pop(0), self.sockets
            for number, payload in list(self.buffer):
                if number >= start and number not in self.lose_replayed:
                    self.follower.replayed(number, payload, self.now)
                    if self.sockets != socket:
                        break  # messages of the old one are not received
            else:
                self.follower.replay_ended(self.now)

    def restart(self) -> None:
        self.process += 1
        self.number = 0
        self.buffer.clear()

    def wait(self, seconds: float = IDLE_POLL_S) -> None:
        self.answer()
        self.now += seconds
        self.follower.tick(self.now)
        self.answer()

    def has(self, *numbers: int) -> bool:
        return self.applied == [b"%d:%d" % (self.process, number) for number in numbers]

    def counted(self, *reasons: str) -> bool:
        return all(self.follower.counts[reason] for reason in reasons)
