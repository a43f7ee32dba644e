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
    found = (
        f"{rate(metric, _TIER, '<window>')} > 0"
        for metric in (q.PROMOTIONS_FAILED, q.CASCADES_FAILED)
    )
    return " or ".join(found)


RULES: tuple[Rule, ...] = (
    Rule(
        "L2Unavailable",
        'up{job="l2"}',
        "2m",
        "one of its nodes cannot be scraped, and probably not be reached",
        "See the tier's page and the node's log; it is started again by itself. What it held is "
        "computed again, or read from its disk when it is back.",
        condition="<measured> == 0",
        about=_POOL,
    ),
    Rule(
        "L2ErrorRatio",
        _errors(),
        "5m",
        "more than <threshold> of the operations on it fail",
        "See the nodes' logs, and emberline_l2_operations_total by result.",
        about=_POOL,
        parameters=(threshold("More than", 0.01, 0.0, 0.9, "share"), window("5m")),
    ),
    Rule(
        "L2SlowGet",
        quantile(0.99, q.L2_DURATION, _POOL, "<window>", _GETS),
        "10m",
        "one read in a hundred takes longer than <threshold>; computing may be quicker",
        "Its network or its disk may be at their limit: more nodes, or more of it in memory.",
        about=_POOL,
        parameters=(threshold("Slower than", 0.25, 0.001, 30.0, "seconds"), window("5m")),
    ),
    Rule(
        "L2NearFull",
        f"sum by ({_MEDIUM}) ({select(q.L2_USED)}) / sum by ({_MEDIUM}) ({select(q.L2_CAPACITY)})",
        "30m",
        "it is full, and values leave it all the time",
        "Its page draws what more memory or disk would bring; the knee is marked.",
        condition=f"<measured> > <threshold> and on ({_POOL}) {_EVICTIONS} > <evictions>",
        about=_POOL,
        parameters=(
            threshold("Fuller than", 0.95, 0.1, 1.0, "share"),
            # Full with evictions, not just full.
            Parameter("evictions", "And more values leave it than", 10.0, 0.0, 1e6, "a second"),
        ),
    ),
    Rule(
        "L2Integrity",
        f"increase({q.L2_INTEGRITY}[15m])",
        "0m",
        "a value which came back was not what had been stored; it was refused and computed again",
        "Look for another writer under its keys, then at memory and disk of the node.",
        condition="<measured> > 0",
        about=_POOL,
    ),
    Rule(
        "OffloadFailures",
        _failed(),
        "10m",
        "its workers fail to move attention state between tiers",
        "The workers' logs name the tier and the reason; requests compute instead.",
        condition="<measured>",
        about="endpoint_name",
        parameters=(window("10m"),),
        measured_in="a second",
    ),
    Rule(
        "OffloadBackpressure",
        rate(q.BLOCKS_DROPPED, _TIER, "<window>"),
        "15m",
        "its workers drop what they should have stored, because a tier takes it too slowly",
        "What is dropped is computed again later. A larger L1, more nodes of L2, or a quicker "
        "network help.",
        about="endpoint_name",
        parameters=(threshold("More blocks than", 0.0, 0.0, 1e6, "a second"), window("10m")),
    ),
)
