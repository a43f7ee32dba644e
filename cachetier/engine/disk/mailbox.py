"""How the disk's threads tell the loop's thread what happened: in order, one wake-up for many."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

Call = Callable[[], None]
# Has a call made on the loop's thread soon: loop.call_soon_threadsafe.
Post = Callable[[Call], object]


class Mailbox:
    def __init__(self, post: Post) -> None:
        self._post = post
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()
        self._is_posted = False

    def put(self, call: Call) -> None:
        """From any thread."""
        with self._lock:
            self._calls.append(call)
            wake, self._is_posted = not self._is_posted, True
        if wake:
            try:
                self._post(self._deliver)
            except RuntimeError:  # the loop was closed: nobody is left to be told
                return

    def _deliver(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, deque()
            self._is_posted = False
        for call in calls:
            try:
                call()
            except Exception:  # one listener's fault must not keep the others' news from them
                log.exception("hearing of the disk failed")
