"""Plug-in statistics in vLLM's /metrics format.

vLLM counts chunks and bytes per tier. These add failed lookups, corrupt values and open breakers:

    emberline_l2_client_operations_total{op=lookup|load|store, result=...}  blocks by result
    emberline_l2_client_bytes_total{op=load|store}
    emberline_l2_client_lookups_timed_out_total   lookups counted as misses at the deadline
    emberline_l2_client_stores_dropped_total      blocks not stored because the queue was full
    emberline_l2_client_shared_memory_total{result=ok|...}  blocks by shared memory result
    emberline_l2_client_previous_owner_total{op=lookup|load|move, result=ok|missing|failed|dropped}
                                                  moved blocks, see cachetier.client.pool
    emberline_l2_client_breaker_open              1 while all breakers are open
    emberline_l2_client_nodes                     known nodes

Per node (a value may be requested from two): emberline_l2_client_node_operations_total,
emberline_l2_client_node_bytes_total, emberline_l2_client_node_breaker_open.
"""

from __future__ import annotations

from cachetier.client.outcomes import Counters, KeyOutcome, PreviousResult
from cachetier.client.pool import CachePool
from cachetier.client.shared_memory import SharedResult
from cachetier.vllm_connector.compat import (
    OffloadingConnectorStats,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
)
from cachetier.vllm_connector.lookups import LookupBoard

# prometheus_client adds _total to a counter's name.
OPERATIONS = "emberline_l2_client_operations"
BYTES = "emberline_l2_client_bytes"
TIMED_OUT = "emberline_l2_client_lookups_timed_out"
DROPPED = "emberline_l2_client_stores_dropped"
SHARED = "emberline_l2_client_shared_memory"
PREVIOUS = "emberline_l2_client_previous_owner"
BREAKER = "emberline_l2_client_breaker_open"
NODES = "emberline_l2_client_nodes"
NODE_OPERATIONS = "emberline_l2_client_node_operations"
NODE_BYTES = "emberline_l2_client_node_bytes"
NODE_BREAKER = "emberline_l2_client_node_breaker_open"

_IMPOSSIBLE = {
    "lookup": (KeyOutcome.CORRUPT, KeyOutcome.UNREADABLE),
    "load": (),
    "store": (KeyOutcome.MISSING, KeyOutcome.CORRUPT, KeyOutcome.UNREADABLE),
}
# All possible series, so that zeros are exported.
_SERIES = tuple(
    (op, outcome.value)
    for op, not_ in _IMPOSSIBLE.items()
    for outcome in KeyOutcome
    if outcome not in not_
)

_PREVIOUS_SERIES = tuple(
    (op, result.value)
    for op, impossible in (
        ("lookup", PreviousResult.DROPPED),
        ("load", PreviousResult.DROPPED),
        ("move", PreviousResult.MISSING),
    )
    for result in PreviousResult
    if result is not impossible
)

_Series = tuple[str, tuple[str, ...]]


# Help text and labels.
_COUNTERS = {
    OPERATIONS: ("L2 block operations, by operation and result.", "op", "result"),
    BYTES: ("Bytes of blocks transferred from and to L2.", "op"),
    TIMED_OUT: ("Lookups counted as a miss because L2 did not respond in time.",),
    DROPPED: ("Blocks not stored in L2 because the queue was full.",),
    SHARED: ("Blocks read from shared memory (ok), or over the socket, by reason.", "result"),
    PREVIOUS: (
        "Blocks whose L2 node changed, looked up at or moved from their previous node.",
        "op", "result",
    ),
    NODE_OPERATIONS: (
        "Block operations of an L2 node, by operation and result.", "node", "op", "result",
    ),
    NODE_BYTES: ("Bytes of blocks transferred from and to an L2 node.", "node", "op"),
}  # fmt: skip
_GAUGES = {
    BREAKER: ("1 while the circuit breakers of all L2 nodes are open.",),
    NODES: ("Known L2 nodes.",),
    NODE_BREAKER: ("1 while the circuit breaker of this L2 node is open.", "node"),
}


def metric_definitions() -> dict[str, OffloadingMetricMetadata]:
    return {
        name: kind(documentation=text, labelnames=tuple(labels))
        for kind, families in (
            (OffloadingCounterMetadata, _COUNTERS),
            (OffloadingGaugeMetadata, _GAUGES),
        )
        for name, (text, *labels) in families.items()
    }


class Reporter:
    """Differences since the last report; the first one contains every series.

    Called at every engine step: steps without changes must cost almost nothing.
    """

    def __init__(self, pool: CachePool, board: LookupBoard) -> None:
        self._pool = pool
        self._board = board
        self._dropped = 0
        self._counted: dict[_Series, float] = {}
        self._gauges: dict[_Series, float] = {}
        self._seen: tuple[object, ...] = ()

    def dropped(self, blocks: int) -> None:
        self._dropped += blocks

    def take(self) -> OffloadingConnectorStats | None:
        breakers = self._pool.open_breakers()
        state = (self._pool.counters.changes, self._board.timed_out, self._dropped, breakers)
        if state == self._seen:
            return None
        self._seen = state
        report = OffloadingConnectorStats()
        for (name, labels), total in self._totals().items():
            before = self._counted.get((name, labels))
            if before is None or total > before:
                report.increase_counter(name, total - (before or 0), labels)
                self._counted[name, labels] = total
        self._report_gauges(report, breakers)
        return None if report.is_empty() else report

    def _report_gauges(self, report: OffloadingConnectorStats, breakers: dict[str, bool]) -> None:
        gauges: dict[_Series, float] = {
            # Reset the breaker gauge of departed nodes.
            **{series: 0.0 for series in self._gauges if series[0] == NODE_BREAKER},
            **{(NODE_BREAKER, (node,)): float(is_open) for node, is_open in breakers.items()},
            (BREAKER, ()): float(self._pool.is_open),
            (NODES, ()): float(len(breakers)),
        }
        for (name, labels), value in gauges.items():
            if self._gauges.get((name, labels)) != value:
                report.set_gauge(name, value, labels)
        # Departed nodes were reset once and can be dropped.
        self._gauges = {
            series: value
            for series, value in gauges.items()
            if series[0] != NODE_BREAKER or series[1][0] in breakers
        }

    def _totals(self) -> dict[_Series, float]:
        totals: dict[_Series, float] = {
            **_labelled(self._pool.counters, OPERATIONS, BYTES, ()),
            (TIMED_OUT, ()): self._board.timed_out,
            (DROPPED, ()): self._dropped,
        }
        previous = dict(self._pool.counters.by_previous)
        totals |= {(PREVIOUS, series): previous.get(series, 0) for series in _PREVIOUS_SERIES}
        by_shared = {result.value: 0 for result in SharedResult}
        for node, counters in self._pool.by_node().items():
            for reason, count in dict(counters.by_shared).items():
                by_shared[reason] += count
            totals |= _labelled(counters, NODE_OPERATIONS, NODE_BYTES, (node,))
        totals |= {(SHARED, (reason,)): count for reason, count in by_shared.items()}
        return totals


def _labelled(
    counters: Counters, operations: str, moved: str, first: tuple[str, ...]
) -> dict[_Series, float]:
    totals: dict[_Series, float] = {
        (operations, (*first, *series)): counters.by_outcome.get(series, 0) for series in _SERIES
    }
    totals[moved, (*first, "load")] = counters.bytes_loaded
    totals[moved, (*first, "store")] = counters.bytes_stored
    return totals
