"""What the plug-in counted, in the shape vLLM exports on its own /metrics.

vLLM counts chunks and bytes a tier; it does not count lookups that failed, values that were
corrupt, or a cache that is being left alone. These do:

    emberline_l2_client_operations_total{op=lookup|load|store, result=...}
    emberline_l2_client_bytes_total{op=load|store}
    emberline_l2_client_lookups_timed_out_total   lookups answered "no" before the cache did
    emberline_l2_client_stores_dropped_total      blocks not stored because too many were waiting
    emberline_l2_client_breaker_open              1 while the cache is left alone
"""

from __future__ import annotations

from cachetier.client.sync import CacheClient, Outcome
from cachetier.vllm_connector.compat import (
    OffloadingConnectorStats,
    OffloadingCounterMetadata,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
)
from cachetier.vllm_connector.lookups import LookupBoard
from cachetier.vllm_connector.transfers import TransferPool

# prometheus_client adds _total to a counter's name.
OPERATIONS = "emberline_l2_client_operations"
BYTES = "emberline_l2_client_bytes"
TIMED_OUT = "emberline_l2_client_lookups_timed_out"
DROPPED = "emberline_l2_client_stores_dropped"
BREAKER = "emberline_l2_client_breaker_open"

_RESULTS = {
    "lookup": (Outcome.OK, Outcome.MISSING),
    "load": (Outcome.OK, Outcome.MISSING, Outcome.CORRUPT),
    "store": (Outcome.OK,),
}
_ALWAYS = (Outcome.REFUSED, Outcome.TIMEOUT, Outcome.ERROR, Outcome.OPEN)


def definitions() -> dict[str, OffloadingMetricMetadata]:
    return {
        OPERATIONS: OffloadingCounterMetadata(
            documentation="Blocks asked of L2, by operation and result.",
            labelnames=("op", "result"),
        ),
        BYTES: OffloadingCounterMetadata(
            documentation="Bytes of blocks moved from and to L2.", labelnames=("op",)
        ),
        TIMED_OUT: OffloadingCounterMetadata(
            documentation="Lookups answered as a miss because L2 had not answered in time."
        ),
        DROPPED: OffloadingCounterMetadata(
            documentation="Blocks not stored in L2 because too many were waiting."
        ),
        BREAKER: OffloadingGaugeMetadata(documentation="1 while L2 is left alone after failures."),
    }


class Reporter:
    """Differences since the last report; the first one holds every series, so that zeros show."""

    def __init__(self, client: CacheClient, board: LookupBoard, pool: TransferPool) -> None:
        self._client = client
        self._board = board
        self._pool = pool
        self._dropped = 0
        self._reported: dict[tuple[str, tuple[str, ...]], float] = {}

    def dropped(self, blocks: int) -> None:
        self._dropped += blocks

    def take(self) -> OffloadingConnectorStats | None:
        current = self._totals()
        report = OffloadingConnectorStats()
        for (name, labels), total in current.items():
            before = self._reported.get((name, labels))
            if before is None or total != before:
                report.increase_counter(name, total - (before or 0), labels)
        breaker = float(self._client.breaker.is_open)
        if self._reported.get((BREAKER, ())) != breaker:
            report.set_gauge(BREAKER, breaker)
        self._reported = {**current, (BREAKER, ()): breaker}
        return None if report.is_empty() else report

    def _totals(self) -> dict[tuple[str, tuple[str, ...]], float]:
        counters = self._client.counters
        totals: dict[tuple[str, tuple[str, ...]], float] = {
            (OPERATIONS, (op, result.value)): counters.by_outcome.get((op, result.value), 0)
            for op, results in _RESULTS.items()
            for result in (*results, *_ALWAYS)
        }
        totals[BYTES, ("load",)] = counters.bytes_loaded
        totals[BYTES, ("store",)] = counters.bytes_stored
        totals[TIMED_OUT, ()] = self._board.timed_out
        totals[DROPPED, ()] = self._dropped
        return totals
