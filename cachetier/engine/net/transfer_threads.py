"""Threads that copy long values between sockets and the arena.

Copying is most of a long request's CPU time and releases the interpreter lock, so that several
copies run on several cores while the event loop serves short requests. A copy ends when its value
is complete, when the socket has been idle for a moment or when others wait; the event loop awaits
the rest. The event loop must not use the socket, nor free its buffers, before `done`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

log = logging.getLogger(__name__)

# Minimum bytes left of a copy: a hand-over costs as much as copying about 200 KiB.
MIN_BYTES: Final = 512 * 1024
# Bytes per wakeup while receiving; less than half a value, so that it is copied while it arrives.
WAKEUP_BYTES: Final = 256 * 1024
# Buffers per system call, below IOV_MAX (1024).
MAX_PIECES: Final = 512
# Another client's copy this long ago means that several clients transfer at once.
_TOGETHER_S: Final = 0.02
_MIN_RECEIVING_THREADS: Final = 3
_IDLE_MS: Final = 1
_TURN_S: Final = 0.05
_FAIR_BYTES: Final = 8 * 1024 * 1024

# Called on the event loop.
Done = Callable[["Copy"], None]


@dataclass(slots=True, eq=False)
class Copy:
    """Bytes to receive into (`length` of the value, then up to the buffers' end) or to send."""

    sock: socket.socket
    buffers: list[memoryview]
    length: int
    is_receiving: bool
    done: Done
    moved: int = 0
    has_ended: bool = False  # end of stream
    failed: bool = False

    def run(self, has_others: Callable[[], bool]) -> None:
        """Copy until complete, idle or due to yield. Any thread."""
        poller = select.poll()
        poller.register(self.sock, select.POLLIN if self.is_receiving else select.POLLOUT)
        end = time.monotonic() + _TURN_S
        while self.moved < self.length and not self.has_ended:
            try:
                self._move()
            except (BlockingIOError, InterruptedError):
                if has_others() or not self._is_ready(poller):
                    return
            except OSError:
                self.failed = True
                return
            if time.monotonic() > end or (self.moved > _FAIR_BYTES and has_others()):
                return

    def _move(self) -> None:
        pieces = self.buffers[:MAX_PIECES]
        if not self.is_receiving:
            count = self.sock.sendmsg(pieces)
        else:
            count = self.sock.recvmsg_into(pieces)[0]
            self.has_ended = not count
        self.moved += count
        buffers, done = self.buffers, 0
        while done < len(buffers) and count >= len(buffers[done]):
            count -= len(buffers[done])
            done += 1
        del buffers[:done]
        if count:
            buffers[0] = buffers[0][count:]

    def _is_ready(self, poller: select.poll) -> bool:
        if self.is_receiving:
            low_water = min(self.length - self.moved, WAKEUP_BYTES)
            with contextlib.suppress(OSError):  # only costs more wakeups
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
        return bool(poller.poll(_IDLE_MS))


class TransferThreads:
    """Up to `count` threads, started on first use; 0: everything stays on the event loop.

    With up to two threads, thus cores, values are received on the event loop: measured on two cores
    that clients share, receiving on threads takes up to a fifth more CPU time.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: SimpleQueue[Copy | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running = 0
        self._last_owner = 0
        self._last_at = 0.0

    def suits(self, owner: int, length: int, *, is_receiving: bool) -> bool:
        """Return whether to leave the event loop: others copy now, or did just before.

        A single client gains nothing: it waits for its own copy.
        """
        if length < MIN_BYTES or not self._count:
            return False
        now = time.monotonic()
        is_other = owner != self._last_owner and now - self._last_at < _TOGETHER_S
        self._last_owner, self._last_at = owner, now
        if is_receiving and self._count < _MIN_RECEIVING_THREADS:
            return False
        return is_other or self._running > 0

    def start(self, copy: Copy) -> None:
        """Run `copy` on a thread, then `copy.done` on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._running += 1
        if self._running > len(self._threads) and len(self._threads) < self._count:
            thread = threading.Thread(target=self._work, daemon=True, name="l2-transfer")
            self._threads.append(thread)
            thread.start()
        self._waiting.put(copy)

    def close(self) -> None:
        """End the threads after the copies in progress."""
        for _ in self._threads:
            self._waiting.put(None)

    def _has_others(self) -> bool:
        return not self._waiting.empty()

    def _work(self) -> None:
        while (copy := self._waiting.get()) is not None:
            try:
                copy.run(self._has_others)
            except Exception:  # the connection is closed; other copies go on
                log.exception("Transfer failed")
                copy.failed = True
            try:
                self._loop.call_soon_threadsafe(self._finish, copy)
            except RuntimeError:  # event loop closed: the result is not awaited
                return

    def _finish(self, copy: Copy) -> None:
        self._running -= 1
        copy.done(copy)
