"""Outcomes per key and their counters."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class KeyOutcome(StrEnum):
    OK = "ok"
    MISSING = "missing"  # absent; not a failure of EXISTS
    CORRUPT = "corrupt"  # present, but not the value stored under this key
    UNREADABLE = "unreadable"  # present, with a seal this client cannot verify
    REFUSED = "refused"  # error reply: full, value too large
    TIMEOUT = "timeout"
    ERROR = "error"  # unreachable, disconnected, out of sync, denied
    OPEN = "open"  # not sent: circuit breaker open
    NO_NODE = "no_node"  # not sent: no known node
    MOVED = "moved"  # redirected too often, or to an untrusted node


class PreviousResult(StrEnum):
    """Result at the previous owner of a moved key; a `move` copies a value found to its owner."""

    OK = "ok"
    MISSING = "missing"
    FAILED = "failed"
    DROPPED = "dropped"  # not moved: too many moves are pending


# Outcomes of a healthy node; all others count as node failures.
HEALTHY_OUTCOMES = frozenset(KeyOutcome) - {
    KeyOutcome.TIMEOUT,
    KeyOutcome.ERROR,
    KeyOutcome.OPEN,
    KeyOutcome.NO_NODE,
}


@dataclass(slots=True)
class Counters:
    """Sums since the start; `by_outcome` is keyed by (lookup | load | store, outcome)."""

    by_outcome: dict[tuple[str, str], int] = field(default_factory=dict)
    bytes_loaded: int = 0
    bytes_stored: int = 0
    # Blocks by shared memory result (cachetier.client.shared_memory).
    by_shared: dict[str, int] = field(default_factory=dict)
    # Blocks looked up at their previous owner, by (lookup | load | move, PreviousResult).
    by_previous: dict[tuple[str, str], int] = field(default_factory=dict)
    changes: int = 0  # incremented with every batch, to detect changes cheaply
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, operation: str, outcomes: Iterable[KeyOutcome], byte_count: int) -> None:
        with self._lock:
            for outcome in outcomes:
                name = (operation, outcome.value)
                self.by_outcome[name] = self.by_outcome.get(name, 0) + 1
            self.changes += 1
            if operation == "load":
                self.bytes_loaded += byte_count
            else:
                self.bytes_stored += byte_count

    def add_shared(self, reason: str, count: int) -> None:
        if count:
            with self._lock:
                self.by_shared[reason] = self.by_shared.get(reason, 0) + count

    def add_previous(self, operation: str, result: PreviousResult, count: int) -> None:
        if count:
            with self._lock:
                name = (operation, result.value)
                self.by_previous[name] = self.by_previous.get(name, 0) + count
                self.changes += 1

    def absorb(self, other: Counters) -> None:
        counted = dict(other.by_outcome)  # a copy: another thread may be counting
        shared = dict(other.by_shared)
        with self._lock:
            for reason, count in shared.items():
                self.by_shared[reason] = self.by_shared.get(reason, 0) + count
            for name, count in counted.items():
                self.by_outcome[name] = self.by_outcome.get(name, 0) + count
            self.changes += 1
            self.bytes_loaded += other.bytes_loaded
            self.bytes_stored += other.bytes_stored
