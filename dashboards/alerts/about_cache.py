"""Alert rules about cache tiers and the traffic between workers and them. Pure.

No request fails because of a cache, so none of these wakes anybody: they say why first tokens are
late, or soon will be. Names of metrics stand in queries.py.
"""

from __future__ import annotations

from dashboards import queries as q
from dashboards.alerts.rule import TICKET, Rule, quantile, rate

_POOL = "pool"
_MEDIUM = "pool, medium"
_TIER = "namespace, endpoint_name, tier"
_GETS = '{op="get"}'
_EVICTIONS = 10  # values a second: full and turning over, not just full


def _errors() -> str:
    bad = rate(q.L2_OPERATIONS, _POOL, "5m", '{result=~"error|timeout"}')
    return f"{bad} / ({rate(q.L2_OPERATIONS, _POOL, '5m')} > 0) > 0.01"


def _full() -> str:
    fill = f"sum by ({_MEDIUM}) ({q.L2_USED}) / sum by ({_MEDIUM}) ({q.L2_CAPACITY})"
    turning = f"{rate(q.L2_EVICTED, _POOL, '10m')} > {_EVICTIONS}"
    return f"{fill} > 0.95 and on ({_POOL}) {turning}"


def _failed() -> str:
    promoted, cascaded = (rate(m, _TIER, "10m") for m in (q.PROMOTIONS_FAILED, q.CASCADES_FAILED))
    return f"{promoted} > 0 or {cascaded} > 0"


RULES: tuple[Rule, ...] = (
    Rule(
        "L2Unavailable",
        'up{job="l2"} == 0',
        "2m",
        TICKET,
        "one of its nodes cannot be scraped, and probably not be reached",
        "See the tier's page and the node's log; it is started again by itself. What it held is "
        "computed again, or read from its disk when it is back.",
        about=_POOL,
    ),
    Rule(
        "L2ErrorRatio",
        _errors(),
        "5m",
        TICKET,
        "more than 1 % of the operations on it fail",
        "See the nodes' logs, and emberline_l2_operations_total by result.",
        about=_POOL,
    ),
    Rule(
        "L2SlowGet",
        f"{quantile(0.99, q.L2_DURATION, _POOL, '5m', _GETS)} > 0.25",
        "10m",
        TICKET,
        "one read in a hundred takes longer than 0.25 s; computing may be quicker",
        "Its network or its disk may be at their limit: more nodes, or more of it in memory.",
        about=_POOL,
    ),
    Rule(
        "L2NearFull",
        _full(),
        "30m",
        TICKET,
        "it is full, and values leave it all the time",
        "Its page draws what more memory or disk would bring; the knee is marked.",
        about=_POOL,
    ),
    Rule(
        "L2Integrity",
        f"increase({q.L2_INTEGRITY}[15m]) > 0",
        "0m",
        TICKET,
        "a value which came back was not what had been stored; it was refused and computed again",
        "Look for another writer under its keys, then at memory and disk of the node.",
        about=_POOL,
    ),
    Rule(
        "OffloadFailures",
        _failed(),
        "10m",
        TICKET,
        "its workers fail to move attention state between tiers",
        "The workers' logs name the tier and the reason; requests compute instead.",
        about="endpoint_name",
    ),
    Rule(
        "OffloadBackpressure",
        f"{rate(q.BLOCKS_DROPPED, _TIER, '10m')} > 0",
        "15m",
        TICKET,
        "its workers drop what they should have stored, because a tier takes it too slowly",
        "What is dropped is computed again later. A larger L1, more nodes of L2, or a quicker "
        "network help.",
        about="endpoint_name",
    ),
)
