"""Background probe of a cache node, so that no request waits for a node known to be silent.

A thread exists only while the node is in doubt: after a timeout it queries the node at once, which
opens the breaker without waiting for further timeouts; after each rest period of an open breaker it
queries again until the node responds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cachetier.client.breaker import CircuitBreaker

# Deadline of one query (s).
PROBE_S = 0.5


class NodeProbe:
    """Probe of one node: `query(seconds)` returns the problem, "" if the node responds.

    `on_open(problem)` and `on_close()` report what the probe did to the breaker.
    """

    def __init__(
        self,
        breaker: CircuitBreaker,
        query: Callable[[float], str],
        on_open: Callable[[str], None],
        on_close: Callable[[], None],
    ) -> None:
        self._breaker = breaker
        self._query = query
        self._on_open = on_open
        self._on_close = on_close
        self._lock = threading.Lock()
        self._running = False
        self._closing = threading.Event()

    def start(self) -> None:
        """Probe until the node responds, unless a probe is running."""
        with self._lock:
            if self._running or self._closing.is_set():
                return
            self._running = True
        threading.Thread(target=self._run, name="emberline-probe", daemon=True).start()

    def close(self) -> None:
        """End the probe without waiting for it."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._breaker.rest_s(time.monotonic())):
            if not self._breaker.allows(time.monotonic()):
                continue
            problem = self._query(PROBE_S)
            if problem:
                if self._breaker.trip(time.monotonic()):
                    self._on_open(problem)
                continue
            if self._breaker.succeeded(is_probe=True):
                self._on_close()
            with self._lock:
                # It may have been opened again since.
                self._running = self._breaker.is_open
                if not self._running:
                    return
