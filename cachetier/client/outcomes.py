"""What becomes of a key, and how often: the words every operation of the client answers with."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class KeyOutcome(StrEnum):
    """What became of one key."""

    OK = "ok"
    MISSING = "missing"  # not there; for an EXISTS, not a failure
    CORRUPT = "corrupt"  # there, and not what was stored under this key
    UNREADABLE = "unreadable"  # there, sealed in a way this client cannot check
    REFUSED = "refused"  # the cache answered with an error: full, too large
    TIMEOUT = "timeout"
    ERROR = "error"  # unreachable, cut, out of step, denied
    OPEN = "open"  # not asked: the breaker is open
    NO_NODE = "no_node"  # not asked: no node is known
    MOVED = "moved"  # redirected: too often, or to a node that must not be followed


# An answer of the node, however little use; anything else says that the node is not well.
ANSWERED = frozenset(
    {
        KeyOutcome.OK,
        KeyOutcome.MISSING,
        KeyOutcome.CORRUPT,
        KeyOutcome.UNREADABLE,
        KeyOutcome.REFUSED,
        KeyOutcome.MOVED,
    }
)


@dataclass(slots=True)
class Counters:
    """Plain sums since the start; read by whoever exports them. `by_outcome` is keyed by
    (operation, outcome), operation being lookup, load or store."""

    by_outcome: dict[tuple[str, str], int] = field(default_factory=dict)
    bytes_loaded: int = 0
    bytes_stored: int = 0
    # Blocks loaded, or not, through a node's shared memory, by reason (cachetier.client.shared_memory).
    by_shared: dict[str, int] = field(default_factory=dict)
    changes: int = 0  # goes up with every batch: whether it is worth looking again
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

    def absorb(self, other: Counters) -> None:
        """Add what another counted; it is not used any more."""
        counted = dict(other.by_outcome)  # a copy: somebody may be counting
        shared = dict(other.by_shared)
        with self._lock:
            for reason, count in shared.items():
                self.by_shared[reason] = self.by_shared.get(reason, 0) + count
            for name, count in counted.items():
                self.by_outcome[name] = self.by_outcome.get(name, 0) + count
            self.changes += 1
            self.bytes_loaded += other.bytes_loaded
            self.bytes_stored += other.bytes_stored
