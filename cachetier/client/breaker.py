"""Circuit breaker around one cache node, closed by a probe.

Thread-safe. Times are the caller's monotonic clock.

    closed     operations pass; `threshold` consecutive failures, or `trip`, open it
    open       no operation passes; after the rest period one probe at a time is allowed: success
               closes it, failure doubles the rest period
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
        self._unproven = False  # closed by a probe, no operation succeeded since

    @property
    def is_open(self) -> bool:
        return self._until is not None

    def rest_s(self, now: float) -> float:
        """Return the seconds until a probe is allowed, 0 if closed."""
        until = self._until
        return 0.0 if until is None else max(until - now, 0.0)

    def allows(self, now: float) -> bool:
        """Return whether an operation or probe may run; it must end in `succeeded` or `failed`."""
        if self._until is None:  # fast path without the lock
            return True
        with self._lock:
            if self._until is None:
                return True
            if self._probing or now < self._until:
                return False
            self._probing = True
            return True

    def succeeded(self, *, is_probe: bool = False) -> bool:
        """Return whether this closed the breaker.

        Only an operation resets failures and rest period: a node may answer probes and no more.
        """
        if self._until is None and (is_probe or (self._failures == 0 and not self._unproven)):
            return False
        with self._lock:
            was_open = self._until is not None
            self._failures = 0
            self._until = None
            self._probing = False
            self._unproven = is_probe
            if not is_probe:
                self._rest_s = self._first_rest_s
            return was_open

    def failed(self, now: float) -> bool:
        """Return whether this opened the breaker."""
        with self._lock:
            self._failures += 1
            if self._until is None and self._failures < self._threshold:
                return False
            return self._open(now)

    def trip(self, now: float) -> bool:
        """Open the breaker whatever the number of failures; return whether this opened it."""
        with self._lock:
            return self._open(now)

    def _open(self, now: float) -> bool:
        """Open, or extend the rest period after a failed probe. Requires the lock."""
        opened = self._until is None
        if self._probing or (opened and self._unproven):
            self._rest_s = min(2 * self._rest_s, self._longest_rest_s)
        if opened or self._probing:
            self._until = now + self._rest_s
        self._probing = self._unproven = False
        return opened
