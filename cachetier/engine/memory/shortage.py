"""What a node does when the system gives it no more memory.

It evicts, and answers again with what that frees; its Python objects take memory beside the values.
If an eighth less after the other does not help, the node ends, so that its supervisor starts a new
one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

log = logging.getLogger(__name__)

_SHED_INTERVAL_S: Final = 0.5
_LOG_INTERVAL_S: Final = 60.0
# Without a failure for this long, a shortage is over.
_OVER_S: Final = 10.0
# Of failures, after which the node is not ready, and after which it ends.
_BAD_S: Final = 5.0
_LASTS_S: Final = 30.0
# Freed one by one, for what failures take to handle: without any memory nothing can be evicted.
_RESERVES: Final = 4
_RESERVE_BYTES: Final = 1024 * 1024


class MemoryShortage:
    """Reaction to a shortage of memory. `shed` evicts a part of the values. `end` is called with
    the reason if that does not help.
    """

    def __init__(self, shed: Callable[[float], None], end: Callable[[str], None]) -> None:
        self._shed = shed
        self.end = end
        self._reserves = [bytes(_RESERVE_BYTES) for _ in range(_RESERVES)]
        self._began_at = self._failed_at = self._shed_at = self._logged_at = float("-inf")
        self.failures = 0

    def failed(self) -> None:
        """Note a MemoryError and free memory. Does not raise."""
        if self._reserves:
            self._reserves.pop()
        try:
            self._free()
        except MemoryError:
            if not self._reserves:
                self.end("out of memory, and none left to evict values")

    def _free(self) -> None:
        now = monotonic()
        if now > self._failed_at + _OVER_S:
            self._began_at = now
        self._failed_at = now
        self.failures += 1
        if now > self._began_at + _LASTS_S:
            self.end(f"out of memory for {_LASTS_S:.0f} s although values were evicted")
            return
        if now > self._shed_at + _SHED_INTERVAL_S or not self._reserves:
            self._shed_at = now
            self._shed(now)
        if now > self._logged_at + _LOG_INTERVAL_S:
            self._logged_at = now
            log.error(
                "The system gave no memory (%d times so far); values were evicted. Give this "
                "node more memory, or less with --memory",
                self.failures,
            )

    def trouble(self) -> str:
        """Return what is wrong if it lasts; empty otherwise."""
        if self._failed_at - self._began_at < _BAD_S or monotonic() > self._failed_at + _OVER_S:
            return ""
        return f"out of memory since {monotonic() - self._began_at:.0f} s"

    def tick(self) -> None:
        """Take a reserve back. Called once per second."""
        if len(self._reserves) < _RESERVES:
            self._reserves.append(bytes(_RESERVE_BYTES))
