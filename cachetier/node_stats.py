"""What a node says of itself on its admin port, as a few numbers for people.

Promises a deadline, and None rather than an error: a node that does not answer costs nothing but
the numbers. A number the node does not show is None, not zero.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import httpx

from console.exposition import Sample, parse, total
from console.fetch import fetch

DEADLINE_S = 1.0
_OPERATIONS = "emberline_l2_operations_total"
_MAX_BYTES = 2 * 1024**2


@dataclass(frozen=True, slots=True)
class NodeStats:
    """Bytes and counts since the node's start."""

    used_bytes: float | None = None
    capacity_bytes: float | None = None
    blocks: float | None = None
    lookups: float | None = None
    hits: float | None = None
    evictions: float | None = None
    connections: float | None = None

    def as_json(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def read(text: str) -> NodeStats:
    samples = parse(text, "emberline_l2_")
    lookups, hits = _found(samples)
    return NodeStats(
        used_bytes=total(samples, "emberline_l2_used_bytes"),
        capacity_bytes=total(samples, "emberline_l2_capacity_bytes"),
        blocks=total(samples, "emberline_l2_blocks"),
        lookups=lookups,
        hits=hits,
        evictions=total(samples, "emberline_l2_evicted_blocks_total"),
        connections=total(samples, "emberline_l2_connections"),
    )


def _found(samples: list[Sample]) -> tuple[float | None, float | None]:
    """(asked for, found). vLLM's plug-in first asks whether a block is there, and gets only those
    that are: its GETs alone would look like all hits. Simulated workers GET without asking."""
    lookups = total(samples, "emberline_l2_lookup_blocks_total")
    if lookups:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    hits = total(samples, _OPERATIONS, op="get", result="hit")
    misses = total(samples, _OPERATIONS, op="get", result="miss")
    if hits is None and misses is None:
        return lookups, total(samples, "emberline_l2_hit_blocks_total")
    return (hits or 0) + (misses or 0), hits or 0


def ask(admin_url: str) -> NodeStats | None:
    """The node's numbers now, or None when it does not answer in time."""
    try:
        status, body = fetch(
            "GET", f"{admin_url}/metrics", deadline_s=DEADLINE_S, max_bytes=_MAX_BYTES
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        return None
    return read(body.decode(errors="replace")) if status == 200 else None
