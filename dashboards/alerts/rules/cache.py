"""Alert rules for cache tiers and the transfers between workers and tiers.

A cache problem fails no request, so none of these rules pages: they explain a rising TTFT.
"""

from __future__ import annotations

from dashboards.alerts.rules.parameter import Parameter
from dashboards.alerts.rules.rule import Rule, quantile, rate, select, threshold, window
from dashboards.boards.queries import metric_names as q

_POOL = "pool"
_MEDIUM = "pool, medium"
_TIER = "namespace, endpoint_name, tier"
_GETS = 'op="get"'
_EVICTIONS = rate(q.L2_EVICTED, _POOL, "10m")


def _errors() -> str:
    bad = rate(q.L2_OPERATIONS, _POOL, "<window>", 'result=~"error|timeout"')
    return f"{bad} / ({rate(q.L2_OPERATIONS, _POOL, '<window>')} > 0)"


def _failed() -> str:
    """Add both, with 0 for a missing one."""
    failures = (
        f"{rate(metric, _TIER, '<window>')} > 0"
        for metric in (q.PROMOTIONS_FAILED, q.CASCADES_FAILED)
    )
    return " or ".join(failures)


RULES: tuple[Rule, ...] = (
    Rule(
        "L2Unavailable",
        'up{job="l2"}',
        "2m",
        "an L2 node cannot be scraped and is probably unreachable",
        "Check the tier's page and the node's log. The node is restarted automatically; its "
        "memory contents are lost, disk contents are reloaded.",
        condition="<measured> == 0",
        about=_POOL,
    ),
    Rule(
        "L2ErrorRatio",
        _errors(),
        "5m",
        "more than <threshold> of L2 operations fail",
        "Check the node logs, and emberline_l2_operations_total by result.",
        about=_POOL,
        parameters=(threshold("Error ratio threshold", 0.01, 0.0, 0.9, "share"), window("3m")),
    ),
    Rule(
        "L2SlowGet",
        quantile(0.99, q.L2_DURATION, _POOL, "<window>", _GETS),
        "10m",
        "L2 read latency p99 is above <threshold>; recomputing may be faster",
        "Check network and disk throughput of the tier: add nodes, or increase the memory share.",
        about=_POOL,
        parameters=(threshold("Latency p99 threshold", 0.25, 0.001, 30.0, "seconds"), window("5m")),
    ),
    Rule(
        "L2NearFull",
        f"sum by ({_MEDIUM}) ({select(q.L2_USED)}) / sum by ({_MEDIUM}) ({select(q.L2_CAPACITY)})",
        "30m",
        "L2 utilization is above <threshold> with continuous evictions",
        "Check the capacity curve on the tier's page for the benefit of more memory or disk.",
        condition=f"<measured> > <threshold> and on ({_POOL}) {_EVICTIONS} > <evictions>",
        about=_POOL,
        parameters=(
            threshold("Utilization threshold", 0.95, 0.1, 1.0, "share"),
            # Full with evictions, not just full.
            Parameter("evictions", "Eviction rate threshold", 10.0, 0.0, 1e6, "a second"),
        ),
    ),
    Rule(
        "L2Integrity",
        f"increase({q.L2_INTEGRITY}[15m])",
        "0m",
        "an L2 value failed its integrity check and was discarded",
        "Check for another writer with the same keys, then memory and disk of the node.",
        condition="<measured> > 0",
        about=_POOL,
    ),
    Rule(
        "OffloadFailures",
        _failed(),
        "10m",
        "KV block transfers between tiers fail",
        "Check the worker logs for tier and reason. The blocks are recomputed.",
        condition="<measured>",
        about="endpoint_name",
        parameters=(window("5m"),),
        measured_in="a second",
    ),
    Rule(
        "OffloadBackpressure",
        rate(q.BLOCKS_DROPPED, _TIER, "<window>"),
        "15m",
        "KV blocks are dropped because a tier accepts writes too slowly",
        "Increase L1, add L2 nodes, or use a faster network. Dropped blocks are recomputed later.",
        about="endpoint_name",
        parameters=(
            threshold("Dropped blocks threshold", 0.0, 0.0, 1e6, "a second"),
            window("10m"),
        ),
    ),
)
