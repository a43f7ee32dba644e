"""Base class of metrics read from the database and exported at the console's own /metrics.

Rows are cached for `kept_s`. While the database is unavailable, the series are omitted.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from django.db import DatabaseError

from console.core.counters import increment
from console.database import release_connections
from console.processkit.metrics import Registry

log = logging.getLogger(__name__)

Row = TypeVar("Row")


class MetricsCollector(ABC, Generic[Row]):
    """Base class of the console's own metrics from rows. `unknown` counts scrapes without rows
    because the database could not be read.
    """

    unknown: ClassVar[str]
    kept_s: ClassVar[float] = 30.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._rows: Sequence[Row] = ()

    @abstractmethod
    def read(self) -> Sequence[Row]: ...

    @abstractmethod
    def add_series(self, registry: Registry, row: Row) -> None: ...

    def __call__(self, registry: Registry) -> None:
        for row in self._now():
            self.add_series(registry, row)

    def _now(self) -> Sequence[Row]:
        with self._lock:
            if time.monotonic() < self._until:
                return self._rows
            try:
                self._rows = self.read()
                self._until = time.monotonic() + self.kept_s
            except DatabaseError as error:
                increment(self.unknown)
                reason = type(error).__name__
                log.warning("Database unavailable (%s); counted in %s", reason, self.unknown)
                self._rows = ()
            finally:
                release_connections()  # the admin port's thread has no request that ends
            return self._rows
