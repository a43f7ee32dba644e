"""Base class of worker discovery: polling task, last good result, error accounting.

A failure never removes workers: the last result stays; the failure is counted by reason and logged
once until it changes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from routing.engine.config import WorkerConfig

if TYPE_CHECKING:
    from routing.engine.observe.logs import Log
    from routing.engine.observe.metrics import Metrics


class DiscoveryError(Exception):
    """Discovery failed; `reason` is a metric label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WorkerFinder(ABC):
    """One discovery source. `workers` is the last good result."""

    kind: str
    reasons: tuple[str, ...]  # failure reasons; their counters exist from the start

    def __init__(self, name: str) -> None:
        self.name = f"{self.kind}:{name}"
        self.workers: tuple[WorkerConfig, ...] = ()
        self.last_success = 0.0
        self.error = ""
        self._changed: Callable[[], None]
        self._log: Log
        self._metrics: Metrics

    def attach(self, changed: Callable[[], None], log: Log, metrics: Metrics) -> None:
        """Set the change callback, log and metrics; call before `run`."""
        self._changed, self._log, self._metrics = changed, log, metrics
        for reason in self.reasons:
            metrics.discovery_errors.child(self.name, reason)
        metrics.discovery_success.child(self.name)
        metrics.discovered.child(self.name)

    @abstractmethod
    async def run(self) -> None: ...

    def succeeded(self, workers: tuple[WorkerConfig, ...]) -> None:
        self.last_success = time.time()
        self._metrics.discovery_success.child(self.name).value = self.last_success
        self._metrics.discovered.child(self.name).value = len(workers)
        if self.error:
            self.error = ""
            self._log.event("info", "discovery_recovered", source=self.name)
        if workers != self.workers:
            self.workers = workers
            self._log.event("info", "discovered", source=self.name, workers=len(workers))
            self._changed()

    def count(self, error: DiscoveryError) -> None:
        self._metrics.discovery_errors.child(self.name, error.reason).value += 1

    def failed(self, error: DiscoveryError) -> None:
        self.count(error)
        text = str(error)
        if text != self.error:
            self.error = text
            self._log.event(
                "warning",
                "discovery_failed",
                source=self.name,
                reason=error.reason,
                error=text,
                kept=len(self.workers),
            )
