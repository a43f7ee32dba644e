"""Circuit breaker around one cache node, with a single probe before it closes.

Thread-safe. Times are the caller's monotonic clock.

    closed     all operations pass; `threshold` consecutive failures open it
    open       no operation passes until the open period ends
    half open  one operation passes; success closes, failure reopens for twice as long
"""

from __future__ import annotations

import threading


class CircuitBreaker:
    def __init__(
        self, threshold: int = 3, first_rest_s: float = 1.0, longest_rest_s: float = 30.0
    ) -> None:
        self._threshold = threshold
        self._first_rest_s = first_rest_s
        self._longest_rest_s = longest_rest_s
        self._lock = threading.Lock()
        self._failures = 0
        self._rest_s = first_rest_s
        self._until: float | None = None  # None: closed
        self._probing = False

    @property
    def is_open(self) -> bool:
        return self._until is not None

    def allows(self, now: float) -> bool:
        """Return whether an operation may run; it must end in `succeeded` or `failed`."""
        if self._until is None:  # fast path without the lock
            return True
        with self._lock:
            if self._until is None:
                return True
            if self._probing or now < self._until:
                return False
            self._probing = True
            return True

    def succeeded(self) -> bool:
        """Return whether this closed the breaker."""
        if self._until is None and self._failures == 0:
            return False
        with self._lock:
            was_open = self._until is not None
            self._failures = 0
            self._rest_s = self._first_rest_s
            self._until = None
            self._probing = False
            return was_open

    def failed(self, now: float) -> bool:
        """Return whether this opened the breaker."""
        with self._lock:
            self._failures += 1
            if self._until is None and self._failures < self._threshold:
                return False
            opened = self._until is None
            if not opened and self._probing:
                self._rest_s = min(2 * self._rest_s, self._longest_rest_s)
            if opened or self._probing:
                self._until = now + self._rest_s
            self._probing = False
            return opened
