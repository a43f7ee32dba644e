"""A thread for work which must not hold up the loop: writing to disk, sending spans.

Promises that handing over costs the loop a few hundred nanoseconds and bounded memory whatever
the disk or the network does, that what finds no room is counted, and that an ended thread has
done what was handed to it, or has had its time. Must not know what the work is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
_STOP_WAIT_S = 2.0


class Background(Generic[Item]):
    """`work(items)` runs in the thread with one or more items, in order.

    `linger_s`: how long the first of them waits for more.
    `dropped`: items which came while `limit` were waiting.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[list[Item]], None],
        limit: int,
        batch: int,
        linger_s: float = 0.0,
    ) -> None:
        self.dropped = 0
        self._work = work
        self._limit = limit
        self._batch = batch
        self._linger_s = linger_s
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, item: Item) -> None:
        if self._queue.qsize() >= self._limit:
            self.dropped += 1
        else:
            self._queue.put(item)

    def stop(self) -> None:
        """No more items; the thread ends after what it has. Does not wait."""
        self._queue.put(None)

    def join(self, timeout_s: float = _STOP_WAIT_S) -> bool:
        """After `stop`: has it ended within this time?"""
        self._thread.join(timeout_s)
        return self.ended

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            items = [item]
            ended = False
            time.sleep(self._linger_s)
            while len(items) < self._batch and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    ended = True
                    break
                items.append(more)
            self._work(items)
            if ended:
                return


def give_way() -> None:
    """Between two items: let the loop have the interpreter, it may be waiting for it."""
    time.sleep(0)
