"""Node counters."""

from __future__ import annotations

import time
from typing import Final

from cachetier.engine.net import guards
from cachetier.engine.net.access import LoginVerdict
from cachetier.engine.store import EvictionReason
from cachetier.wire.commands import OPERATIONS
from console.processkit.listener import HANDSHAKE_REASONS
from console.processkit.metrics import Histogram

RESULTS: Final = ("hit", "miss", "ok", "error", "timeout")
REJECTIONS: Final = ("admission", "backpressure", "quota", "too_large")
# Reasons for closing or rejecting a connection.
CLOSE_REASONS: Final = (
    guards.LOGIN,
    guards.STALLED,
    guards.IDLE,
    "max_clients",
    "draining",
    "handshakes",
    "http",
    "wrong_password",
)
# Connection names under which values are moved here: by a node that leaves, and by clients that
# found them at their previous owner (cachetier.client.moves).
MOVERS: Final = ("handover", "rebalance")
_MS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_DURATIONS: Final = (*(ms / 1000 for ms in _MS), 1.0, 2.5, 5.0, 10.0)
_AGES: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)
# Namespaces come from clients: beyond this many, the others share one label.
_MAX_NAMESPACES: Final = 64
OTHER_LABEL: Final = "other"


class Counters:
    """Counters of one node. Event loop only."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.operations = {(op, result): 0 for op in OPERATIONS for result in RESULTS}
        self.durations = {op: Histogram(_DURATIONS) for op in OPERATIONS}
        self.in_flight = dict.fromkeys(OPERATIONS, 0)
        self.lookups: dict[str, int] = {"": 0}
        self.hits: dict[str, int] = {"": 0}
        self.read_bytes = 0
        self.written_bytes = 0
        self.moved_in = dict.fromkeys(MOVERS, 0)
        self.evicted = dict.fromkeys(EvictionReason, 0)
        self.ages = Histogram(_AGES)
        self.rejected = dict.fromkeys(REJECTIONS, 0)
        self.integrity_failures = 0
        self.logins = dict.fromkeys(LoginVerdict, 0)
        self.closed = dict.fromkeys(CLOSE_REASONS, 0)
        self.handshakes = dict.fromkeys(HANDSHAKE_REASONS, 0)
        self.admin_refused = 0

    def handshake_failed(self, reason: str) -> None:
        self.handshakes[reason] += 1

    def turned_away(self) -> None:
        self.closed["handshakes"] += 1

    def evict(self, reason: EvictionReason, age_s: float) -> None:
        self.evicted[reason] += 1
        self.ages.observe(age_s)

    def looked_up(self, namespace: str, found: bool) -> None:
        if namespace not in self.lookups:
            if len(self.lookups) > _MAX_NAMESPACES:
                namespace = OTHER_LABEL
            self.lookups.setdefault(namespace, 0)
            self.hits.setdefault(namespace, 0)
        self.lookups[namespace] += 1
        self.hits[namespace] += found

    def hit_rate(self) -> tuple[int, int]:
        """Return (hits, lookups) over all namespaces."""
        return sum(self.hits.values()), sum(self.lookups.values())
